//! Transformation of margins into values for each objective, in the arithmetic of the library that
//! trained the model.
//!
//! XGBoost uses `f32`, LightGBM `f64`. Both call the exponential function of the C library, as the
//! standard library does here: with the same C library results are bit-identical, with another one
//! the exponential may differ by one unit in the last place.

use albacore_formats::Transform;

/// Encodes a transform as the number and parameter stored in an image.
pub(crate) fn encode(transform: Transform) -> (u32, f64) {
    match transform {
        Transform::Identity => (0, 0.0),
        Transform::Sigmoid(k) => (1, k),
        Transform::Exp => (2, 0.0),
        Transform::Softmax => (3, 0.0),
        Transform::Argmax => (4, 0.0),
        Transform::Step => (5, 0.0),
        Transform::Softplus => (6, 0.0),
        Transform::SignedSquare => (7, 0.0),
        Transform::Ascending => (8, 0.0),
        Transform::Steps => (9, 0.0),
    }
}

/// The inverse of [`encode`].
pub(crate) fn decode(code: u32, parameter: f64) -> Option<Transform> {
    Some(match code {
        0 => Transform::Identity,
        1 => Transform::Sigmoid(parameter),
        2 => Transform::Exp,
        3 => Transform::Softmax,
        4 => Transform::Argmax,
        5 => Transform::Step,
        6 => Transform::Softplus,
        7 => Transform::SignedSquare,
        8 => Transform::Ascending,
        9 => Transform::Steps,
        _ => return None,
    })
}

/// XGBoost: transforms the margins of one row into its values, in place; for [`Transform::Argmax`]
/// only the first value is valid.
pub(crate) fn apply_f32(transform: Transform, row: &mut [f32]) {
    match transform {
        Transform::Identity => {}
        Transform::Sigmoid(_) => each(row, sigmoid_f32),
        Transform::Exp => each(row, f32::exp),
        Transform::Softmax => softmax_f32(row),
        Transform::Argmax => {
            let best = argmax(row);
            row[0] = best as f32;
        }
        Transform::Step => each(row, |x| if x > 0.0 { 1.0 } else { 0.0 }),
        Transform::Ascending => row.sort_unstable_by(f32::total_cmp),
        Transform::Steps => steps(row),
        // LightGBM only.
        Transform::Softplus | Transform::SignedSquare => {}
    }
}

/// LightGBM and scikit-learn: the same in `f64`.
pub(crate) fn apply_f64(transform: Transform, row: &mut [f64]) {
    match transform {
        Transform::Identity => {}
        Transform::Sigmoid(k) => each(row, |x| 1.0 / (1.0 + (-k * x).exp())),
        Transform::Exp => each(row, f64::exp),
        Transform::Softmax => softmax_f64(row),
        Transform::Softplus => each(row, |x| x.exp().ln_1p()),
        Transform::SignedSquare => each(row, |x| if x == 0.0 { 0.0 } else { x.signum() * x * x }),
        // XGBoost only.
        Transform::Argmax | Transform::Step | Transform::Ascending | Transform::Steps => {}
    }
}

fn each<T: Copy>(row: &mut [T], f: impl Fn(T) -> T) {
    for x in row {
        *x = f(*x);
    }
}

/// The library's sigmoid: the argument is clamped to avoid overflow of the `f32` exponential.
fn sigmoid_f32(x: f32) -> f32 {
    const EXP_MAX: f32 = 88.7;
    1.0 / ((-x).min(EXP_MAX).exp() + 1.0 + 1e-16)
}

/// Smallest step between expectiles in XGBoost.
const STEP_MIN: f32 = 1e-6;

fn steps(row: &mut [f32]) {
    let mut sum = row[0];
    for x in &mut row[1..] {
        // Each of the two forms is exact where the other overflows.
        let step = match *x > 0.0 {
            true => *x + (-*x).exp().ln_1p(),
            false => x.exp().ln_1p(),
        };
        sum += STEP_MIN + step;
        *x = sum;
    }
}

fn softmax_f32(row: &mut [f32]) {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0_f64;
    for x in row.iter_mut() {
        *x = (*x - max).exp();
        sum += f64::from(*x);
    }
    let sum = sum as f32;
    each(row, |x| x / sum);
}

fn softmax_f64(row: &mut [f64]) {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut sum = 0.0;
    for x in row.iter_mut() {
        *x = (*x - max).exp();
        sum += *x;
    }
    each(row, |x| x / sum);
}

/// Returns the first index of the largest value.
fn argmax(row: &[f32]) -> usize {
    let mut best = 0;
    for (group, &x) in row.iter().enumerate() {
        if x > row[best] {
            best = group;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Transform; 10] = [
        Transform::Identity,
        Transform::Sigmoid(2.5),
        Transform::Exp,
        Transform::Softmax,
        Transform::Argmax,
        Transform::Step,
        Transform::Softplus,
        Transform::SignedSquare,
        Transform::Ascending,
        Transform::Steps,
    ];

    #[test]
    fn a_transform_is_encoded_and_decoded_unchanged() {
        for transform in ALL {
            let (code, parameter) = encode(transform);
            assert_eq!(decode(code, parameter), Some(transform));
        }
        assert_eq!(decode(10, 0.0), None);
    }

    #[test]
    fn values_match_the_formulas() {
        let of = |transform: Transform, margin: f64| {
            let mut row = [margin];
            apply_f64(transform, &mut row);
            row[0]
        };
        assert_eq!(of(Transform::Sigmoid(2.0), 0.0), 0.5);
        assert_eq!(of(Transform::Sigmoid(1.0), f64::NEG_INFINITY), 0.0);
        assert_eq!(of(Transform::Exp, 0.0), 1.0);
        assert_eq!(of(Transform::Softplus, 0.0), 2.0_f64.ln());
        assert_eq!(of(Transform::SignedSquare, -3.0), -9.0);
        assert_eq!(of(Transform::SignedSquare, -0.0), 0.0);
    }

    #[test]
    fn large_margins_do_not_overflow_probabilities() {
        for margin in [-1e30_f32, -100.0, 100.0, 1e30] {
            let mut row = [margin];
            apply_f32(Transform::Sigmoid(1.0), &mut row);
            assert!((0.0..=1.0).contains(&row[0]), "{margin}: {}", row[0]);
        }
        let mut row = [1e30_f32, 0.0, -1e30];
        apply_f32(Transform::Softmax, &mut row);
        assert_eq!(row, [1.0, 0.0, 0.0]);
    }

    #[test]
    fn argmax_returns_the_first_of_equal_classes() {
        let mut row = [1.0_f32, 3.0, 3.0];
        apply_f32(Transform::Argmax, &mut row);
        assert_eq!(row[0], 1.0);
    }
}
