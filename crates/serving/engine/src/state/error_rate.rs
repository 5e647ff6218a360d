//! Whether the errors of a model are held before they are sent.
//!
//! **Problem.** Clients that resend at once turn each error into another request: a thousand of
//! them keep the front busy with rejections, and no request is answered in time. Holding errors
//! slows them down. But each held error occupies a connection: a proxy with a limited number of
//! them has none left for requests that could be answered, and its arrival rate does not depend on
//! the rejections.
//!
//! **Approach.** Errors are sent at once while they take less than [`ERROR_SHARE_MAX`] of the
//! model's share of the front's time. Above that they are held for [`ERRORS_HELD_TIME`]. After that
//! they are sent at once again, because only then their rate shows how many there are: clients that
//! wait send fewer.
//!
//! **Limits.** A proxy whose rejected requests alone exceed that share is treated like clients that
//! resend at once.

use albacore_batching::Nanos;
use albacore_batching::auto::FrontCost;

use crate::limits::{ERROR_RATE_WINDOW, ERROR_SHARE_MAX, ERRORS_HELD_TIME};

/// The error rate of one model.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ErrorRate {
    window_start: Nanos,
    /// Errors since then.
    errors: u64,
    held_until: Option<Nanos>,
}

impl ErrorRate {
    /// Counts errors of a model that has this share of the front's time.
    pub(super) fn record(&mut self, errors: u64, share: f64, cost: FrontCost, now: Nanos) {
        if self.held_until.is_some_and(|until| now < until) {
            return;
        }
        let age = now.saturating_sub(self.window_start);
        if self.are_held() || age >= Nanos::from(ERROR_RATE_WINDOW) {
            *self = Self {
                window_start: now,
                ..Self::default()
            };
        }
        self.errors += errors;
        let capacity = cost.requests_per_second() * ERROR_RATE_WINDOW.as_secs_f64();
        if self.errors as f64 > ERROR_SHARE_MAX * share * capacity {
            self.held_until = Some(now.saturating_add(ERRORS_HELD_TIME.into()));
        }
    }

    pub(super) fn are_held(&self) -> bool {
        self.held_until.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100,000 requests per second.
    const COST: FrontCost = FrontCost {
        per_request: Nanos(20_000),
        threads: 2,
    };
    const STEP: Nanos = Nanos(10_000_000);

    /// Records errors at a constant rate; returns the steps in which errors were held.
    fn held_steps(rate: &mut ErrorRate, first: u64, steps: u64, per_second: u64) -> Vec<u64> {
        let errors = per_second * STEP.0 / 1_000_000_000;
        let steps = first..first + steps;
        let held = steps.filter(|step| {
            rate.record(errors, 1.0, COST, Nanos(step * STEP.0));
            rate.are_held()
        });
        held.collect()
    }

    #[test]
    fn errors_are_held_only_while_they_take_a_quarter_of_the_front() {
        let mut rate = ErrorRate::default();
        let below = (ERROR_SHARE_MAX * 100_000.0) as u64 - 1000;
        assert_eq!(held_steps(&mut rate, 100, 1000, below), [0; 0]);
        let window = ERROR_RATE_WINDOW.as_nanos() as u64 / STEP.0;
        let held = held_steps(&mut rate, 2000, 2 * window, 90_000);
        assert!(held[0] < 2000 + window, "{held:?}");
        assert_eq!(held.len() as u64, 2000 + 2 * window - held[0]);
    }

    #[test]
    fn after_some_seconds_errors_are_sent_at_once_again_to_see_their_rate() {
        let mut rate = ErrorRate::default();
        let period = ERRORS_HELD_TIME.as_nanos() as u64 / STEP.0;
        let window = ERROR_RATE_WINDOW.as_nanos() as u64 / STEP.0;
        // Clients that resend at once: few errors while they are held, many when they are not.
        let mut free = 0;
        for step in 100..100 + 3 * period {
            let per_second = if rate.are_held() { 2_000 } else { 90_000 };
            free += u64::from(held_steps(&mut rate, step, 1, per_second).is_empty());
        }
        assert!((2..=3 * window).contains(&free), "{free}");
        // The load ends while errors are held: afterwards none is.
        let after = 1000 + 4 * period;
        assert_eq!(held_steps(&mut rate, after, period, 20_000), [0; 0]);
    }

    #[test]
    fn a_smaller_share_of_the_front_has_a_lower_limit() {
        let mut rate = ErrorRate::default();
        let limit = (ERROR_SHARE_MAX * 100_000.0 * ERROR_RATE_WINDOW.as_secs_f64()) as u64;
        rate.record(limit / 4, 0.2, COST, Nanos(STEP.0));
        assert!(rate.are_held());
        let mut rate = ErrorRate::default();
        rate.record(limit / 4, 0.3, COST, Nanos(STEP.0));
        assert!(!rate.are_held());
    }
}
