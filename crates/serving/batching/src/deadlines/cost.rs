//! The cost l(b) = alpha b + beta of a batch of b rows in integers, and its inverse.
//!
//! Alpha is stored in 1024ths of a nanosecond, because a row of a small tree model takes some tens
//! of nanoseconds, and rounding to whole ones would cause errors of several percent.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Nanos;

/// Fractional bits of alpha.
const FRACTION_BITS: u32 = 10;

/// Costs are capped at this, about 13 days, to prevent overflows.
const TIME_MAX: u64 = 1 << 50;

/// Service time of a batch on one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// In 1024ths of a nanosecond per row; at least 1, so that rows are never free.
    alpha: u64,
    /// In nanoseconds per dispatch.
    beta: u64,
}

impl Cost {
    /// From nanoseconds per row and per dispatch. Negative numbers and NaN count as 0.
    #[must_use]
    pub fn new(alpha_ns: f64, beta_ns: f64) -> Self {
        let scale = f64::from(1_u32 << FRACTION_BITS);
        // Casts saturate; NaN becomes 0.
        Self {
            alpha: ((alpha_ns * scale).round() as u64).clamp(1, TIME_MAX),
            beta: (beta_ns.round() as u64).min(TIME_MAX),
        }
    }

    /// Nanoseconds per row.
    #[must_use]
    pub fn alpha_ns(&self) -> f64 {
        self.alpha as f64 / f64::from(1_u32 << FRACTION_BITS)
    }

    /// Nanoseconds per dispatch.
    #[must_use]
    pub fn beta_ns(&self) -> f64 {
        self.beta as f64
    }

    /// l(b).
    #[must_use]
    pub fn of(&self, rows: u64) -> Nanos {
        Nanos((self.alpha.saturating_mul(rows) >> FRACTION_BITS).saturating_add(self.beta))
    }

    /// The most rows with l(b) <= `time`; 0 if not even one fits.
    #[must_use]
    pub fn rows_within(&self, time: Nanos) -> u64 {
        match time.0.min(TIME_MAX).checked_sub(self.beta) {
            // floor(alpha b / 1024) <= t is alpha b < 1024 (t + 1).
            Some(left) => (((left + 1) << FRACTION_BITS) - 1) / self.alpha,
            None => 0,
        }
    }

    /// The cost with `row` added per row, and `dispatch` added per dispatch.
    #[must_use]
    pub(super) fn plus(&self, row: Nanos, dispatch: Nanos) -> Self {
        let row = row.0.min(TIME_MAX) << FRACTION_BITS;
        Self {
            alpha: self.alpha.saturating_add(row),
            beta: self.beta.saturating_add(dispatch.0.min(TIME_MAX)),
        }
    }
}

/// An optional cost that other threads read while it changes: they may read alpha from before and
/// beta from after the change.
#[derive(Debug, Default)]
pub(crate) struct AtomicCost {
    /// 0: no cost is known.
    alpha: AtomicU64,
    beta: AtomicU64,
}

impl AtomicCost {
    pub(crate) fn set(&self, cost: Option<Cost>) {
        let Cost { alpha, beta } = cost.unwrap_or(Cost { alpha: 0, beta: 0 });
        self.alpha.store(alpha, Ordering::Relaxed);
        self.beta.store(beta, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Option<Cost> {
        let alpha = self.alpha.load(Ordering::Relaxed);
        let beta = self.beta.load(Ordering::Relaxed);
        (alpha > 0).then_some(Cost { alpha, beta })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maximum_rows_within_a_time_fit_it() {
        for (alpha, beta) in [(1.0, 5.0), (0.3, 0.0), (17.77, 3.0), (1e6, 5e6), (0.0, 2.0)] {
            let cost = Cost::new(alpha, beta);
            for time in [0, 1, 4, 5, 6, 29, 30, 31, 999, 1_000_000, 12_345_678] {
                let rows = cost.rows_within(Nanos(time));
                assert!(rows == 0 || cost.of(rows).0 <= time, "{cost:?} {time}");
                assert!(cost.of(rows + 1).0 > time, "{cost:?} {time}");
            }
        }
    }

    #[test]
    fn invalid_and_large_numbers_do_not_overflow() {
        let cost = Cost::new(f64::NAN, -1.0);
        assert_eq!(cost, Cost::new(0.0, 0.0));
        let cost = Cost::new(f64::INFINITY, f64::INFINITY);
        assert!(cost.of(u64::MAX).0 >= TIME_MAX);
        assert_eq!(cost.rows_within(Nanos::MAX), 0);
        let cost = Cost::new(1.0, 0.0).plus(Nanos::MAX, Nanos::MAX);
        assert_eq!(cost.rows_within(Nanos(5)), 0);
    }
}
