//! State transitions of workers and of the batches that they run.

use super::{Batch, Scheduler, Worker, late, queue_of};
use crate::batch::Entry;
use crate::deadlines::{self, DeadlineDispatch};
use crate::limits::{BLAME_MAX, OVERDUE_AFTER, OVERDUE_PERIOD};
use crate::{AbandonedRequest, Actions, Nanos, QueueIndex, WorkerIndex};

impl Scheduler {
    pub(super) fn worker_ready(&mut self, worker: WorkerIndex) {
        let Some(state) = self.workers.get_mut(worker.position()) else {
            return;
        };
        match std::mem::replace(state, Worker::Absent) {
            Worker::Absent => self.set_free(worker),
            Worker::Held(batch) => *state = Worker::Busy(batch),
            other @ (Worker::Free | Worker::Busy(_)) => *state = other,
        }
    }

    pub(super) fn hold(&mut self, worker: WorkerIndex) {
        let Some(state) = self.workers.get_mut(worker.position()) else {
            return;
        };
        match std::mem::replace(state, Worker::Absent) {
            Worker::Free => self.remove_from_core(worker),
            Worker::Busy(batch) => *state = Worker::Held(batch),
            other @ (Worker::Absent | Worker::Held(_)) => *state = other,
        }
    }

    pub(super) fn finish_batch(&mut self, worker: WorkerIndex) {
        let Some(state) = self.workers.get_mut(worker.position()) else {
            return;
        };
        match std::mem::replace(state, Worker::Absent) {
            Worker::Busy(batch) => {
                self.correct_charge(&batch);
                self.recycle(batch.entries);
                self.set_free(worker);
            }
            Worker::Held(batch) => {
                self.correct_charge(&batch);
                self.recycle(batch.entries);
            }
            other @ (Worker::Absent | Worker::Free) => *state = other,
        }
    }

    pub(super) fn lose_worker(
        &mut self,
        worker: WorkerIndex,
        blame: u32,
        is_hung: bool,
        actions: &mut Actions,
    ) {
        let Some(state) = self.workers.get_mut(worker.position()) else {
            return;
        };
        match std::mem::replace(state, Worker::Absent) {
            Worker::Absent => {}
            Worker::Free => self.remove_from_core(worker),
            Worker::Busy(mut batch) | Worker::Held(mut batch) => {
                self.correct_charge(&batch);
                batch.losses = batch.losses.saturating_add(1);
                batch.hangs = batch.hangs.saturating_add(u32::from(is_hung));
                batch.blame = batch.blame.saturating_add(blame);
                self.replay_or_abandon(batch, actions);
            }
        }
    }

    /// Replays a batch, unless it is to blame. A batch that is to blame is replayed in halves, each
    /// of which may cause only one more loss; a single request is abandoned.
    fn replay_or_abandon(&mut self, mut batch: Batch, actions: &mut Actions) {
        if batch.entries.is_empty() {
            return self.recycle(batch.entries);
        }
        if batch.blame < BLAME_MAX {
            return self.replays.push_back(batch);
        }
        let half = batch.halve();
        let Some(mut half) = half else {
            let losses = batch.losses;
            let alone = batch.entries.iter();
            actions
                .abandoned
                .extend(alone.map(|entry| AbandonedRequest {
                    key: entry.key,
                    losses,
                }));
            return self.recycle(batch.entries);
        };
        (batch.blame, half.blame) = (BLAME_MAX / 2, BLAME_MAX / 2);
        self.replays.push_back(batch);
        self.replays.push_back(half);
    }

    fn set_free(&mut self, worker: WorkerIndex) {
        if self.idle == 0 {
            // Candidates whose windows opened while no worker was free compete by urgency, not by
            // the time at which they opened; the same holds for requests that are dropped now.
            // bound: only queues with deadlines drop
            while self.step_core(deadlines::DeadlineEvent::Timer) {}
        }
        self.workers[worker.position()] = Worker::Free;
        self.idle += 1;
        self.step_core(deadlines::DeadlineEvent::WorkerReady { worker });
    }

    /// Removes a free worker from the core.
    fn remove_from_core(&mut self, worker: WorkerIndex) {
        self.idle -= 1;
        self.step_core(deadlines::DeadlineEvent::WorkerGone { worker });
    }

    fn recycle(&mut self, mut entries: Vec<Entry>) {
        if self.entry_pool.len() < self.config.workers {
            entries.clear();
            self.entry_pool.push(entries);
        }
    }

    pub(super) fn dispatch_replays(&mut self, actions: &mut Actions) {
        while !self.replays.is_empty() {
            let Some(worker) = self.core.free_worker(self.now) else {
                return;
            };
            let Some(mut batch) = self.replays.pop_front() else {
                return;
            };
            self.remove_from_core(worker);
            (batch.began, batch.end, batch.charged) = (self.now, self.now, Nanos(0));
            actions.dispatch(worker, &batch);
            self.mark_changed(batch.queue);
            self.workers[worker.position()] = Worker::Busy(batch);
        }
    }

    /// The queue without deadlines with the oldest overdue request, if any.
    fn overdue(&self) -> Option<QueueIndex> {
        let queues = (0..2 * self.profiles.len()).map(QueueIndex);
        let waiting = queues.filter_map(|queue| {
            let profile = self.profiles.get(queue.0 / 2)?;
            if profile.has_deadlines() && queue != late(queue_of(queue).0) {
                return None;
            }
            Some((self.core.queue(queue)?.oldest()?, queue))
        });
        let (oldest, queue) = waiting.min()?;
        (self.now.saturating_sub(oldest) > OVERDUE_AFTER).then_some(queue)
    }

    /// Replaces the predicted time that the queue was charged for a batch by the measured one.
    fn correct_charge(&mut self, batch: &Batch) {
        self.mark_changed(batch.queue);
        let service_time = self.now.saturating_sub(batch.began);
        self.shares
            .correct(batch.queue.0, batch.charged, service_time);
    }

    pub(super) fn dispatch_overdue(&mut self, actions: &mut Actions) {
        if self.idle == 0 || self.since_overdue < OVERDUE_PERIOD {
            return;
        }
        let worker = self.core.free_worker(self.now);
        self.update_ranks();
        if let (Some(queue), Some(worker)) = (self.overdue(), worker) {
            self.since_overdue = 0;
            self.core
                .dispatch_now(queue, worker, self.now, &mut self.core_actions);
            self.apply_dispatches(actions);
        }
    }

    pub(super) fn dispatch_from_core(&mut self, actions: &mut Actions) {
        self.core_actions.clear();
        // bound: each decision moves one candidate; only queues with deadlines drop, and dropped
        // requests wait in those without.
        loop {
            self.update_ranks();
            if self.core.decide_one(self.now, &mut self.core_actions) {
                self.apply_dispatches(actions);
            } else if !self.requeue_dropped() {
                break;
            }
        }
        // No timer is needed while no worker is free: the next free worker triggers a decision over
        // all queues.
        actions.timer = self.core_actions.timer.filter(|_| self.idle > 0);
    }

    fn apply_dispatches(&mut self, actions: &mut Actions) {
        let dispatches = std::mem::take(&mut self.core_actions.dispatches);
        for dispatch in &dispatches {
            self.start_batch(dispatch, actions);
        }
        // Returns the vector, so that the steady state does not allocate.
        self.core_actions.dispatches = dispatches;
        self.core_actions.dispatches.clear();
    }

    fn start_batch(&mut self, dispatch: &DeadlineDispatch, actions: &mut Actions) {
        let mut entries = self.entry_pool.pop().unwrap_or_default();
        let requests = self.core_actions.requests(dispatch).iter();
        entries.extend(requests.map(|request| Entry {
            key: request.key,
            rows: request.rows as usize,
        }));
        self.idle -= 1;
        self.since_overdue = self.since_overdue.saturating_add(1);
        let queue = queue_of(dispatch.queue);
        self.unreserve(queue, dispatch.departure.rows as usize);
        self.mark_changed(queue);
        let worker = dispatch.worker;
        let mean = self.profile(queue).mean_cost;
        let charged = mean.map_or(Nanos(0), |cost| cost.of(dispatch.departure.rows));
        self.shares.charge(queue.0, charged);
        let batch = Batch {
            queue,
            entries,
            began: self.now,
            end: self.end(queue, dispatch.departure.rows),
            charged,
            losses: 0,
            hangs: 0,
            blame: 0,
        };
        actions.dispatch(worker, &batch);
        self.workers[worker.position()] = Worker::Busy(batch);
    }

    /// Expected completion time of a batch that starts now.
    fn end(&self, queue: QueueIndex, rows: u64) -> Nanos {
        let cost = self.profile(queue).cost;
        self.now
            .saturating_add(cost.map_or(Nanos(0), |cost| cost.of(rows)))
    }
}
