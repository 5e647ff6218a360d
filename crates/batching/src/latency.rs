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
mod tests;
