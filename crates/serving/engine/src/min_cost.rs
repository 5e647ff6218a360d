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
    previous: AtomicU64,
    recorded: AtomicU64,
    estimates: AtomicU64,
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
            self.previous.store(least, Ordering::Relaxed);
        }
    }

    /// The assumed cost of a request whose body was not read: 0 while few were read, and for each
    /// sample that must be read.
    pub(crate) fn estimate(&self) -> Nanos {
        let estimates = self.estimates.fetch_add(1, Ordering::Relaxed) + 1;
        if estimates.is_multiple_of(UNREAD_SAMPLE) {
            return Nanos(0);
        }
        let previous = self.previous.load(Ordering::Relaxed);
        Nanos(previous.min(self.current.load(Ordering::Relaxed)))
    }

    /// Resets the minimum because another model uses the slot.
    pub(crate) fn reset(&self) {
        for value in [&self.current, &self.previous, &self.recorded] {
            value.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_of_recent_costs_is_used_and_samples_are_still_read() {
        let min_cost = MinCost::default();
        let estimates =
            || -> Vec<u64> { (0..UNREAD_SAMPLE).map(|_| min_cost.estimate().0).collect() };
        let window = |cost| (0..UNREAD_WINDOW).for_each(|_| min_cost.record(Nanos(cost)));
        assert!(estimates().iter().all(|&cost| cost == 0));
        // The first window begins before the first request.
        window(5);
        window(5);
        let costs = estimates();
        assert_eq!(costs.iter().filter(|&&cost| cost == 0).count(), 1);
        assert!(costs.iter().all(|&cost| cost == 0 || cost == 5));
        min_cost.record(Nanos(2));
        assert_eq!(estimates().into_iter().max(), Some(2));
        window(5);
        assert_eq!(
            estimates().into_iter().max(),
            Some(2),
            "of the window before"
        );
        window(5);
        assert_eq!(estimates().into_iter().max(), Some(5), "long ago");
        min_cost.reset();
        assert!(estimates().iter().all(|&cost| cost == 0));
    }
}
