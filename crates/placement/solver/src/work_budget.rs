//! Work limit of a search, counted in steps instead of read from a clock.
//!
//! With a time limit, an answer would depend on how busy or how fast the machine is. Searches count
//! their work instead, so the same problem with the same budget has the same answer everywhere;
//! only the time differs. A step corresponds to [`NANOS_PER_STEP`] on a usual machine (3 GHz, idle,
//! optimized build); before each piece of work, a search charges its steps, computed from the
//! number of threads, cpus or table entries that it evaluates. The figures are rough: within a
//! factor of two on the cases of the benchmarks.

use std::time::Duration;

/// Approximate nanoseconds per step on a usual machine.
pub const NANOS_PER_STEP: u64 = 1;

/// The remaining steps of a search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkBudget {
    /// Negative by the amount by which the last piece of work exceeded what was left; `None` is no
    /// limit.
    left: Option<i64>,
}

impl WorkBudget {
    /// A budget of `steps` steps.
    pub fn of_steps(steps: u64) -> Self {
        Self {
            left: Some(i64::try_from(steps).unwrap_or(i64::MAX)),
        }
    }

    /// The steps that a usual machine does in this time. A slower one takes longer and returns the
    /// same.
    pub fn of_time(time: Duration) -> Self {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self::of_steps(nanos / NANOS_PER_STEP)
    }

    /// No limit: each search ends by its own limit.
    pub fn unlimited() -> Self {
        Self { left: None }
    }

    /// Whether no more work may begin.
    pub fn is_exhausted(&self) -> bool {
        self.left.is_some_and(|left| left <= 0)
    }

    /// Number of steps beyond the budget: a piece of work that has begun is completed.
    pub fn overrun(&self) -> u64 {
        self.left.map_or(0, |left| left.min(0).unsigned_abs())
    }

    /// Charges the steps of the next piece of work; returns true if the budget was already spent,
    /// in which case the work must not begin.
    pub(crate) fn spend(&mut self, steps: usize) -> bool {
        let is_exhausted = self.is_exhausted();
        if let Some(left) = self.left.as_mut().filter(|_| !is_exhausted) {
            *left = left.saturating_sub(i64::try_from(steps).unwrap_or(i64::MAX));
        }
        is_exhausted
    }
}
