//! Learns l(b) = alpha b + beta from completed batches.
//!
//! **Problem.** Service times of batches vary, some take many times as long as usual, nearly all
//! batches may have one size, and machines change their speed. The predicted time should hold for a
//! chosen percentage of batches.
//!
//! **Approach.** Sizes are divided into classes that grow by a quarter. A class keeps running means
//! of size, time and deviation; a time is clipped at [`CLIP`] deviations from its class, so that
//! one stall has little effect; [`CHANGE_RUN`] in a row on the same side are a change of speed. The
//! line is the least-squares line of relative errors through the classes. The weight of a class is
//! its number of recent batches, but at least [`RARE_WEIGHT`] samples if it has ever had that many:
//! the mean of all batches is right, and a rare size still counts. The margin is the chosen
//! percentile of measured over predicted time, tracked by stochastic approximation (Robbins and
//! Monro): steps up by p and down by 1 - p balance if a fraction p is below.
//!
//! If large batches cost more per row than small ones (under a cpu quota a small batch may be done
//! before it is throttled), no such line fits all sizes. The line then passes through the origin
//! and minimizes the squares of the absolute, not relative, errors of the newest batches: large
//! batches decide if they are common, but a rare one, which is large because it waited for a cpu,
//! does not.
//!
//! **Limits.** Of the first samples of a class the median is used. With a single class there is no
//! slope: the line passes through the origin. Outside the sizes seen, the line is an extrapolation;
//! the estimate contains the range of sizes.

use super::cost::Cost;
use crate::Nanos;

/// Number of size classes; the last one contains all sizes from 2^17 rows.
const CLASSES: usize = 64;

/// Averaging length of a class, in samples.
const MEMORY: f64 = 64.0;

/// Samples of a class of which the median is used, before means are used.
const FIRST: usize = 8;

/// Recent batches cover this many nanoseconds of computing, but at least [`MEMORY`] batches.
const RECENT_TIME: f64 = 5e7;

/// Times are clipped at this many deviations from the mean of their class.
const CLIP: f64 = 4.0;

/// Lower bound of the deviation, as a fraction of the time: clocks and caches are no better.
const DEVIATION_SHARE_MIN: f64 = 0.005;

/// Assumed deviation of a class with few samples, as a fraction of its time.
const DEVIATION_SHARE_FIRST: f64 = 0.1;

/// This many times in a row beyond the same limit are a change of speed.
const CHANGE_RUN: i32 = 6;

/// Minimum weight of a class, in samples, if it has ever had that many.
const RARE_WEIGHT: f64 = 16.0;

/// Assumed ratio of the cost of a dispatch to that of a row, if nothing else is known:
/// contributions have 1 to 3.
const PRIOR_RATIO: f64 = 2.0;

/// Weight of [`PRIOR_RATIO`] in samples: few compared with the [`RARE_WEIGHT`] of each size class.
const PRIOR_SAMPLES: f64 = 4.0;

/// Relative change of the margin per batch.
const MARGIN_STEP: f64 = 0.01;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct SizeClass {
    samples: f64,
    /// Recent batches; see [`RECENT_TIME`].
    recent: f64,
    rows: f64,
    time: f64,
    deviation: f64,
    /// Number of consecutive times clipped on the same side: positive if too long.
    clipped: i32,
    /// Times of the first samples, corrected to the number of rows of the first one, sorted.
    first: [f64; FIRST],
}

impl SizeClass {
    /// Weight of a class, independent of its frequency.
    fn even_weight(&self) -> f64 {
        self.samples.min(RARE_WEIGHT)
    }

    fn observe(&mut self, rows: f64, time: f64, slope: f64) {
        if self.samples < FIRST as f64 {
            return self.observe_first(rows, time, slope);
        }
        self.samples += 1.0;
        let drift = slope * (rows - self.rows);
        let off = time - self.time - drift;
        let limit = CLIP * self.deviation.max(DEVIATION_SHARE_MIN * self.time);
        let clamped = off.clamp(-limit, limit);
        self.clipped = match off.abs() > limit {
            true if off > 0.0 => self.clipped.max(0) + 1,
            true => self.clipped.min(0) - 1,
            false => 0,
        };
        if self.clipped.abs() >= CHANGE_RUN {
            // So many consecutive stalls are unlikely: the speed of the machine has changed.
            self.samples = 0.0;
            self.clipped = 0;
            return self.observe_first(rows, time, slope);
        }
        let weight = 1.0 / (self.samples - FIRST as f64 + 1.0).min(MEMORY);
        self.time += weight * (clamped + drift);
        self.rows += weight * (rows - self.rows);
        self.deviation += weight * (clamped.abs() - self.deviation);
    }

    /// A stall among the first samples must not count as the usual time, and neither must a batch
    /// that finished by chance before the cpu quota was used up: the median is used, of two the
    /// lower.
    fn observe_first(&mut self, rows: f64, time: f64, slope: f64) {
        let count = self.samples as usize;
        if count == 0 {
            self.rows = rows;
        }
        self.samples += 1.0;
        self.first[count] = time - slope * (rows - self.rows);
        let first = &mut self.first[..=count];
        first.sort_by(f64::total_cmp);
        self.time = first[count / 2];
        self.deviation = DEVIATION_SHARE_FIRST * self.time;
    }
}

/// The learner of one model and kind. Clones share no state.
#[derive(Clone, Debug, PartialEq)]
pub struct CostLearner {
    classes: [SizeClass; CLASSES],
    percentile: f64,
    /// Percentile of measured over predicted time.
    margin: f64,
    /// Mean relative distance from the line.
    error: f64,
    samples: u64,
    observed_rows: (u64, u64),
    /// The last fitted line; the next batch is compared with it.
    line: Option<(f64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostEstimate {
    /// The fitted l(b).
    pub line: Cost,
    /// l(b) with the margin: the chosen percentage of batches takes no longer.
    pub safe: Cost,
    /// The margin, 1 for none.
    pub margin: f64,
    /// Mean distance of batches from the line, as a fraction of it.
    pub error: f64,
    /// The smallest and the largest batch seen: outside this range the line is an extrapolation.
    pub observed_rows: (u64, u64),
    pub samples: u64,
}

impl CostLearner {
    /// Creates a learner for a margin that this fraction of batches keeps, 0.5 to 0.999.
    #[must_use]
    pub fn new(percentile: f64) -> Self {
        Self {
            classes: [SizeClass::default(); CLASSES],
            percentile: if percentile.is_nan() {
                0.5
            } else {
                percentile.clamp(0.5, 0.999)
            },
            margin: 1.0,
            error: 0.0,
            samples: 0,
            observed_rows: (u64::MAX, 0),
            line: None,
        }
    }

    /// Adds the service time of a batch. A batch of no rows is ignored.
    pub fn observe(&mut self, rows: u64, service_time: Nanos) {
        if rows == 0 {
            return;
        }
        let (b, y) = (rows as f64, service_time.0 as f64);
        if let Some((alpha, beta)) = self.line {
            self.judge(y / (alpha * b + beta).max(1.0));
        }
        let slope = self.line.map_or(0.0, |(alpha, _)| alpha);
        let forgotten = (y / RECENT_TIME).min(1.0 / MEMORY);
        for class in &mut self.classes {
            class.recent *= 1.0 - forgotten;
        }
        let class = &mut self.classes[class_of(rows)];
        class.recent += 1.0;
        class.observe(b, y, slope);
        self.samples += 1;
        self.observed_rows = (
            self.observed_rows.0.min(rows),
            self.observed_rows.1.max(rows),
        );
        self.line = self.fit();
    }

    /// Updates margin and error by a batch that took `ratio` times the predicted time.
    fn judge(&mut self, ratio: f64) {
        let step = match ratio > self.margin {
            true => self.percentile,
            false => self.percentile - 1.0,
        };
        self.margin = (self.margin * (1.0 + MARGIN_STEP * step)).clamp(1.0, 100.0);
        let weight = 1.0 / (self.samples as f64).clamp(1.0, MEMORY);
        self.error += weight * ((ratio - 1.0).abs() - self.error);
    }

    /// The current estimate; `None` before the first batch.
    #[must_use]
    pub fn estimate(&self) -> Option<CostEstimate> {
        let (alpha, beta) = self.line?;
        Some(CostEstimate {
            line: Cost::new(alpha, beta),
            safe: Cost::new(alpha * self.margin, beta * self.margin),
            margin: self.margin,
            error: self.error,
            observed_rows: self.observed_rows,
            samples: self.samples,
        })
    }

    /// The line for comparisons with other learners: batches of one or two rows determine the slope
    /// poorly, so the line is pulled toward the ratio `PRIOR_RATIO` as if some samples had it.
    /// Larger batches outweigh that. `None` before the first batch.
    #[must_use]
    pub fn prior_line(&self) -> Option<Cost> {
        let (alpha, beta) = self.fit_with(PRIOR_SAMPLES, SizeClass::even_weight)?;
        Some(Cost::new(alpha, beta))
    }

    /// The line of least relative squares with both coefficients at least 0.
    fn fit(&self) -> Option<(f64, f64)> {
        self.fit_with(0.0, |class| class.even_weight().max(class.recent))
    }

    /// Like [`Self::fit`], with `prior` samples of beta = [`PRIOR_RATIO`] alpha.
    fn fit_with(&self, prior: f64, weigh: impl Fn(&SizeClass) -> f64) -> Option<(f64, f64)> {
        let (mut s0, mut s1, mut s2, mut t0, mut t1) = (0.0, 0.0, 0.0, 0.0, 0.0);
        // Sums for the least squares of absolute errors, for a line through the origin.
        let (mut squares, mut products) = (0.0, 0.0);
        for class in self.classes.iter().filter(|class| class.samples > 0.0) {
            // Errors relative to the measured time would favor classes that seem fast by chance.
            let line = self.line;
            let time = line.map_or(class.time, |(alpha, beta)| alpha * class.rows + beta);
            let time = time.max(1.0);
            squares += class.recent * class.rows * class.rows;
            products += class.recent * class.rows * class.time;
            let weight = weigh(class) / (time * time);
            s0 += weight;
            s1 += weight * class.rows;
            s2 += weight * class.rows * class.rows;
            t0 += weight * class.time;
            t1 += weight * class.rows * class.time;
        }
        if s0 <= 0.0 {
            return None;
        }
        // Adds prior (beta - PRIOR_RATIO alpha)^2 / time^2 to the minimized squares.
        let mean = t0 / s0;
        let weight = prior / (mean * mean);
        s0 += weight;
        s1 -= weight * PRIOR_RATIO;
        s2 += weight * PRIOR_RATIO * PRIOR_RATIO;
        let determinant = s0 * s2 - s1 * s1;
        if determinant > 1e-9 * s0 * s2 {
            let alpha = (s0 * t1 - s1 * t0) / determinant;
            let beta = (s2 * t0 - s1 * t1) / determinant;
            if alpha >= 0.0 && beta >= 0.0 {
                return Some((alpha, beta));
            }
            // The error is convex: the best line of the quadrant is on its border.
            if alpha < 0.0 {
                return Some((0.0, t0 / s0));
            }
        }
        Some((products / squares, 0.0))
    }
}

/// Exact up to 8 rows, then four classes per power of two.
fn class_of(rows: u64) -> usize {
    if rows < 8 {
        return rows as usize;
    }
    let power = rows.ilog2();
    let quarter = (rows >> (power - 2)) & 3;
    let class = 8 + 4 * (u64::from(power) - 3) + quarter;
    (class as usize).min(CLASSES - 1)
}

#[cfg(test)]
mod tests;
