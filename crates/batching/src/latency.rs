//! What a batch costs: l(b) = alpha b + beta, learned from batches as they are done.
//!
//! **Problem.** Batches of b rows take y nanoseconds on one worker. Find the line that says best
//! what the next one takes; the machine, the model's cache and its rows change with time.
//!
//! **Approach.** Least squares where a sample weighs 1 and loses one part in [`MEMORY`] with every
//! later one: five sums hold all of it. Both coefficients are at least 0, because neither a row nor
//! a dispatch gives time back: the better of the two lines on the border is taken where the free
//! one lies outside. Where sizes do not differ a slope cannot be seen: the last one is kept, and
//! before there was any the line goes through the origin.
//!
//! **Proof sketch.** The normal equations of two unknowns have the determinant S0 S2 - S1^2, which
//! is S0^2 times the weighted variance of b: at least 0, and 0 only if all sizes are equal. The
//! squared error is convex, so if its free minimum lies outside of the quadrant, the constrained one
//! lies on the border.
//!
//! **Limits.** One time that is far off bends the line for about [`MEMORY`] batches; the deviation
//! says how far samples lie from it.

use crate::Nanos;

/// Batches that the line remembers: each weighs a third after so many later ones. A worker runs
/// thousands a second, so a change is learned in well under a second; fewer would be noise.
const MEMORY: f64 = 256.0;

/// Sizes differ if their variance is this share of their mean square. Below, a slope would be made
/// of the noise of the times.
const SPREAD_MIN: f64 = 1e-3;

/// The learner of one model and kind of output. Copies share nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LatencyModel {
    /// Weights, sizes, their squares.
    s0: f64,
    s1: f64,
    s2: f64,
    /// Times, times by sizes, squares of times.
    t0: f64,
    t1: f64,
    tt: f64,
    /// The last slope that could be seen.
    slope: Option<f64>,
    samples: u64,
}

/// What was learned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyLine {
    /// Nanoseconds of a row; at least 0.
    pub alpha: f64,
    /// Nanoseconds of a dispatch; at least 0.
    pub beta: f64,
    /// Standard deviation of the samples from the line, nanoseconds.
    pub deviation: f64,
    /// Batches that were seen, forgotten ones included.
    pub samples: u64,
}

impl LatencyLine {
    /// What a batch of `rows` rows takes.
    #[must_use]
    pub fn predict(&self, rows: usize) -> Nanos {
        // A float too large for the type becomes its largest value.
        Nanos((self.alpha * rows as f64 + self.beta) as u64)
    }
}

impl LatencyModel {
    /// Learns that a batch of `rows` rows took so long.
    pub fn observe(&mut self, rows: usize, took: Nanos) {
        let (b, y) = (rows as f64, took.0 as f64);
        let kept = 1.0 - 1.0 / MEMORY;
        let add = |sum: &mut f64, value: f64| *sum = *sum * kept + value;
        add(&mut self.s0, 1.0);
        add(&mut self.s1, b);
        add(&mut self.s2, b * b);
        add(&mut self.t0, y);
        add(&mut self.t1, b * y);
        add(&mut self.tt, y * y);
        self.samples += 1;
        let determinant = self.s0 * self.s2 - self.s1 * self.s1;
        if determinant > SPREAD_MIN * self.s0 * self.s2 {
            let slope = (self.s0 * self.t1 - self.s1 * self.t0) / determinant;
            self.slope = Some(slope.max(0.0));
        }
    }

    /// What was learned so far; `None` before the first batch.
    #[must_use]
    pub fn line(&self) -> Option<LatencyLine> {
        if self.samples == 0 {
            return None;
        }
        let through_origin = if self.s2 > 0.0 {
            self.t1 / self.s2
        } else {
            0.0
        };
        let alpha = self.slope.unwrap_or(through_origin);
        let beta = (self.t0 - alpha * self.s1) / self.s0;
        let (alpha, beta) = if beta < 0.0 {
            (through_origin, 0.0)
        } else {
            (alpha, beta)
        };
        Some(LatencyLine {
            alpha,
            beta,
            deviation: self.deviation(alpha, beta),
            samples: self.samples,
        })
    }

    fn deviation(&self, alpha: f64, beta: f64) -> f64 {
        let squares = self.tt - 2.0 * (alpha * self.t1 + beta * self.t0)
            + alpha * alpha * self.s2
            + 2.0 * alpha * beta * self.s1
            + beta * beta * self.s0;
        // Rounding can leave less than nothing of a perfect fit.
        (squares / self.s0).max(0.0).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn learned(samples: impl IntoIterator<Item = (usize, f64)>) -> LatencyLine {
        let mut model = LatencyModel::default();
        for (rows, took) in samples {
            model.observe(rows, Nanos(took as u64));
        }
        model.line().unwrap()
    }

    fn is_near(value: f64, wanted: f64, within: f64) -> bool {
        (value - wanted).abs() <= within * wanted.abs().max(1.0)
    }

    #[test]
    fn nothing_is_known_before_the_first_batch() {
        assert_eq!(LatencyModel::default().line(), None);
    }

    #[test]
    fn one_size_is_a_line_through_the_origin_until_there_are_two() {
        let line = learned([(10, 5000.0); 3]);
        assert!(is_near(line.alpha, 500.0, 1e-9) && line.beta.abs() < 1e-6);
        let line = learned([(10, 5000.0), (10, 5000.0), (20, 6000.0)]);
        assert!(is_near(line.alpha, 100.0, 1e-6) && is_near(line.beta, 4000.0, 1e-6));
    }

    #[test]
    fn a_slope_outlives_a_time_of_equal_sizes_and_the_level_follows() {
        let both = (0..600).map(|at| (1 + at % 50, 1000.0 + 100.0 * (1 + at % 50) as f64));
        let equal = std::iter::repeat_n((7, 1700.0), 20_000);
        let dearer = std::iter::repeat_n((7, 2700.0), 5_000);
        let line = learned(both.chain(equal).chain(dearer));
        assert!(is_near(line.alpha, 100.0, 0.01), "{line:?}");
        assert!(is_near(line.beta, 2000.0, 0.01), "{line:?}");
    }

    #[test]
    fn a_change_is_learned() {
        let before = (0..5000).map(|at| (1 + at % 64, 1000.0 + 50.0 * (1 + at % 64) as f64));
        let after = (0..2000).map(|at| (1 + at % 64, 3000.0 + 200.0 * (1 + at % 64) as f64));
        let line = learned(before.chain(after));
        assert!(
            is_near(line.alpha, 200.0, 0.02) && is_near(line.beta, 3000.0, 0.05),
            "{line:?}"
        );
        assert!(line.deviation < 300.0, "{line:?}");
    }

    #[test]
    fn a_falling_cloud_is_flat_and_a_line_below_the_origin_goes_through_it() {
        let line = learned((1..100).map(|b| (b, 10_000.0 - 50.0 * b as f64)));
        assert_eq!(line.alpha, 0.0);
        let line = learned((50..100).map(|b| (b, 100.0 * b as f64 - 4000.0)));
        assert_eq!(line.beta, 0.0);
        assert!(line.alpha > 0.0);
    }

    proptest! {
        #[test]
        fn an_exact_line_is_found_from_any_sizes(
            alpha in 1_u32..100_000,
            beta in 0_u32..10_000_000,
            sizes in proptest::collection::vec(1_usize..4096, 8..600),
        ) {
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            prop_assume!(most - least > most / 4);
            let (alpha, beta) = (f64::from(alpha), f64::from(beta));
            // The ends stay in memory, so that sizes differ at every time.
            let ends = sizes.iter().flat_map(|&b| [b, *least, *most]);
            let line = learned(ends.map(|b| (b, alpha * b as f64 + beta)));
            prop_assert!(is_near(line.alpha, alpha, 1e-3), "{:?}", line);
            let wanted = alpha * 1000.0 + beta;
            prop_assert!(is_near(line.predict(1000).0 as f64, wanted, 1e-3), "{:?}", line);
            prop_assert!(line.deviation <= 1e-3 * wanted.max(1e3) , "{:?}", line);
        }

        #[test]
        fn whatever_comes_no_coefficient_is_negative_or_no_number(
            samples in proptest::collection::vec((0_usize..1 << 24, any::<u64>()), 1..300)
        ) {
            let mut model = LatencyModel::default();
            for (rows, took) in samples {
                model.observe(rows, Nanos(took));
                let line = model.line().unwrap();
                for value in [line.alpha, line.beta, line.deviation] {
                    prop_assert!(value >= 0.0 && value.is_finite(), "{:?}", line);
                }
            }
        }

        #[test]
        fn noise_averages_out(seed in any::<u32>()) {
            let mut state = u64::from(seed) | 1;
            let mut next = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state
            };
            let line = learned((0..3000).map(|_| {
                let b = 1 + (next() % 256) as usize;
                let noise = (next() % 2001) as f64 - 1000.0;
                (b, 20_000.0 + 150.0 * b as f64 + noise)
            }));
            prop_assert!(is_near(line.alpha, 150.0, 0.05), "{:?}", line);
            prop_assert!(is_near(line.beta, 20_000.0, 0.05), "{:?}", line);
            prop_assert!((400.0..800.0).contains(&line.deviation), "{:?}", line);
        }
    }
}
