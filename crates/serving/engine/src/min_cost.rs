//! The least cost of a model's recent requests.
//!
//! The cost of a request is known only when its body has been read, which is most of the work of
//! refusing it. If even the cheapest of the recent requests could not be in time, one whose body
//! was not read is assumed to be no cheaper. Some bodies are read in any case, to notice cheaper
//! requests.

use albacore_batching::Nanos;

use crate::limits::{UNREAD_SAMPLE, UNREAD_WINDOW};

#[derive(Clone, Debug)]
pub(super) struct MinCost {
    costs: [Nanos; UNREAD_WINDOW],
    recorded: usize,
    asked: usize,
}

impl Default for MinCost {
    fn default() -> Self {
        Self {
            costs: [Nanos(0); UNREAD_WINDOW],
            recorded: 0,
            asked: 0,
        }
    }
}

impl MinCost {
    /// A request whose body was read costs so much.
    pub(super) fn record(&mut self, cost: Nanos) {
        self.costs[self.recorded % UNREAD_WINDOW] = cost;
        self.recorded = self.recorded.wrapping_add(1);
    }

    /// The assumed cost of a request whose body was not read: 0 while few were read, and for each
    /// sample that is to be read.
    pub(super) fn estimate(&mut self) -> Nanos {
        self.asked = self.asked.wrapping_add(1);
        if self.asked.is_multiple_of(UNREAD_SAMPLE) {
            return Nanos(0);
        }
        // Entries that were never written are 0.
        self.costs.iter().copied().min().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_of_the_last_ones_counts_and_some_are_read_all_the_same() {
        let mut min_cost = MinCost::default();
        let seen = |min_cost: &mut MinCost| -> Vec<u64> {
            (0..UNREAD_SAMPLE).map(|_| min_cost.estimate().0).collect()
        };
        assert!(seen(&mut min_cost).iter().all(|&cost| cost == 0));
        (0..UNREAD_WINDOW).for_each(|_| min_cost.record(Nanos(5)));
        let costs = seen(&mut min_cost);
        assert_eq!(costs.iter().filter(|&&cost| cost == 0).count(), 1);
        assert!(costs.iter().all(|&cost| cost == 0 || cost == 5));
        min_cost.record(Nanos(2));
        assert_eq!(seen(&mut min_cost).into_iter().max(), Some(2));
        (0..UNREAD_WINDOW).for_each(|_| min_cost.record(Nanos(5)));
        assert_eq!(seen(&mut min_cost).into_iter().max(), Some(5), "long ago");
    }
}
