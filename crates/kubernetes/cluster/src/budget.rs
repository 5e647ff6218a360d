//! How many requests a program sends: a rate with a burst, and the pauses that the API server asks
//! for.
//!
//! Time is a duration since some beginning, so that it can be tested without waiting.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::limits::{REQUESTS_BURST_SECONDS, REQUESTS_PER_SECOND};

/// The budget of one program. A request asks for the earliest moment at which it may leave.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Requests a second.
    rate: u32,
    /// When a bucket of one request would be empty again, if requests left at the rate alone.
    spent_until: Duration,
    /// Before this nothing leaves.
    paused_until: Duration,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            rate: REQUESTS_PER_SECOND,
            spent_until: Duration::ZERO,
            paused_until: Duration::ZERO,
        }
    }
}

impl Budget {
    /// From now on `rate` requests a second, and as many more in a burst.
    pub(crate) fn set_rate(&mut self, rate: NonZeroU32) {
        self.rate = rate.get();
    }

    /// The moment from which a request that comes now may leave; its share of the budget is spent.
    pub(crate) fn reserve(&mut self, now: Duration) -> Duration {
        let interval = Duration::from_secs(1) / self.rate;
        let spent_until = self.spent_until.max(now);
        self.spent_until = spent_until + interval;
        let credit = interval * (self.rate * REQUESTS_BURST_SECONDS - 1);
        spent_until
            .saturating_sub(credit)
            .max(now)
            .max(self.paused_until)
    }

    /// Nothing leaves before `until`.
    pub(crate) fn pause(&mut self, until: Duration) {
        self.paused_until = self.paused_until.max(until);
    }

    /// The pause that is left at `now`.
    pub(crate) fn pause_left(&self, now: Duration) -> Duration {
        self.paused_until.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_leaves_at_once_and_the_rest_at_the_rate() {
        let mut budget = Budget::default();
        let start = Duration::from_secs(10);
        let leaves: Vec<Duration> = (0..200).map(|_| budget.reserve(start)).collect();
        assert_eq!(leaves.iter().filter(|&&at| at == start).count(), 100);
        let second = Duration::from_secs(1);
        assert_eq!(leaves[149], start + second);
        for &at in &leaves {
            let in_window = |other: &&Duration| (at..at + second).contains(*other);
            assert!(leaves.iter().filter(in_window).count() <= 150);
        }
        // After a quiet time there is a burst again.
        let later = start + Duration::from_secs(60);
        assert_eq!(budget.reserve(later), later);
    }

    #[test]
    fn nothing_leaves_during_a_pause() {
        let mut budget = Budget::default();
        let second = Duration::from_secs(1);
        budget.pause(3 * second);
        budget.pause(2 * second);
        assert_eq!(budget.reserve(second), 3 * second);
        assert_eq!(budget.pause_left(second), 2 * second);
        assert_eq!(budget.pause_left(4 * second), Duration::ZERO);
    }
}
