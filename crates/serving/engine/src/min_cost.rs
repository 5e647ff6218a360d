//! The minimum cost of a model's recent requests.
//!
//! The cost of a request is known only after its body was read, which is most of the work of
//! rejecting it. If even the cheapest recent request could not be in time, a request with an unread
//! body is assumed to be no cheaper. Some bodies are read in any case, to detect cheaper requests.

use std::sync::atomic::{AtomicU64, Ordering};

use albacore_batching::Nanos;

use crate::limits::{UNREAD_SAMPLE, UNREAD_WINDOW};

/// Minimum over the current and the previous window of requests. Shared without a lock: concurrent
/// records may be counted in the other window.
#[derive(Debug, Default)]
pub(crate) struct MinCost {
    /// Minimum of the current window, [`u64::MAX`] when it begins; 0 before the first request.
    current: AtomicU64,
    /// 0 before the first window ends.
    before: AtomicU64,
    recorded: AtomicU64,
    asked: AtomicU64,
}

impl MinCost {
    /// Records the cost of a request whose body was read.
    pub(crate) fn record(&self, cost: Nanos) {
        if cost.0 < self.current.load(Ordering::Relaxed) {
            self.current.fetch_min(cost.0, Ordering::Relaxed);
        }
        let recorded = self.recorded.fetch_add(1, Ordering::Relaxed) + 1;
        if recorded.is_multiple_of(UNREAD_WINDOW) {
            let least = self.current.swap(u64::MAX, Ordering::Relaxed);
            self.before.store(least, Ordering::Relaxed);
        }
    }

    /// The assumed cost of a request whose body was not read: 0 while few were read, and for each
    /// sample that must be read.
    pub(crate) fn estimate(&self) -> Nanos {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        if asked.is_multiple_of(UNREAD_SAMPLE) {
            return Nanos(0);
        }
        let before = self.before.load(Ordering::Relaxed);
        Nanos(before.min(self.current.load(Ordering::Relaxed)))
    }

    /// Resets the minimum because another model uses the slot.
    pub(crate) fn forget(&self) {
        for value in [&self.current, &self.before, &self.recorded] {
            value.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_of_the_last_ones_counts_and_some_are_read_all_the_same() {
        let min_cost = MinCost::default();
        let seen = || -> Vec<u64> { (0..UNREAD_SAMPLE).map(|_| min_cost.estimate().0).collect() };
        let window = |cost| (0..UNREAD_WINDOW).for_each(|_| min_cost.record(Nanos(cost)));
        assert!(seen().iter().all(|&cost| cost == 0));
        // The first window begins before the first request.
        window(5);
        window(5);
        let costs = seen();
        assert_eq!(costs.iter().filter(|&&cost| cost == 0).count(), 1);
        assert!(costs.iter().all(|&cost| cost == 0 || cost == 5));
        min_cost.record(Nanos(2));
        assert_eq!(seen().into_iter().max(), Some(2));
        window(5);
        assert_eq!(seen().into_iter().max(), Some(2), "of the window before");
        window(5);
        assert_eq!(seen().into_iter().max(), Some(5), "long ago");
        min_cost.forget();
        assert!(seen().iter().all(|&cost| cost == 0));
    }
}
