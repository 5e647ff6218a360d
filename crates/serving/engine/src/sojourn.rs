//! Whether requests queue up before the front.
//!
//! **Problem.** A burst makes requests wait for the front for a while, which does no harm. Where
//! more requests arrive than it can read, all of them wait, and their clients, which have a bounded
//! number of connections, wait to send.
//!
//! **Approach.** As CoDel does (K. Nichols, V. Jacobson: Controlling Queue Delay, ACM Queue 2012):
//! the minimum wait (sojourn time) of an interval shows a standing queue. A burst has a first
//! request that hardly waited.

use albacore_batching::Nanos;

use crate::limits::SOJOURN_INTERVAL;

/// The minimum wait of this interval and of the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SojournTime {
    began: Nanos,
    min: Nanos,
    before: Nanos,
}

impl SojournTime {
    /// Records how long a request had waited when it was read; returns the minimum wait.
    pub(super) fn record(&mut self, waited: Nanos, now: Nanos) -> Nanos {
        let interval = SOJOURN_INTERVAL.as_nanos() as u64;
        let age = now.saturating_sub(self.began).0;
        if age < interval {
            self.min = self.min.min(waited);
        } else {
            // Nothing is known after a longer pause.
            self.before = if age < 2 * interval {
                self.min
            } else {
                Nanos(0)
            };
            (self.began, self.min) = (now, waited);
        }
        self.before.min(self.min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn only_a_queue_that_lasts_for_two_intervals_counts() {
        let interval = SOJOURN_INTERVAL.as_millis() as u64;
        let mut sojourn = SojournTime::default();
        let mut record =
            |at: u64, waited: u64| sojourn.record(Nanos(waited * MS), Nanos(at * MS)).0 / MS;
        assert_eq!(record(interval, 9), 0, "a burst");
        assert_eq!(record(interval + 1, 8), 0);
        assert_eq!(record(2 * interval, 7), 7, "it goes on");
        assert_eq!(record(2 * interval + 1, 9), 7);
        assert_eq!(record(2 * interval + 2, 1), 1, "it is over");
        assert_eq!(record(9 * interval, 5), 0, "long after");
    }
}
