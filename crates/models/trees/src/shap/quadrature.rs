//! Gauss-Legendre rules on [0, 1], in groups of four points.
//!
//! **Problem.** The Shapley weight of a leaf is an integral over the participation probability t of
//! a product with one factor per path feature. The factors are linear in t, so the integrand is a
//! polynomial whose degree is the number of distinct features on the path minus one.
//!
//! **Approach.** A rule of n points is exact up to degree 2n - 1, so half the number of features,
//! rounded up, suffices. Points are processed in groups of [`POINT_GROUP_SIZE`] to give the inner
//! loops a fixed width; the number of points is rounded up to whole groups, which only increases
//! the exactness.
//!
//! **Proof sketch for long paths.** Every factor is a combination of t and 1 - t with nonnegative
//! coefficients, so the integrand is such a combination of t^a (1 - t)^b with a + b = m. With t =
//! cos^2(x / 2) such a term is a peak with curvature at most m at its maximum, and its Fourier
//! coefficient of order k decays like exp(-k^2 / 2m). An n-point rule misses only orders of 2n and
//! more: a relative error of exp(-2 n^2 / m), below 1e-17 for n = 4.5 sqrt(m). So the number of
//! points grows with the square root of the length of a very long path.
//!
//! **Limits.** Nodes and weights have a relative error of a few n times 1e-16.

use std::f64::consts::PI;

use crate::limits::{NEWTON_STEPS_MAX, POINT_GROUP_SIZE};

/// One value per quadrature point of a group.
pub(crate) type PointValues = [f64; POINT_GROUP_SIZE];

/// Four quadrature points on [0, 1]: abscissas and weights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PointGroup {
    /// Participation probabilities, strictly between 0 and 1.
    pub(crate) abscissas: PointValues,
    /// Weights; they sum to one over all groups of a rule.
    pub(crate) weights: PointValues,
}

/// Rules used so far, by number of groups. Reused for subsequent rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct QuadratureRules {
    by_group_count: Vec<Vec<PointGroup>>,
    by_points: Vec<Vec<(f64, f64)>>,
}

impl QuadratureRules {
    /// Returns the rule that is exact for paths of `path_features` distinct features.
    pub(crate) fn for_path(&mut self, path_features: usize) -> &[PointGroup] {
        let group_count = points(path_features).div_ceil(POINT_GROUP_SIZE);
        if self.by_group_count.len() < group_count {
            self.by_group_count.resize(group_count, Vec::new());
        }
        let rule = &mut self.by_group_count[group_count - 1];
        if rule.is_empty() {
            *rule = gauss_legendre(group_count);
        }
        rule
    }

    /// Returns the rule with this number of points: abscissas and weights.
    pub(crate) fn of_points(&mut self, points: usize) -> &[(f64, f64)] {
        if self.by_points.len() <= points {
            self.by_points.resize(points + 1, Vec::new());
        }
        let rule = &mut self.by_points[points];
        if rule.len() < points {
            *rule = self::rule(points);
        }
        rule
    }
}

/// Computes the rule with this number of points: abscissas and weights.
pub(crate) fn rule(points: usize) -> Vec<(f64, f64)> {
    (0..points).map(|index| point(index, points)).collect()
}

/// Returns the number of points needed for a path of this many distinct features (at least one).
fn points(path_features: usize) -> usize {
    let exact = path_features.div_ceil(2).max(1);
    let converged = (4.5 * (path_features as f64).sqrt()).ceil() as usize;
    exact.min(converged.max(1))
}

/// Computes the Gauss-Legendre rule of `group_count * POINT_GROUP_SIZE` points, mapped from
/// [-1, 1] to [0, 1].
fn gauss_legendre(group_count: usize) -> Vec<PointGroup> {
    let points = rule(group_count * POINT_GROUP_SIZE);
    let (points, _) = points.as_chunks::<POINT_GROUP_SIZE>();
    let group = |points: &[(f64, f64); POINT_GROUP_SIZE]| PointGroup {
        abscissas: points.map(|(abscissa, _)| abscissa),
        weights: points.map(|(_, weight)| weight),
    };
    points.iter().map(group).collect()
}

/// Computes one of `count` points on [0, 1] and its weight.
fn point(index: usize, count: usize) -> (f64, f64) {
    let mut x = (PI * (index as f64 + 0.75) / (count as f64 + 0.5)).cos();
    let mut slope = 1.0;
    for _ in 0..NEWTON_STEPS_MAX {
        let (value, derivative) = legendre(count, x);
        slope = derivative;
        let step = value / derivative;
        x -= step;
        if step.abs() <= f64::EPSILON {
            break;
        }
    }
    (0.5 * (1.0 + x), 1.0 / ((1.0 - x * x) * slope * slope))
}

/// Evaluates the Legendre polynomial of this degree (at least one) at x, and its derivative.
fn legendre(degree: usize, x: f64) -> (f64, f64) {
    let (mut before, mut value) = (1.0, x);
    for k in 2..=degree {
        let k = k as f64;
        (before, value) = (
            value,
            ((2.0 * k - 1.0) * x * value - (k - 1.0) * before) / k,
        );
    }
    let derivative = degree as f64 * (x * value - before) / (x * x - 1.0);
    (value, derivative)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integrate(rule: &[PointGroup], f: impl Fn(f64) -> f64) -> f64 {
        rule.iter()
            .flat_map(|group| group.abscissas.iter().zip(&group.weights))
            .map(|(&t, &weight)| weight * f(t))
            .sum()
    }

    /// The integral of t^a (1 - t)^b over [0, 1]: a! b! / (a + b + 1)!, computed by logarithms.
    fn beta(a: u32, b: u32) -> f64 {
        let ln: f64 = (1..=b)
            .map(|k| f64::from(k).ln() - f64::from(a + k).ln())
            .sum();
        ln.exp() / f64::from(a + b + 1)
    }

    #[test]
    fn weights_sum_to_one_and_points_lie_inside() {
        for group_count in [1, 2, 3, 8, 40] {
            let rule = gauss_legendre(group_count);
            assert!(
                (integrate(&rule, |_| 1.0) - 1.0).abs() < 1e-13,
                "{group_count} groups"
            );
            assert!(
                rule.iter()
                    .all(|p| p.abscissas.iter().all(|&t| 0.0 < t && t < 1.0))
            );
        }
    }

    #[test]
    fn rules_are_exact_for_every_bernstein_term_of_short_and_long_paths() {
        let mut rules = QuadratureRules::default();
        for path_features in [1_u32, 2, 7, 8, 9, 16, 17, 64, 100, 400, 3000] {
            let rule = rules.for_path(path_features as usize).to_vec();
            let degree = path_features - 1;
            for a in (0..=degree).step_by((degree as usize / 12).max(1)) {
                let b = degree - a;
                let scale = beta(a, b);
                if scale < 1e-280 {
                    continue;
                }
                let got = integrate(&rule, |t| t.powi(a as i32) * (1.0 - t).powi(b as i32));
                assert!((got / scale - 1.0).abs() < 2e-10, "{a} {b}: {got} {scale}");
            }
        }
    }

    #[test]
    fn a_rule_is_computed_once() {
        let mut rules = QuadratureRules::default();
        let pointer = rules.for_path(6).as_ptr();
        rules.for_path(8);
        assert_eq!(rules.for_path(6).as_ptr(), pointer);
    }

    #[test]
    fn points_are_half_the_features_until_the_square_root_bound_is_smaller() {
        assert_eq!(points(0), 1);
        assert_eq!(points(1), 1);
        assert_eq!(points(6), 3);
        assert_eq!(points(64), 32);
        assert!(points(1_000_000) <= 4500);
    }
}
