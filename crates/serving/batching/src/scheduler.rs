//! The scheduler of the live server: the queues of [`crate::deadlines`], extended by workers that
//! are held or lost, replay of batches, and admission.
//!
//! **Problem.** Requests of several queues, workers that run one batch at a time and may crash:
//! each request must be answered once, in time if possible, and no request may be rejected that
//! could be in time.
//!
//! **Approach.** Every queue is two queues of the core: one with the objective, from which the core
//! drops requests that cannot be in time, and a queue without deadlines for the dropped requests:
//! they were accepted, so they still run, after requests that can be in time. A batch whose worker
//! was lost is replayed before all others. If it is to blame for losses it is halved, and its
//! halves again, until the request that crashes workers is alone and is abandoned. A request
//! without an urgent deadline that has waited for [`crate::limits::OVERDUE_AFTER`] is overdue:
//! every [`crate::limits::OVERDUE_PERIOD`]th batch contains overdue requests, so that none starves.
//!
//! The workers' time is shared between queues by weight ([`crate::shares`]): of due batches, those
//! of queues within their share have priority, and among these the most urgent.
//!
//! Admission reads values that each step publishes: [`crate::admission`].
//!
//! **Proof sketch.** A request is in exactly one place: a queue of the core, a replay, or the batch
//! of one worker; every transition moves it and none copies it. It is removed when its batch is
//! done, when it is withdrawn while waiting, or when it is abandoned. The idle workers are those
//! that the core lists as free: a replay takes a worker from the core before the core decides.
//!
//! **Limits.** One step costs O(queues) to find overdue requests; there are few queues. A worker
//! runs one batch at a time.

mod choices;
mod ranks;
mod workers;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::admission::{GroupAdmission, QueueAdmission, QueueFull, RowsAhead, SharedAdmission};
use crate::auto::{AutoPolicy, FrontCost};
use crate::batch::{Batch, Entry};
use crate::deadlines::{self, Completion, Delays};
use crate::policy::BatchBounds;
use crate::shares::FairShares;
use crate::{
    Actions, BatchingParams, ModelBatching, Nanos, Policy, Profile, QueueIndex, RequestKey,
    WorkerIndex,
};

/// The number of workers is fixed; queues may be added, and `batching` may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub queues: usize,
    /// Number of workers; all are absent initially.
    pub workers: usize,
    pub batching: BatchingParams,
    /// Most requests of a batch.
    pub batch_requests_max: usize,
}

/// An arriving request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub queue: QueueIndex,
    /// Greater than the key of every earlier request.
    pub key: RequestKey,
    /// Number of rows, at least one.
    pub rows: usize,
    pub position: Position,
}

/// Position of a request in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// By its deadline: that of the objective or of its own time limit, whichever is earlier. In a
    /// queue without deadlines, in arrival order.
    ByDeadline(Option<Nanos>),
    /// As if it had arrived earlier by this time. Because this is finite, no request behind it
    /// starves.
    Ahead(Nanos),
    /// Behind requests that can be in time.
    Behind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request arrived; its rows are reserved already.
    Arrived(Arrival),
    /// The client withdrew the request. A running request is not stopped.
    Withdrawn { queue: QueueIndex, key: RequestKey },
    /// A worker is up and free, or is no longer held.
    WorkerReady { worker: WorkerIndex },
    /// A worker has finished its batch and is free.
    BatchDone { worker: WorkerIndex },
    /// A worker gets no batch until it is ready again; a running batch is completed.
    WorkerHeld { worker: WorkerIndex },
    /// A worker is lost, with or without a batch.
    WorkerLost {
        worker: WorkerIndex,
        /// Blame of its batch: from 0, not begun, to [`crate::BLAME_MAX`].
        blame: u32,
        /// The worker was killed because its batch took too long.
        is_hung: bool,
    },
    /// [`Actions::timer`] is due.
    Timer,
}

#[derive(Debug)]
enum Worker {
    Absent,
    /// Idle, in the core too.
    Free,
    Busy(Batch),
    /// Busy, and absent after its batch.
    Held(Batch),
}

#[derive(Debug)]
pub struct Scheduler {
    config: Config,
    /// Two queues for each queue of this scheduler: requests that can be in time, and late
    /// requests.
    core: deadlines::DeadlineScheduler,
    /// The actions of the core's last step.
    core_actions: deadlines::DeadlineActions,
    profiles: Vec<Profile>,
    /// Batching of queues that override that of `config`.
    own_batching: Vec<Option<ModelBatching>>,
    /// Which queues are deferred under [`Policy::Auto`].
    auto: AutoPolicy,
    /// Queues whose choice has not been reported yet.
    changed_choices: Vec<QueueIndex>,
    shares: FairShares,
    /// Rank of each queue, kept between steps to reuse the allocation.
    ranks: Vec<u8>,
    /// Whether some rank of the core is above 0.
    is_ranked: bool,
    /// Whether the next batch of some queue of the core may be bounded.
    has_bounds: bool,
    workers: Vec<Worker>,
    /// Batches whose worker was lost, oldest first. A worker takes a new batch only while this is
    /// empty, so replays and running batches are at most twice the number of workers, apart from
    /// halved ones.
    replays: VecDeque<Batch>,
    /// Values that admission reads, by queue, and the number of rows reserved or waiting, without
    /// replays.
    queue_admissions: Vec<Arc<QueueAdmission>>,
    shared_admission: Arc<SharedAdmission>,
    /// Queues whose published values are out of date.
    changed: Vec<usize>,
    /// Number of idle workers.
    idle: usize,
    /// Batches since the last one of overdue requests.
    since_overdue: u32,
    /// Empty vectors of finished batches, so that the steady state does not allocate.
    entry_pool: Vec<Vec<Entry>>,
    now: Nanos,
}

/// The core's queue of requests that can be in time.
fn in_time(queue: usize) -> QueueIndex {
    QueueIndex(2 * queue)
}

/// The core's queue of late requests.
fn late(queue: usize) -> QueueIndex {
    QueueIndex(2 * queue + 1)
}

/// The queue of this scheduler that a queue of the core belongs to.
fn queue_of(queue: QueueIndex) -> QueueIndex {
    QueueIndex(queue.0 / 2)
}

impl Scheduler {
    /// Creates a scheduler without requests; every worker is absent.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let core = deadlines::DeadlineScheduler::new(deadlines::DeadlineConfig {
            workers: config.workers,
            delays: Delays::default(),
            completion: Completion::Reported,
        });
        let mut scheduler = Self {
            core,
            core_actions: deadlines::DeadlineActions::default(),
            profiles: Vec::new(),
            own_batching: Vec::new(),
            auto: AutoPolicy::default(),
            changed_choices: Vec::new(),
            shares: FairShares::default(),
            ranks: Vec::new(),
            is_ranked: false,
            has_bounds: false,
            workers: (0..config.workers).map(|_| Worker::Absent).collect(),
            replays: VecDeque::with_capacity(config.workers),
            queue_admissions: Vec::new(),
            shared_admission: Arc::new(SharedAdmission::new(config.batching.queue_rows_max)),
            changed: Vec::new(),
            idle: 0,
            since_overdue: 0,
            entry_pool: Vec::with_capacity(config.workers),
            now: Nanos(0),
            config,
        };
        for _ in 0..scheduler.config.queues {
            scheduler.add_queue();
        }
        scheduler
    }

    /// Release rule and bounds of a queue.
    #[must_use]
    pub fn batching(&self, queue: QueueIndex) -> ModelBatching {
        let own = self.own_batching.get(queue.0).copied().flatten();
        own.unwrap_or_else(|| self.config.batching.of_models())
    }

    fn bounds(&self, queue: QueueIndex) -> BatchBounds {
        BatchBounds {
            rows_max: self.batching(queue).batch_rows_max.max(1) as u64,
            requests_max: self.config.batch_requests_max.max(1),
        }
    }

    /// Replaces the release rule and the bounds from the next step on, except for queues with their
    /// own. Waiting requests are kept, including rows above a lower bound; requests larger than the
    /// new batch size run as batches of their own.
    pub fn set_params(&mut self, params: BatchingParams) {
        let is_changed = params.of_models() != self.config.batching.of_models();
        self.config.batching = params;
        self.shared_admission.set_rows_max(params.queue_rows_max);
        self.publish_shares();
        for queue in 0..self.profiles.len() {
            if is_changed && self.own_batching[queue].is_none() {
                self.apply_batching(queue);
            }
        }
    }

    /// Sets the batching of one queue from the next step on; `None`: that of
    /// [`Scheduler::set_params`].
    pub fn set_own_batching(&mut self, queue: QueueIndex, own: Option<ModelBatching>) {
        let before = self.batching(queue);
        let Some(known) = self.own_batching.get_mut(queue.0) else {
            return;
        };
        *known = own;
        if self.batching(queue) != before {
            self.apply_batching(queue.0);
        }
    }

    fn apply_batching(&mut self, queue: usize) {
        self.auto.make_due(QueueIndex(queue));
        self.apply(queue);
    }

    /// Sets the costs and the objective of a queue from the next step on.
    pub fn set_profile(&mut self, queue: QueueIndex, profile: Profile) {
        if let Some(known) = self.profiles.get_mut(queue.0)
            && *known != profile
        {
            *known = profile;
            self.shares.set_objective(queue.0, profile.objective);
            self.queue_admissions[queue.0].set_profile(&profile);
            self.apply(queue.0);
        }
    }

    #[must_use]
    pub fn profile(&self, queue: QueueIndex) -> Profile {
        self.profiles.get(queue.0).copied().unwrap_or_default()
    }

    /// Rows of the batches of a queue under load; the maximum batch size if the costs or the
    /// objective are not known.
    #[must_use]
    pub fn rows_under_load(&self, queue: QueueIndex) -> u64 {
        let profile = self.profile(queue);
        let core = self.core.queue(in_time(queue.0));
        match (core, profile.cost.and(profile.objective)) {
            (Some(core), Some(_)) => core.params().rows_under_load(),
            _ => self.bounds(queue).rows_max,
        }
    }

    /// Passes the parameters of a queue to the core.
    fn apply(&mut self, queue: usize) {
        let index = QueueIndex(queue);
        let (batching, bounds) = (self.batching(index), self.bounds(index));
        let choice = self.auto.choice(index);
        let rules = batching.queue_params(&self.profiles[queue], &choice, bounds);
        self.core
            .set_params(in_time(queue), rules, self.now, &mut self.core_actions);
        self.requeue_dropped();
        let bounds = self.profiles[queue].bounds_of_late(bounds);
        let rules = Policy::Eager.params_without_deadlines(bounds);
        self.core
            .set_params(late(queue), rules, self.now, &mut self.core_actions);
    }

    /// Returns a queue that has changed between deferred and eager since it was last returned.
    pub fn next_changed_choice(&mut self) -> Option<QueueIndex> {
        self.changed_choices.pop()
    }

    /// Sets the measured cost of the front end.
    pub fn set_front_cost(&mut self, front: Option<FrontCost>) {
        self.auto.set_front_cost(front);
    }

    /// Discards the arrival statistics of a queue because another model uses it now.
    pub fn reset_arrivals(&mut self, queue: QueueIndex) {
        self.auto.reset(queue);
        self.shares.reset(queue.0);
        if let Some(queue_admission) = self.queue_admissions.get(queue.0) {
            queue_admission.reset();
            self.apply(queue.0);
        }
    }

    /// Adds a queue with a weight of its own; existing indices stay valid.
    pub fn add_queue(&mut self) -> QueueIndex {
        self.shares.add_queue(None);
        self.add_queue_to_core(Arc::new(GroupAdmission::new()))
    }

    /// Adds a queue that shares the weight of another one equally.
    pub fn add_sibling(&mut self, sibling: QueueIndex) -> QueueIndex {
        self.shares.add_queue(Some(sibling.0));
        let group = self
            .queue_admissions
            .get(sibling.0)
            .map(|queue_admission| Arc::clone(&queue_admission.group));
        self.add_queue_to_core(group.unwrap_or_else(|| Arc::new(GroupAdmission::new())))
    }

    fn add_queue_to_core(&mut self, group: Arc<GroupAdmission>) -> QueueIndex {
        let queue_admission = QueueAdmission::new(&self.shared_admission, group);
        self.queue_admissions.push(Arc::new(queue_admission));
        let bounds = self.bounds(QueueIndex(self.profiles.len()));
        let policy = self.config.batching.policy;
        self.core.add_queue(policy.params_without_deadlines(bounds));
        self.core
            .add_queue(Policy::Eager.params_without_deadlines(bounds));
        self.profiles.push(Profile::default());
        self.own_batching.push(None);
        self.auto.add_queue();
        self.config.queues = self.profiles.len();
        QueueIndex(self.profiles.len() - 1)
    }

    /// Reserves rows that arrive later, see [`QueueAdmission::reserve`].
    ///
    /// # Errors
    /// See [`QueueAdmission::reserve`].
    pub fn reserve(&mut self, queue: QueueIndex, rows: usize) -> Result<(), QueueFull> {
        self.note_request(queue, self.now);
        self.queue_admissions[queue.0].reserve(rows)
    }

    /// Releases reserved rows that will not arrive.
    pub fn unreserve(&mut self, queue: QueueIndex, rows: usize) {
        if let Some(queue_admission) = self.queue_admissions.get(queue.0) {
            queue_admission.release(rows);
        }
    }

    /// Rows reserved or waiting.
    #[must_use]
    pub fn queued_rows(&self) -> usize {
        self.shared_admission.rows()
    }

    /// Expected time to answer `rows` reserved rows of a queue behind those that run before them,
    /// if they are due within `time`.
    #[must_use]
    pub fn expected_reply_time(
        &self,
        queue: QueueIndex,
        rows: usize,
        ahead: RowsAhead,
        time: Nanos,
        now: Nanos,
    ) -> Nanos {
        self.queue_admissions
            .get(queue.0)
            .map_or(Nanos(0), |queue_admission| {
                let waiting = queue_admission.rows().saturating_sub(rows);
                queue_admission.expected_reply_time(rows, waiting, ahead, time, now)
            })
    }

    /// Workers that run a batch.
    #[must_use]
    pub fn busy_workers(&self) -> usize {
        self.workers
            .iter()
            .filter(|worker| matches!(worker, Worker::Busy(_) | Worker::Held(_)))
            .count()
    }

    /// Idle workers.
    #[must_use]
    pub fn idle_workers(&self) -> usize {
        self.idle
    }

    /// Whether this worker is up.
    #[must_use]
    pub fn is_present(&self, worker: WorkerIndex) -> bool {
        let state = self.workers.get(worker.position());
        state.is_some_and(|state| !matches!(state, Worker::Absent))
    }

    /// Workers that are up.
    #[must_use]
    pub fn present_workers(&self) -> usize {
        self.workers
            .iter()
            .filter(|worker| !matches!(worker, Worker::Absent))
            .count()
    }

    /// Handles an event at `now`, which is clamped to the time of the previous event, and writes
    /// the resulting actions into `actions`.
    pub fn step(&mut self, event: Event, now: Nanos, actions: &mut Actions) {
        actions.clear();
        self.now = self.now.max(now);
        self.decide_auto();
        match event {
            Event::Arrived(arrival) => self.arrive(arrival),
            Event::Withdrawn { queue, key } => self.withdraw(queue, key),
            Event::WorkerReady { worker } => self.worker_ready(worker),
            Event::WorkerHeld { worker } => self.hold(worker),
            Event::BatchDone { worker } => self.finish_batch(worker),
            Event::WorkerLost {
                worker,
                blame,
                is_hung,
            } => self.lose_worker(worker, blame, is_hung, actions),
            Event::Timer => {}
        }
        self.dispatch_replays(actions);
        self.dispatch_overdue(actions);
        self.dispatch_from_core(actions);
        self.publish();
    }

    /// Adds an arrival without deciding: [`Event::Timer`] must follow once all simultaneous
    /// arrivals are added. Any event before it decides for all of them.
    pub fn enqueue(&mut self, arrival: Arrival, now: Nanos) {
        self.now = self.now.max(now);
        self.arrive(arrival);
    }

    fn arrive(&mut self, arrival: Arrival) {
        let Arrival {
            queue,
            key,
            rows,
            position,
        } = arrival;
        if queue.0 >= self.profiles.len() {
            debug_assert!(false, "{arrival:?}");
            return;
        }
        self.auto.arrived(queue, rows as u64, self.now);
        self.note_request(queue, self.now);
        let first = in_time(queue.0);
        match position {
            Position::ByDeadline(within) => {
                let within = within.filter(|_| self.profile(queue).has_deadlines());
                self.queue(first, key, rows, within);
            }
            Position::Ahead(head_start) => {
                let params = self.core.queue(first).map(|part| part.params());
                let within = params.map(|params| params.objective.saturating_sub(head_start));
                self.queue(first, key, rows, within);
            }
            Position::Behind => self.queue(late(queue.0), key, rows, None),
        }
    }

    /// Adds a request to a queue of the core.
    fn queue(&mut self, queue: QueueIndex, key: RequestKey, rows: usize, within: Option<Nanos>) {
        let rows = u32::try_from(rows).unwrap_or(u32::MAX);
        self.mark_changed(queue_of(queue));
        self.step_core(deadlines::DeadlineEvent::Arrived {
            queue,
            key,
            rows,
            within,
        });
    }

    /// Returns whether the core dropped any request.
    fn step_core(&mut self, event: deadlines::DeadlineEvent) -> bool {
        self.core.step(event, self.now, &mut self.core_actions);
        self.requeue_dropped()
    }

    /// Moves requests that the core dropped to the queues of late requests; returns whether there
    /// were any.
    fn requeue_dropped(&mut self) -> bool {
        if self.core_actions.drops.is_empty() {
            return false;
        }
        debug_assert!(
            self.core_actions.dispatches.is_empty(),
            "they are run before"
        );
        let mut drops = std::mem::take(&mut self.core_actions.drops);
        for dropped in drops.drain(..) {
            let queue = late(queue_of(dropped.queue).0);
            self.mark_changed(queue_of(queue));
            let (key, rows) = (dropped.key, dropped.rows);
            let within = None;
            let event = deadlines::DeadlineEvent::Arrived {
                queue,
                key,
                rows,
                within,
            };
            self.core.step(event, self.now, &mut self.core_actions);
        }
        // Returns the vector, so that the steady state does not allocate.
        self.core_actions.drops = drops;
        true
    }

    fn withdraw(&mut self, queue: QueueIndex, key: RequestKey) {
        for queue in [in_time(queue.0), late(queue.0)] {
            let rows =
                |core: &deadlines::DeadlineScheduler| core.queue(queue).map_or(0, |q| q.rows());
            let before = rows(&self.core);
            self.step_core(deadlines::DeadlineEvent::Withdrawn { queue, key });
            let gone = before.saturating_sub(rows(&self.core));
            if gone > 0 {
                self.unreserve(queue_of(queue), gone as usize);
                self.mark_changed(queue_of(queue));
                return;
            }
        }
        // A running request is not stopped, but it is not replayed if its worker is lost.
        let running = self.workers.iter_mut().filter_map(|worker| match worker {
            Worker::Busy(batch) | Worker::Held(batch) => Some(batch),
            Worker::Absent | Worker::Free => None,
        });
        for batch in self.replays.iter_mut().chain(running) {
            if batch.queue == queue {
                batch.withdraw(key);
            }
        }
        self.replays.retain(|batch| !batch.entries.is_empty());
    }
}

#[cfg(test)]
mod tests;
