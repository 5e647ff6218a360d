//! Rate limit of a program's requests: a rate with a burst, and the pauses that the API server asks
//! for.
//!
//! A moment is a duration since an arbitrary start, so that tests need not wait.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::limits::{REQUESTS_BURST_SECONDS, REQUESTS_PER_SECOND};

/// A request reserves the earliest moment at which it may be sent.
#[derive(Debug)]
pub(crate) struct RateLimit {
    /// Requests per second.
    rate: u32,
    /// When a bucket of one request would be empty again if requests were sent at the rate alone.
    spent_until: Duration,
    /// Nothing is sent before this.
    paused_until: Duration,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self {
            rate: REQUESTS_PER_SECOND,
            spent_until: Duration::ZERO,
            paused_until: Duration::ZERO,
        }
    }
}

impl RateLimit {
    /// From now on `rate` requests per second, and as many more in a burst.
    pub(crate) fn set_rate(&mut self, rate: NonZeroU32) {
        self.rate = rate.get();
    }

    /// Reserves the moment from which a request that comes at `now` may be sent.
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

    /// Sends nothing before `until`.
    pub(crate) fn pause(&mut self, until: Duration) {
        self.paused_until = self.paused_until.max(until);
    }

    /// The rest of the pause at `now`.
    pub(crate) fn pause_left(&self, now: Duration) -> Duration {
        self.paused_until.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_sent_at_once_and_the_rest_at_the_rate() {
        let mut rate_limit = RateLimit::default();
        let start = Duration::from_secs(10);
        let send_at: Vec<Duration> = (0..200).map(|_| rate_limit.reserve(start)).collect();
        assert_eq!(send_at.iter().filter(|&&at| at == start).count(), 100);
        let second = Duration::from_secs(1);
        assert_eq!(send_at[149], start + second);
        for &at in &send_at {
            let in_window = |other: &&Duration| (at..at + second).contains(*other);
            assert!(send_at.iter().filter(in_window).count() <= 150);
        }
        // After a quiet time there is a burst again.
        let later = start + Duration::from_secs(60);
        assert_eq!(rate_limit.reserve(later), later);
    }

    #[test]
    fn nothing_is_sent_during_a_pause() {
        let mut rate_limit = RateLimit::default();
        let second = Duration::from_secs(1);
        rate_limit.pause(3 * second);
        rate_limit.pause(2 * second);
        assert_eq!(rate_limit.reserve(second), 3 * second);
        assert_eq!(rate_limit.pause_left(second), 2 * second);
        assert_eq!(rate_limit.pause_left(4 * second), Duration::ZERO);
    }
}
