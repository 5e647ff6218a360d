//! Learns l(b) = alpha b + beta from batches as they are done.
//!
//! **Problem.** Times of batches scatter, now and then one takes many times as long, nearly all
//! batches may have one size, and machines change their speed. What is promised of a batch should
//! hold for a chosen share of them.
//!
//! **Approach.** Sizes are sorted into classes that grow by a quarter. A class keeps the running
//! means of size, time and deviation; a time counts as at most [`CLIP`] deviations from its class,
//! so that one stall moves little; [`CHANGE_RUN`] in a row on the same side are a change of speed.
//! The line is the least-squares line of relative errors through the classes. A class weighs as
//! many recent batches as it has, but at least [`RARE_WEIGHT`] samples where it ever had so many:
//! the mean of all batches is right, and a rare size still counts. The margin is the chosen
//! percentile of measured over predicted time, followed by steps (Robbins and Monro): up by p and
//! down by 1 - p balance where a share p lies below.
//!
//! Where large batches cost more per row than small ones (under a cpu quota a small batch may be
//! done before it is throttled) no such line fits all sizes. The line then goes through the origin
//! with least absolute errors of the newest batches: large batches decide where they are usual,
//! and a rare one, which is large as it waited for a cpu, does not.
//!
//! **Limits.** Of the first samples of a class the median counts. With one class alone there is no
//! slope: the line goes through the origin. Beyond the sizes seen the line is a guess, and the
//! estimate says which sizes those were.

use super::cost::Cost;
use crate::Nanos;

/// Classes of sizes; the last one takes all from 2^17 rows on.
const CLASSES: usize = 64;

/// Samples that a class remembers.
const MEMORY: f64 = 64.0;

/// Samples of a class of which the median counts, before means are taken.
const FIRST: usize = 8;

/// Recent batches are those of so many nanoseconds of computing, but at least [`MEMORY`] of them.
const RECENT_TIME: f64 = 5e7;

/// Deviations that a time may lie from its class.
const CLIP: f64 = 4.0;

/// The deviation is taken as at least this share of the time: clocks and caches are no better.
const DEVIATION_SHARE_MIN: f64 = 0.005;

/// The deviation of a class that has seen few: as a share of its time.
const DEVIATION_SHARE_FIRST: f64 = 0.1;

/// So many times in a row beyond the same limit are a change of speed.
const CHANGE_RUN: i32 = 6;

/// Samples that a class weighs at least if it ever had so many.
const RARE_WEIGHT: f64 = 16.0;

/// The cost of a dispatch over that of a row, where nothing else is known: contributions have 1 to
/// 3.
const PRIOR_RATIO: f64 = 2.0;

/// Samples of [`PRIOR_RATIO`]: few beside the [`RARE_WEIGHT`] of each class of sizes.
const PRIOR_SAMPLES: f64 = 4.0;

/// How far one batch moves the margin, as a share.
const MARGIN_STEP: f64 = 0.01;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Class {
    samples: f64,
    /// Recent batches; see [`RECENT_TIME`].
    recent: f64,
    rows: f64,
    time: f64,
    deviation: f64,
    /// Times in a row that were clipped on the same side: above 0 from above.
    clipped: i32,
    /// Times of the first samples as if they had as many rows as the first of them, sorted.
    first: [f64; FIRST],
}

impl Class {
    /// The weight that a class has whether it is rare or frequent.
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
        let kept = off.clamp(-limit, limit);
        self.clipped = match off.abs() > limit {
            true if off > 0.0 => self.clipped.max(0) + 1,
            true => self.clipped.min(0) - 1,
            false => 0,
        };
        if self.clipped.abs() >= CHANGE_RUN {
            // So many stalls do not follow each other: the machine has changed.
            self.samples = 0.0;
            self.clipped = 0;
            return self.observe_first(rows, time, slope);
        }
        let weight = 1.0 / (self.samples - FIRST as f64 + 1.0).min(MEMORY);
        self.time += weight * (kept + drift);
        self.rows += weight * (rows - self.rows);
        self.deviation += weight * (kept.abs() - self.deviation);
    }

    /// A stall among the first samples must not be taken for the usual time, nor one that was done
    /// by chance before the cpu quota ran out: the median counts, of two the lower.
    fn observe_first(&mut self, rows: f64, time: f64, slope: f64) {
        let seen = self.samples as usize;
        if seen == 0 {
            self.rows = rows;
        }
        self.samples += 1.0;
        self.first[seen] = time - slope * (rows - self.rows);
        let first = &mut self.first[..=seen];
        first.sort_by(f64::total_cmp);
        self.time = first[seen / 2];
        self.deviation = DEVIATION_SHARE_FIRST * self.time;
    }
}

/// The learner of one model and kind. Copies share nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct CostLearner {
    classes: [Class; CLASSES],
    percentile: f64,
    /// Measured over predicted time that the percentile does not exceed.
    margin: f64,
    /// Mean of the relative distance from the line.
    error: f64,
    samples: u64,
    rows_seen: (u64, u64),
    /// The line that was fitted last; the next batch is compared with it.
    line: Option<(f64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostEstimate {
    /// The fitted l(b).
    pub line: Cost,
    /// l(b) with the margin: the chosen percentile of batches takes no longer.
    pub safe: Cost,
    /// The margin, 1 for none.
    pub margin: f64,
    /// Mean distance of batches from the line, as a share of it.
    pub error: f64,
    /// The smallest and the largest batch seen: beyond them the line is a guess.
    pub rows_seen: (u64, u64),
    pub samples: u64,
}

impl CostLearner {
    /// For a margin that this share of batches keeps, 0.5 to 0.999.
    #[must_use]
    pub fn new(percentile: f64) -> Self {
        Self {
            classes: [Class::default(); CLASSES],
            percentile: if percentile.is_nan() {
                0.5
            } else {
                percentile.clamp(0.5, 0.999)
            },
            margin: 1.0,
            error: 0.0,
            samples: 0,
            rows_seen: (u64::MAX, 0),
            line: None,
        }
    }

    /// A batch of so many rows took so long. No rows are no sample.
    pub fn observe(&mut self, rows: u64, took: Nanos) {
        if rows == 0 {
            return;
        }
        let (b, y) = (rows as f64, took.0 as f64);
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
        self.rows_seen = (self.rows_seen.0.min(rows), self.rows_seen.1.max(rows));
        self.line = self.fit();
    }

    /// Moves margin and error by a batch that took `ratio` times what was predicted.
    fn judge(&mut self, ratio: f64) {
        let step = match ratio > self.margin {
            true => self.percentile,
            false => self.percentile - 1.0,
        };
        self.margin = (self.margin * (1.0 + MARGIN_STEP * step)).clamp(1.0, 100.0);
        let weight = 1.0 / (self.samples as f64).clamp(1.0, MEMORY);
        self.error += weight * ((ratio - 1.0).abs() - self.error);
    }

    /// What was learned so far; `None` before the first batch.
    #[must_use]
    pub fn estimate(&self) -> Option<CostEstimate> {
        let (alpha, beta) = self.line?;
        Some(CostEstimate {
            line: Cost::new(alpha, beta),
            safe: Cost::new(alpha * self.margin, beta * self.margin),
            margin: self.margin,
            error: self.error,
            rows_seen: self.rows_seen,
            samples: self.samples,
        })
    }

    /// The line for comparisons with other learners: batches of one or two rows leave the slope to
    /// chance, so the line is drawn to the ratio `PRIOR_RATIO` as if some samples had it. What
    /// larger batches say outweighs that. `None` before the first batch.
    #[must_use]
    pub fn prior_line(&self) -> Option<Cost> {
        let (alpha, beta) = self.fit_with(PRIOR_SAMPLES, Class::even_weight)?;
        Some(Cost::new(alpha, beta))
    }

    /// The line of least relative squares with both coefficients at least 0.
    fn fit(&self) -> Option<(f64, f64)> {
        self.fit_with(0.0, |class| class.even_weight().max(class.recent))
    }

    /// The same where so many samples have beta = [`PRIOR_RATIO`] alpha.
    fn fit_with(&self, prior: f64, weigh: impl Fn(&Class) -> f64) -> Option<(f64, f64)> {
        let (mut s0, mut s1, mut s2, mut t0, mut t1) = (0.0, 0.0, 0.0, 0.0, 0.0);
        // Of absolute errors, for a line through the origin.
        let (mut squares, mut products) = (0.0, 0.0);
        for class in self.classes.iter().filter(|class| class.samples > 0.0) {
            // Errors relative to what is measured would favor classes that seem fast by chance.
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
        // Adds prior (beta - PRIOR_RATIO alpha)^2 / time^2 to the squares that are minimized.
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
            // The error is convex: the best line of the quadrant lies on its border.
            if alpha < 0.0 {
                return Some((0.0, t0 / s0));
            }
        }
        Some((products / squares, 0.0))
    }
}

/// Exact up to 8 rows, then four classes to each power of two.
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
