//! The least that requests of a model cost of late.
//!
//! What a request asks for is known only when its body has been read, which is most of what a
//! refusal costs. If even the cheapest of the last ones could not be in time, one that has not been
//! read is taken to be no cheaper; some are read all the same, or nobody would learn of cheaper
//! ones.

use albacore_batching::Nanos;

use crate::limits::{UNREAD_SAMPLE, UNREAD_WINDOW};

#[derive(Clone, Debug)]
pub(super) struct MinCost {
    costs: [Nanos; UNREAD_WINDOW],
    noted: usize,
    asked: usize,
}

impl Default for MinCost {
    fn default() -> Self {
        Self {
            costs: [Nanos(0); UNREAD_WINDOW],
            noted: 0,
            asked: 0,
        }
    }
}

impl MinCost {
    /// A request that was read costs so much.
    pub(super) fn note(&mut self, cost: Nanos) {
        self.costs[self.noted % UNREAD_WINDOW] = cost;
        self.noted = self.noted.wrapping_add(1);
    }

    /// What one that was not read is taken to cost: nothing while few were, and each time that one
    /// is to be read to learn from.
    pub(super) fn estimate(&mut self) -> Nanos {
        self.asked = self.asked.wrapping_add(1);
        if self.asked.is_multiple_of(UNREAD_SAMPLE) {
            return Nanos(0);
        }
        // Places that were never written hold 0.
        self.costs.iter().copied().min().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_of_the_last_ones_counts_and_some_are_read_all_the_same() {
        let mut least = MinCost::default();
        let seen = |least: &mut MinCost| -> Vec<u64> {
            (0..UNREAD_SAMPLE).map(|_| least.estimate().0).collect()
        };
        assert!(seen(&mut least).iter().all(|&cost| cost == 0));
        (0..UNREAD_WINDOW).for_each(|_| least.note(Nanos(5)));
        let costs = seen(&mut least);
        assert_eq!(costs.iter().filter(|&&cost| cost == 0).count(), 1);
        assert!(costs.iter().all(|&cost| cost == 0 || cost == 5));
        least.note(Nanos(2));
        assert_eq!(seen(&mut least).into_iter().max(), Some(2));
        (0..UNREAD_WINDOW).for_each(|_| least.note(Nanos(5)));
        assert_eq!(seen(&mut least).into_iter().max(), Some(5), "long ago");
    }
}
