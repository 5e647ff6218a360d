//! Whether requests queue up before the front.
//!
//! **Problem.** A burst makes requests wait for the front for a while, which is no harm; but where
//! more come than it can read, all of them wait, and clients that have so many connections open
//! wait to send.
//!
//! **Approach.** As CoDel does (K. Nichols, V. Jacobson: Controlling Queue Delay, ACM Queue 2012):
//! the least wait of an interval says whether there is a queue that does not go away. A burst has a
//! first request that hardly waited.

use albacore_batching::Nanos;

use crate::limits::SOJOURN_INTERVAL;

/// The least wait of this interval and of the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SojournTime {
    began: Nanos,
    least: Nanos,
    before: Nanos,
}

impl SojournTime {
    /// A request had waited for so long when it was read; how long all of them do.
    pub(super) fn note(&mut self, waited: Nanos, now: Nanos) -> Nanos {
        let interval = SOJOURN_INTERVAL.as_nanos() as u64;
        let age = now.saturating_sub(self.began).0;
        if age < interval {
            self.least = self.least.min(waited);
        } else {
            // Of a longer pause nothing is known.
            self.before = if age < 2 * interval {
                self.least
            } else {
                Nanos(0)
            };
            (self.began, self.least) = (now, waited);
        }
        self.before.min(self.least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn only_what_lasts_for_two_intervals_stands() {
        let interval = SOJOURN_INTERVAL.as_millis() as u64;
        let mut sojourn = SojournTime::default();
        let mut note =
            |at: u64, waited: u64| sojourn.note(Nanos(waited * MS), Nanos(at * MS)).0 / MS;
        assert_eq!(note(interval, 9), 0, "a burst");
        assert_eq!(note(interval + 1, 8), 0);
        assert_eq!(note(2 * interval, 7), 7, "it goes on");
        assert_eq!(note(2 * interval + 1, 9), 7);
        assert_eq!(note(2 * interval + 2, 1), 1, "it is over");
        assert_eq!(note(9 * interval, 5), 0, "long after");
    }
}
