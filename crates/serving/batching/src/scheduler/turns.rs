//! Whose turn it is among queues that wait, and how long their batches may be: what
//! [`crate::shares`] says, for the core.

use super::{Scheduler, Worker, in_time, late};
use crate::{Nanos, QueueIndex};

/// Ranks of the core for a queue's requests in time and for its late ones, by the rank of
/// [`crate::shares`]: what is late comes behind what its own model and others within their share
/// have in time, but before those that are over it.
const CORE_RANKS: [[u8; 2]; 4] = [[0, 2], [1, 2], [3, 5], [4, 5]];

impl Scheduler {
    /// Tells the core whose turn it is, before a worker gets a batch.
    pub(super) fn take_turns(&mut self) {
        if self.idle == 0 {
            return;
        }
        let (core, workers) = (&self.core, self.present_workers());
        let contends =
            |queue: usize| core.is_waiting(in_time(queue)) || core.is_waiting(late(queue));
        let any = core.has_waiting();
        let is_ranked = self.shares.rank(contends, any, workers, &mut self.ranks);
        if is_ranked || self.is_ranked {
            let of_core = |&rank: &u8| match is_ranked {
                true => CORE_RANKS[usize::from(rank)],
                false => [0, 0],
            };
            self.core.set_ranks(self.ranks.iter().flat_map(of_core));
        }
        self.is_ranked = is_ranked;
        self.bound_batches();
    }

    /// Bounds batches so that some worker is free in time for the other queues: a batch may be
    /// longer only while another worker is free, or should be soon.
    fn bound_batches(&mut self) {
        let had_bounds = std::mem::replace(&mut self.has_bounds, self.shares.has_rivals());
        if !self.has_bounds && !had_bounds {
            return;
        }
        let next_end = match self.idle {
            1 => self.next_end(),
            _ => Some(self.now),
        };
        let bound = |queue: usize| {
            let patience = self.shares.patience(queue)?;
            let cost = self.profiles[queue].cost?;
            let soon = self.now.saturating_add(patience);
            let is_soon = next_end.is_some_and(|end| end <= soon);
            (!is_soon).then(|| cost.rows_within(patience).max(1))
        };
        let bounds = (0..self.profiles.len()).map(|queue| bound(queue).unwrap_or(u64::MAX));
        self.core
            .set_rows_max(bounds.flat_map(|rows_max| [rows_max; 2]));
    }

    /// When the first of the running batches should be done.
    pub(super) fn next_end(&self) -> Option<Nanos> {
        let ends = self.workers.iter().filter_map(|worker| match worker {
            Worker::Busy(batch) => Some(batch.end),
            Worker::Absent | Worker::Free | Worker::Held(_) => None,
        });
        ends.min()
    }

    /// Sets the weight of a queue and its siblings: their share of the workers' time beside others.
    pub fn set_weight(&mut self, queue: QueueIndex, weight: u32) {
        self.shares.set_weight(queue.0, weight);
    }

    /// A request asks for a queue, whether it is admitted or not: for some seconds the batches of
    /// others leave it room.
    pub fn note_request(&mut self, queue: QueueIndex, now: Nanos) {
        self.shares.asked(queue.0, now);
        self.shares.refresh(self.present_workers(), now);
    }

    /// The shortest objective of the active queues beside this one and its siblings.
    #[must_use]
    pub fn shortest_beside(&self, queue: QueueIndex) -> Option<Nanos> {
        self.shares.shortest_beside(queue.0)
    }

    /// Whether a queue was asked for in the last seconds.
    #[must_use]
    pub fn is_active(&self, queue: QueueIndex) -> bool {
        self.shares.is_active(queue.0)
    }
}
