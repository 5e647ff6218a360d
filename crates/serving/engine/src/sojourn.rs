//! Whether requests queue up before the front.
//!
//! **Problem.** A burst makes requests wait for the front for a while, which does no harm. Where
//! more requests arrive than it can read, all of them wait, and their clients, which have a bounded
//! number of connections, wait to send.
//!
//! **Approach.** As CoDel does (K. Nichols, V. Jacobson: Controlling Queue Delay, ACM Queue 2012):
//! the minimum wait (sojourn time) of an interval shows a standing queue. A burst has a first
//! request that hardly waited.

use std::sync::atomic::{AtomicU64, Ordering};

use albacore_batching::Nanos;

use crate::limits::SOJOURN_INTERVAL;

/// The minimum wait of this interval and of the one before, of one event loop: only its thread
/// writes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct SojournTime {
    began: AtomicU64,
    min: AtomicU64,
    before: AtomicU64,
}

impl SojournTime {
    /// Records how long a request had waited when it was read; returns the minimum wait.
    pub(crate) fn record(&self, waited: Nanos, now: Nanos) -> Nanos {
        let interval = SOJOURN_INTERVAL.as_nanos() as u64;
        let (order, waited) = (Ordering::Relaxed, waited.0);
        let age = now.0.saturating_sub(self.began.load(order));
        if age < interval {
            self.min.store(self.min.load(order).min(waited), order);
        } else {
            // Nothing is known after a longer pause.
            let is_next = age < 2 * interval;
            let before = if is_next { self.min.load(order) } else { 0 };
            self.before.store(before, order);
            self.began.store(now.0, order);
            self.min.store(waited, order);
        }
        Nanos(self.before.load(order).min(self.min.load(order)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn only_a_queue_that_lasts_for_two_intervals_counts() {
        let interval = SOJOURN_INTERVAL.as_millis() as u64;
        let sojourn = SojournTime::default();
        let record =
            |at: u64, waited: u64| sojourn.record(Nanos(waited * MS), Nanos(at * MS)).0 / MS;
        assert_eq!(record(interval, 9), 0, "a burst");
        assert_eq!(record(interval + 1, 8), 0);
        assert_eq!(record(2 * interval, 7), 7, "it goes on");
        assert_eq!(record(2 * interval + 1, 9), 7);
        assert_eq!(record(2 * interval + 2, 1), 1, "it is over");
        assert_eq!(record(9 * interval, 5), 0, "long after");
    }
}
