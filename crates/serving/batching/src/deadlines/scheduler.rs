//! Queues and assigner on one thread: `(state, event, now) -> actions`.

use std::ops::Range;

use super::request_queue::{DeadlineRequest, DispatchedBatch, QueueParams, RequestQueue};
use super::rules::Delays;
use super::worker_assigner::{Decision, WorkerAssigner};
use crate::{Nanos, QueueIndex, RequestKey, WorkerIndex};

/// How the scheduler learns that a worker is free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// It assumes l(b); no event is sent.
    Predicted,
    /// By [`DeadlineEvent::BatchDone`].
    Reported,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadlineConfig {
    /// Number of workers; all are absent initially.
    pub workers: usize,
    pub delays: Delays,
    pub completion: Completion,
}

/// Several events may have the same time; [`DeadlineEvent::Timer`] must be the last of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadlineEvent {
    Arrived {
        queue: QueueIndex,
        key: RequestKey,
        /// Number of rows, at least one.
        rows: u32,
        /// Its own objective, if shorter than that of the queue.
        within: Option<Nanos>,
    },
    /// The client withdrew the request. A dispatched request is not stopped.
    Withdrawn { queue: QueueIndex, key: RequestKey },
    /// A worker is up and free.
    WorkerReady { worker: WorkerIndex },
    /// A worker has finished its batch and is free.
    BatchDone { worker: WorkerIndex },
    /// A worker gets no batch until it is ready again.
    WorkerGone { worker: WorkerIndex },
    /// All events of this time were sent: decide. Must be sent at every [`DeadlineActions::timer`]
    /// and, in the live server, after the events of one wakeup.
    Timer,
}

/// Send a batch to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadlineDispatch {
    /// The queue in which it waited.
    pub queue: QueueIndex,
    pub worker: WorkerIndex,
    /// Start, expected end and rows of the batch.
    pub departure: DispatchedBatch,
    requests: Range<usize>,
}

/// Drop a request: it cannot be in time, or would prevent more of the others from being in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The queue in which it waited.
    pub queue: QueueIndex,
    pub key: RequestKey,
    pub rows: u32,
}

/// Actions in response to an event. One value is reused for every step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadlineActions {
    pub dispatches: Vec<DeadlineDispatch>,
    pub drops: Vec<Dropped>,
    /// Latest time to send [`DeadlineEvent::Timer`]; never in the past. Replaces the previous
    /// timer, `None` clears it.
    pub timer: Option<Nanos>,
    requests: Vec<DeadlineRequest>,
    dropped: Vec<DeadlineRequest>,
}

impl DeadlineActions {
    /// The requests of a dispatch, in order of arrival.
    #[must_use]
    pub fn requests(&self, dispatch: &DeadlineDispatch) -> &[DeadlineRequest] {
        self.requests
            .get(dispatch.requests.clone())
            .unwrap_or_default()
    }

    pub(crate) fn clear(&mut self) {
        self.dispatches.clear();
        self.drops.clear();
        self.requests.clear();
        self.timer = None;
    }

    /// Moves `dropped` to `drops`, with the index of the queue.
    fn collect_drops(&mut self, queue: QueueIndex) {
        let dropped = self.dropped.drain(..);
        self.drops
            .extend(dropped.map(|DeadlineRequest { key, rows, .. }| Dropped { queue, key, rows }));
    }
}

#[derive(Debug)]
pub struct DeadlineScheduler {
    config: DeadlineConfig,
    queues: Vec<RequestQueue>,
    assigner: WorkerAssigner,
    /// Bound of the rows of each queue's next batch, in addition to its parameters.
    rows_max: Vec<u64>,
    now: Nanos,
}

impl DeadlineScheduler {
    /// Creates a scheduler without queues; every worker is absent.
    #[must_use]
    pub fn new(config: DeadlineConfig) -> Self {
        Self {
            assigner: WorkerAssigner::new(0, config.workers, config.delays),
            queues: Vec::new(),
            rows_max: Vec::new(),
            now: Nanos(0),
            config,
        }
    }

    /// Adds a queue; existing indices stay valid.
    pub fn add_queue(&mut self, params: QueueParams) -> QueueIndex {
        self.queues
            .push(RequestQueue::new(params, self.config.delays));
        self.assigner.add_queue();
        self.rows_max.push(u64::MAX);
        QueueIndex(self.queues.len() - 1)
    }

    #[must_use]
    pub fn queue(&self, queue: QueueIndex) -> Option<&RequestQueue> {
        self.queues.get(queue.0)
    }

    /// Replaces the parameters of a queue; they apply to waiting requests, too.
    pub fn set_params(
        &mut self,
        queue: QueueIndex,
        params: QueueParams,
        now: Nanos,
        actions: &mut DeadlineActions,
    ) {
        actions.clear();
        self.now = self.now.max(now);
        if let Some(part) = self.queues.get_mut(queue.0) {
            part.set_params(params);
            self.update_candidate(queue, actions);
        }
        self.set_timer(actions);
    }

    /// Ranks the queues: of due batches, those of the lowest rank are dispatched first.
    pub fn set_ranks(&mut self, ranks: impl Iterator<Item = u8>) {
        self.assigner.set_ranks(ranks);
    }

    /// Bounds the next batches of each queue; a larger request is a batch of its own.
    pub fn set_rows_max(&mut self, rows_max: impl Iterator<Item = u64>) {
        for (known, rows_max) in self.rows_max.iter_mut().zip(rows_max) {
            *known = rows_max;
        }
    }

    /// Whether a batch of this queue is due and waits for a worker.
    #[must_use]
    pub fn is_waiting(&self, queue: QueueIndex) -> bool {
        self.assigner.is_waiting(queue)
    }

    /// Whether a batch of any queue is due and waits for a worker.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        self.assigner.has_waiting()
    }

    /// Decides like [`DeadlineEvent::Timer`], but dispatches at most one batch; must be called
    /// until it returns false. Appends to `actions`.
    pub fn decide_one(&mut self, now: Nanos, actions: &mut DeadlineActions) -> bool {
        self.now = self.now.max(now);
        let decided = self.assigner.decide(self.now);
        if let Some(decision) = decided {
            self.carry_out(decision, actions);
        }
        self.set_timer(actions);
        decided.is_some()
    }

    /// The lowest-numbered worker that is free now.
    #[must_use]
    pub fn free_worker(&self, now: Nanos) -> Option<WorkerIndex> {
        self.assigner.free_worker(now)
    }

    /// Dispatches the batch of a queue to a free worker even if others are more urgent.
    pub fn dispatch_now(
        &mut self,
        queue: QueueIndex,
        worker: WorkerIndex,
        now: Nanos,
        actions: &mut DeadlineActions,
    ) {
        actions.clear();
        self.now = self.now.max(now);
        if queue.0 < self.queues.len() && worker.position() < self.config.workers {
            self.dispatch(queue, worker, self.now, actions);
        }
        self.set_timer(actions);
    }

    /// Handles an event at `now`, which is clamped to the time of the previous event, and writes
    /// the resulting actions into `actions`.
    pub fn step(&mut self, event: DeadlineEvent, now: Nanos, actions: &mut DeadlineActions) {
        actions.clear();
        self.now = self.now.max(now);
        match event {
            DeadlineEvent::Arrived {
                queue,
                key,
                rows,
                within,
            } => {
                if let Some(part) = self.queues.get_mut(queue.0) {
                    let objective = part.params().objective;
                    let less = within.map_or(Nanos(0), |within| objective.saturating_sub(within));
                    let request = DeadlineRequest {
                        key,
                        arrival: self.now.saturating_sub(less),
                        rows: rows.max(1),
                    };
                    part.push(request);
                    self.update_candidate(queue, actions);
                }
            }
            DeadlineEvent::Withdrawn { queue, key } => {
                let part = self.queues.get_mut(queue.0);
                if part.is_some_and(|part| part.withdraw(key)) {
                    self.update_candidate(queue, actions);
                }
            }
            DeadlineEvent::WorkerReady { worker } | DeadlineEvent::BatchDone { worker } => {
                if worker.position() < self.config.workers {
                    self.assigner.set_free(worker, Some(self.now));
                }
            }
            DeadlineEvent::WorkerGone { worker } => {
                if worker.position() < self.config.workers {
                    self.assigner.set_free(worker, None);
                }
            }
            DeadlineEvent::Timer => self.decide(actions),
        }
        self.set_timer(actions);
    }

    fn set_timer(&self, actions: &mut DeadlineActions) {
        actions.timer = self.assigner.next().map(|time| time.max(self.now));
    }

    /// Computes the candidate of a queue and passes it to the assigner.
    fn update_candidate(&mut self, queue: QueueIndex, actions: &mut DeadlineActions) {
        if let Some(part) = self.queues.get_mut(queue.0) {
            let candidate = part.candidate(self.now, &mut actions.dropped);
            self.assigner.set_candidate(queue, candidate);
            actions.collect_drops(queue);
        }
    }

    fn decide(&mut self, actions: &mut DeadlineActions) {
        while let Some(decision) = self.assigner.decide(self.now) {
            self.carry_out(decision, actions);
        }
    }

    fn carry_out(&mut self, decision: Decision, actions: &mut DeadlineActions) {
        match decision {
            Decision::Refresh { queue } => self.update_candidate(queue, actions),
            Decision::Grant {
                queue,
                worker,
                free,
            } => self.dispatch(queue, worker, free, actions),
        }
    }

    fn dispatch(
        &mut self,
        queue: QueueIndex,
        worker: WorkerIndex,
        free: Nanos,
        actions: &mut DeadlineActions,
    ) {
        let Some(part) = self.queues.get_mut(queue.0) else {
            return;
        };
        let first = actions.requests.len();
        let rows_max = self.rows_max[queue.0];
        let departure = part.take_batch(
            self.now,
            free,
            rows_max,
            &mut actions.requests,
            &mut actions.dropped,
        );
        let next = part.candidate(self.now, &mut actions.dropped);
        let free = match departure {
            None => Some(free),
            Some(departure) => match self.config.completion {
                Completion::Predicted => Some(departure.end),
                Completion::Reported => None,
            },
        };
        self.assigner.complete_grant(queue, worker, free, next);
        actions.collect_drops(queue);
        if let Some(departure) = departure {
            actions.dispatches.push(DeadlineDispatch {
                queue,
                worker,
                departure,
                requests: first..actions.requests.len(),
            });
        }
    }
}
