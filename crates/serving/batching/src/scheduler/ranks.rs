//! Passes the results of [`crate::shares`] to the core: ranks of waiting queues and bounds of their
//! batches.

use std::sync::Arc;

use super::{Scheduler, Worker, in_time, late};
use crate::admission::{QueueAdmission, RunningBatches};
use crate::{Nanos, QueueIndex};

/// Ranks in the core of a queue's requests in time and of its late ones, by its rank in
/// [`crate::shares`]. Late requests rank behind requests in time of their own model and of others
/// within their share, but before those of queues that exceed it.
const CORE_RANKS: [[u8; 2]; 4] = [[0, 2], [1, 2], [3, 5], [4, 5]];

impl Scheduler {
    /// Updates the ranks in the core before a worker gets a batch.
    pub(super) fn update_ranks(&mut self) {
        if self.idle == 0 {
            return;
        }
        let (core, workers) = (&self.core, self.present_workers());
        let is_backlogged =
            |queue: usize| core.is_waiting(in_time(queue)) || core.is_waiting(late(queue));
        let any_backlogged = core.has_waiting();
        let is_ranked = self
            .shares
            .rank(is_backlogged, any_backlogged, workers, &mut self.ranks);
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
    /// longer only while another worker is free, or is expected to be free soon.
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
            let tolerated_delay = self.shares.tolerated_delay(queue)?;
            let cost = self.profiles[queue].cost?;
            let soon = self.now.saturating_add(tolerated_delay);
            let is_soon = next_end.is_some_and(|end| end <= soon);
            (!is_soon).then(|| cost.rows_within(tolerated_delay).max(1))
        };
        let bounds = (0..self.profiles.len()).map(|queue| bound(queue).unwrap_or(u64::MAX));
        self.core
            .set_rows_max(bounds.flat_map(|rows_max| [rows_max; 2]));
    }

    /// Expected completion time of the first of the running batches.
    pub(super) fn next_end(&self) -> Option<Nanos> {
        let ends = self.workers.iter().filter_map(|worker| match worker {
            Worker::Busy(batch) => Some(batch.end),
            Worker::Absent | Worker::Free | Worker::Held(_) => None,
        });
        ends.min()
    }

    /// Sets the weight of a queue and its siblings: their relative share of the workers' time.
    pub fn set_weight(&mut self, queue: QueueIndex, weight: u32) {
        self.shares.set_weight(queue.0, weight);
    }

    /// Records a request for a queue, admitted or not. For some seconds the batches of other queues
    /// leave it room.
    pub fn note_request(&mut self, queue: QueueIndex, now: Nanos) {
        self.shares.record_request(queue.0, now);
        if self.shares.refresh(self.present_workers(), now) {
            self.publish_shares();
        }
    }

    /// Reads which queues got requests without the scheduler, by
    /// [`QueueAdmission::record_request`].
    pub fn refresh(&mut self, now: Nanos) {
        for (queue, queue_admission) in self.queue_admissions.iter().enumerate() {
            if let Some(last_request) = queue_admission.take_last_request() {
                self.shares.record_request(queue, last_request);
            }
        }
        if self.shares.refresh(self.present_workers(), now) {
            self.publish_shares();
        }
    }

    pub(super) fn publish_shares(&self) {
        let rows_max = self.config.batching.queue_rows_max;
        for (queue, queue_admission) in self.queue_admissions.iter().enumerate() {
            queue_admission.set_share(self.shares.queue_share(queue));
            let rows_max = self.shares.rows_share(queue, rows_max);
            queue_admission
                .group
                .publish(rows_max, self.shares.shortest_other_objective(queue));
        }
    }

    /// Publishes the values that admission reads: of the workers, and of changed queues.
    pub(super) fn publish(&mut self) {
        let (present, next_end) = (self.present_workers(), self.next_end());
        self.shared_admission.publish(present, self.idle, next_end);
        while let Some(queue) = self.changed.pop() {
            let (first, behind) = (
                self.core.queue(in_time(queue)),
                self.core.queue(late(queue)),
            );
            let oldest = first.and_then(|part| part.oldest());
            let due = oldest.zip(self.profiles[queue].objective);
            let due = due.map(|(oldest, objective)| oldest.saturating_add(objective));
            let late = behind.map_or(0, |part| part.rows());
            let running = self.running(QueueIndex(queue));
            self.queue_admissions[queue].publish(late as usize, due, running);
        }
    }

    fn running(&self, queue: QueueIndex) -> RunningBatches {
        let ends = self.workers.iter().filter_map(|worker| match worker {
            Worker::Busy(batch) | Worker::Held(batch) if batch.queue == queue => {
                Some(batch.end.max(self.now))
            }
            _ => None,
        });
        let (count, sum) = ends.fold((0, Nanos(0)), |(count, sum): (u64, Nanos), end| {
            (count + 1, sum.saturating_add(end))
        });
        RunningBatches {
            count,
            end: Nanos(sum.0 / count.max(1)),
        }
    }

    /// Marks a queue whose waiting requests or running batches have changed.
    pub(super) fn mark_changed(&mut self, queue: QueueIndex) {
        if self.changed.last() != Some(&queue.0) {
            self.changed.push(queue.0);
        }
    }

    /// The admission of a queue, which may be used on any thread.
    #[must_use]
    pub fn queue_admission(&self, queue: QueueIndex) -> Option<&Arc<QueueAdmission>> {
        self.queue_admissions.get(queue.0)
    }
}
