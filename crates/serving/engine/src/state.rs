//! What the engine knows: requests, workers, counters; and what each event does to them.
//!
//! All of it lies behind one mutex of the front. Every method takes the time and leaves what has to
//! happen outside of the lock (replies to send, memory to free, a timer to set) in an [`Outbox`].

use std::collections::HashMap;
use std::sync::Arc;

use albacore_batching::{Actions, Config, Event, Nanos, QueueIndex, Scheduler, WorkerIndex};
use albacore_os::{Channel, Exit, Extent};
use tokio::sync::oneshot;

use super::catalog::{Catalog, Declared, NoSlot};
use super::counters::Counters;
use super::min_cost::MinCost;
use super::model_rollout::{Candidate, Installed};
use super::queues::{Queues, queues_of, slot_of};
use super::sojourn::SojournTime;
use super::{Failure, Kind, KindSet, ModelStats, Objective, Priority, Rules};
use crate::command::{Command, EditionId};
use crate::limits::{
    COMPLETION_POLL_PERIOD, CRASH_BLAME, HANG_BLAME, KILL_BLAME, RESPAWNS_AT_ONCE,
};
use crate::ring::{Ring, Segment, SegmentState};

/// The signal that nobody can catch.
const SIGKILL: i32 = 9;

/// What a request's future receives: its results, how long it waited and ran, and when it was done.
pub(super) type Answer = Result<(Extent, super::Timing, Nanos), Failure>;

/// A request that was submitted and not answered.
#[derive(Debug)]
pub(super) struct Pending {
    /// The slot of its model.
    pub(super) model: usize,
    /// What computes it; pinned until the request is over.
    pub(super) edition: EditionId,
    pub(super) kinds: KindSet,
    pub(super) is_double: bool,
    pub(super) rows: usize,
    pub(super) input: Extent,
    pub(super) results: Extent,
    pub(super) reply: oneshot::Sender<Answer>,
    pub(super) submitted: Nanos,
    pub(super) first_dispatch: Option<Nanos>,
    /// How long a worker had been free when it was submitted, and between that and its dispatch.
    pub(super) free_before: Nanos,
    pub(super) deferred: Nanos,
    pub(super) compute_nanos: u64,
    pub(super) failure: Option<Failure>,
    pub(super) within: Option<Nanos>,
    pub(super) priority: Priority,
    /// Parts that are not done.
    pub(super) parts: usize,
    /// False once the client went away.
    pub(super) is_wanted: bool,
}

/// Rows of a request that run in one batch. A request larger than a batch has several.
#[derive(Clone, Copy, Debug)]
struct RequestPart {
    request: u64,
    first_row: usize,
    rows: usize,
    is_running: bool,
}

/// What one incarnation of a worker is talked to by.
#[derive(Debug)]
pub(super) struct Incarnation {
    pub(super) ring: Ring,
    /// Where it finds command.
    pub(super) channel: Channel,
}

/// A batch as it was dispatched.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunningBatch {
    dispatched: Nanos,
    rows: usize,
    queue: QueueIndex,
    /// The costliest kind of its requests.
    kind: Kind,
    /// It ran for the first time: what it takes then is what such batches take.
    is_first: bool,
    /// All of it is of the model's current edition: what others cost says nothing of it.
    is_current: bool,
}

/// The place of a worker, over all of its lives.
#[derive(Debug, Default)]
pub(super) struct WorkerSlot {
    /// The present incarnation; `None` between two.
    pub(super) incarnation: Option<Arc<Incarnation>>,
    /// It serves, or did in this incarnation before it was held.
    pub(super) is_ready: bool,
    /// It takes no batch until it has followed its command.
    pub(super) is_held: bool,
    pub(super) sequence: u32,
    pub(super) batch: Option<RunningBatch>,
    /// Keys of the batch, in the order of its segments.
    members: Vec<u64>,
    /// What it was told and has not said to be done.
    pub(super) command: Option<Command>,
    /// The images that this incarnation has open.
    pub(super) open_editions: Vec<EditionId>,
    /// Lives in a row that ended before the worker was ready.
    pub(super) failures: u32,
    /// How its last incarnation ended, or why none could begin.
    last_end: String,
    /// How long it may be at what it does now.
    hang_timer: Option<HangTimer>,
    /// It hangs, and is to be killed.
    is_hung: bool,
}

/// How far the engine is in its incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Not every worker was up yet.
    Starting,
    Serving,
    /// Answers what it has, and what still comes over open connections.
    Draining,
    /// Takes nothing more, answers what it has.
    Closing,
    Stopping,
    /// The workers are gone.
    Stopped,
}

/// What has to be done once the lock is released.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Lives of workers that have a batch and sleep.
    pub(super) wakes: Vec<Arc<Incarnation>>,
    pub(super) answers: Vec<(oneshot::Sender<Answer>, Answer)>,
    pub(super) free_rows: Vec<Extent>,
    pub(super) free_results: Vec<Extent>,
    /// What became of candidates.
    pub(super) installed: Vec<(oneshot::Sender<Installed>, Installed)>,
    /// When the timer has to fire, if that changed.
    pub(super) alarm: Option<Nanos>,
    /// Something that `Shared::until` waits for may have changed.
    pub(super) is_changed: bool,
}

mod arrivals;
mod coalesce;
mod dispatches;
mod hangs;

pub(super) use arrivals::ahead_of;
use coalesce::Coalescer;
use dispatches::IdleTime;
use hangs::HangTimer;

#[derive(Debug)]
pub(super) struct State {
    pub(super) scheduler: Scheduler,
    pub(super) phase: Phase,
    pub(super) counters: Counters,
    pub(super) worker_slots: Vec<WorkerSlot>,
    pub(super) catalog: Catalog,
    pub(super) candidate: Option<Candidate>,
    /// A worker may have to be told something, or be welcomed: see [`State::advance_rollout`].
    pub(super) needs_rollout: bool,
    queues: Queues,
    actions: Actions,
    pending: HashMap<u64, Pending>,
    parts: HashMap<u64, RequestPart>,
    next_key: u64,
    batch_rows_max: usize,
    armed: Option<Nanos>,
    segments: Vec<Segment>,
    threads: usize,
    /// Cpus that this process may use.
    cpus: usize,
    free: IdleTime,
    coalescer: Coalescer,
    /// When it was last looked what workers say.
    looked: Nanos,
    /// How long requests wait for the front.
    pub(super) sojourn: SojournTime,
    least: Vec<MinCost>,
}

impl State {
    pub(super) fn new(config: Config, threads: usize) -> Self {
        Self {
            threads,
            cpus: usize::MAX,
            free: IdleTime::default(),
            coalescer: Coalescer::default(),
            looked: Nanos(0),
            sojourn: SojournTime::default(),
            least: Vec::new(),
            phase: Phase::Starting,
            counters: Counters::new(),
            worker_slots: (0..config.workers).map(|_| WorkerSlot::default()).collect(),
            catalog: Catalog::default(),
            candidate: None,
            needs_rollout: false,
            queues: Queues::default(),
            actions: Actions::default(),
            pending: HashMap::new(),
            parts: HashMap::new(),
            next_key: 0,
            batch_rows_max: config.batch_rows_max.max(1),
            armed: None,
            segments: Vec::new(),
            scheduler: Scheduler::new(config),
        }
    }

    /// A model is to be served; its slot.
    pub(super) fn declare(
        &mut self,
        name: &str,
        objective: Option<Objective>,
    ) -> Result<usize, NoSlot> {
        let Declared { slot, is_new } = self.catalog.declare(name)?;
        self.queues
            .grow_to(self.catalog.slots(), &mut self.scheduler);
        if is_new {
            self.least
                .resize_with(self.catalog.slots(), MinCost::default);
            self.least[slot] = MinCost::default();
            self.counters.start_slot(slot, name);
            self.forget_costs(slot);
        }
        self.counters.set_objective(slot, objective);
        self.queues
            .set_objective(slot, objective, &mut self.scheduler);
        Ok(slot)
    }

    /// A snapshot of one model.
    pub(super) fn model_stats(&self, slot: usize) -> Option<ModelStats> {
        let latency = self.queues.learned(slot);
        let counted = self.counters.model(slot)?.clone();
        Some(ModelStats { latency, ..counted })
    }

    /// What was learned of a model is not true of its new edition.
    pub(super) fn forget_costs(&mut self, slot: usize) {
        self.queues.forget(slot, &mut self.scheduler);
        self.coalescer.forget(queues_of(slot));
    }

    /// Another release rule and other bounds for what comes from now on and what waits.
    pub(super) fn set_rules(&mut self, rules: &Rules, now: Nanos, out: &mut Outbox) {
        self.batch_rows_max = rules.batch_rows_max.max(1);
        self.scheduler
            .set_rules(rules.policy, self.batch_rows_max, rules.queue_rows_max);
        self.step(Event::Timer, now, out);
    }

    /// So many cpus may be used from now on.
    pub(super) fn set_cpus(&mut self, cpus: usize) {
        self.cpus = cpus.max(1);
    }

    /// What requests of this model cost at least.
    pub(super) fn least(&mut self, slot: usize) -> Option<&mut MinCost> {
        self.least.get_mut(slot)
    }

    /// Requests that are not answered.
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Workers that take batches.
    pub(super) fn ready_workers(&self) -> usize {
        self.worker_slots
            .iter()
            .filter(|worker_slot| worker_slot.is_ready)
            .count()
    }

    /// The most lives in a row of one worker that ended before it was ready, and the last end.
    pub(super) fn most_failed_start(&self) -> (u32, &str) {
        let worst = self
            .worker_slots
            .iter()
            .max_by_key(|worker_slot| worker_slot.failures);
        worst.map_or((0, ""), |worker_slot| {
            (worker_slot.failures, &worker_slot.last_end)
        })
    }

    /// How the last incarnation of a worker ended.
    pub(super) fn last_end(&self, worker: usize) -> &str {
        self.worker_slots
            .get(worker)
            .map_or("", |worker_slot| &worker_slot.last_end)
    }

    /// Whether no worker is up, nor expected soon: each of them failed to start again and again.
    pub(super) fn is_crash_looping(&self) -> bool {
        self.worker_slots
            .iter()
            .all(|worker_slot| !worker_slot.is_ready && worker_slot.failures > RESPAWNS_AT_ONCE)
    }

    /// A incarnation of a worker began.
    pub(super) fn worker_started(
        &mut self,
        worker: usize,
        incarnation: Arc<Incarnation>,
        now: Nanos,
    ) {
        if let Some(worker_slot) = self.worker_slots.get_mut(worker) {
            worker_slot.start_startup_timer(now);
            worker_slot.is_hung = false;
            worker_slot.incarnation = Some(incarnation);
            worker_slot.sequence = 0;
            worker_slot.open_editions.clear();
        }
    }

    /// A incarnation of a worker could not even begin. How many in a row ended too early.
    pub(super) fn worker_not_started(&mut self, worker: usize, cause: &str) -> u32 {
        let Some(worker_slot) = self.worker_slots.get_mut(worker) else {
            return 0;
        };
        worker_slot.failures = worker_slot.failures.saturating_add(1);
        worker_slot.last_end = cause.to_owned();
        worker_slot.failures
    }

    /// A worker is dead: none of its writes can follow. How many lives in a row ended too early.
    pub(super) fn worker_ended(
        &mut self,
        worker: usize,
        exit: Exit,
        now: Nanos,
        out: &mut Outbox,
    ) -> u32 {
        // A batch that it finished before it died is done.
        self.collect(worker, now, out);
        let Some(worker_slot) = self.worker_slots.get_mut(worker) else {
            return 0;
        };
        out.is_changed = true;
        worker_slot.failures = if worker_slot.is_ready {
            0
        } else {
            worker_slot.failures.saturating_add(1)
        };
        worker_slot.last_end = match worker_slot.is_hung {
            true => format!("it hung and was ended by {exit}"),
            false => exit.to_string(),
        };
        let has_begun = worker_slot
            .incarnation
            .take()
            .is_some_and(|incarnation| incarnation.ring.is_begun(worker_slot.sequence));
        let blame = match exit {
            _ if !has_begun => 0,
            _ if worker_slot.is_hung => HANG_BLAME,
            Exit::Signal(SIGKILL) => KILL_BLAME,
            Exit::Signal(_) | Exit::Code(_) => CRASH_BLAME,
        };
        worker_slot.is_ready = false;
        worker_slot.is_held = false;
        let command = worker_slot.command.take();
        self.needs_rollout = true;
        let failures = worker_slot.failures;
        let had_batch = worker_slot.batch.take().is_some();
        let members = std::mem::take(&mut worker_slot.members);
        for &key in members.iter().filter(|_| had_batch) {
            let Some(part) = self.parts.get_mut(&key) else {
                continue;
            };
            part.is_running = false;
            if self
                .pending
                .get(&part.request)
                .is_none_or(|pending| !pending.is_wanted)
            {
                self.end_part(key, None, now, out);
            }
        }
        if let Some(worker_slot) = self.worker_slots.get_mut(worker) {
            worker_slot.members = members;
        }
        if let Some(command) = command {
            self.count_candidate_exit(&command, exit, out);
        }
        self.step(
            Event::WorkerLost {
                worker: WorkerIndex(worker),
                blame,
            },
            now,
            out,
        );
        failures
    }

    /// Looks at what every worker says.
    pub(super) fn collect_all(&mut self, now: Nanos, out: &mut Outbox) {
        self.looked = now;
        for worker in 0..self.worker_slots.len() {
            self.collect(worker, now, out);
        }
    }

    /// Takes in batches that are done and a timer that is over, without being told of them, if
    /// nobody has looked for a while: sooner it would only make batches smaller.
    pub(super) fn poll_completions(&mut self, now: Nanos, out: &mut Outbox) {
        if now.saturating_sub(self.looked).0 < COMPLETION_POLL_PERIOD.as_nanos() as u64 {
            return;
        }
        self.looked = now;
        for worker in 0..self.worker_slots.len() {
            let is_done = self.worker_slots.get(worker).is_some_and(|worker_slot| {
                let ring = worker_slot
                    .incarnation
                    .as_ref()
                    .map(|incarnation| &incarnation.ring);
                worker_slot.batch.is_some()
                    && ring.is_some_and(|ring| ring.is_finished(worker_slot.sequence))
            });
            if is_done {
                self.collect(worker, now, out);
            }
        }
        if self.armed.is_some_and(|due| due <= now) {
            self.timer(now, out);
        }
    }

    pub(super) fn timer(&mut self, now: Nanos, out: &mut Outbox) {
        self.armed = None;
        self.step(Event::Timer, now, out);
    }

    /// Every request that is left fails.
    pub(super) fn fail_all(&mut self, now: Nanos, out: &mut Outbox) {
        let keys: Vec<u64> = self.parts.keys().copied().collect();
        for key in keys {
            self.end_part(key, Some(Failure::Stopped), now, out);
        }
    }

    fn collect(&mut self, worker: usize, now: Nanos, out: &mut Outbox) {
        let Some(worker_slot) = self.worker_slots.get_mut(worker) else {
            return;
        };
        let Some(incarnation) = worker_slot.incarnation.clone() else {
            return;
        };
        let ring = &incarnation.ring;
        // A new incarnation may be up, a held one idle: both are greeted.
        self.needs_rollout |= !worker_slot.is_ready || worker_slot.is_held;
        if worker_slot.command.is_some() {
            return self.collect_command(worker, out);
        }
        let is_finished = worker_slot.batch.is_some() && ring.is_finished(worker_slot.sequence);
        if let Some(batch) = worker_slot.batch.take_if(|_| is_finished) {
            let members = std::mem::take(&mut worker_slot.members);
            // A worker that says nonsense about time is not believed.
            let elapsed = now.saturating_sub(batch.dispatched).0;
            let compute_nanos = ring.compute_nanos().min(elapsed);
            let slot = slot_of(batch.queue);
            self.counters
                .batch_done((worker, slot), batch.rows, (elapsed, compute_nanos));
            self.coalescer.note(batch.queue, batch.rows, compute_nanos);
            self.counters.shared(slot, batch.kind, ring.sharing());
            if batch.is_first && batch.is_current {
                let took = Nanos(elapsed);
                self.queues
                    .observe(batch.queue, batch.rows, took, &mut self.scheduler);
            }
            for (index, &key) in members.iter().enumerate() {
                let failure = match ring.state(index) {
                    SegmentState::Done => None,
                    SegmentState::Failed => Some(Failure::Compute {
                        reason: ring.reason(),
                    }),
                    SegmentState::Pending => {
                        let reason = "it was left out of its batch".to_owned();
                        Some(Failure::Compute { reason })
                    }
                };
                self.computed(key, compute_nanos);
                self.end_part(key, failure, now, out);
            }
            if let Some(worker_slot) = self.worker_slots.get_mut(worker) {
                worker_slot.members = members;
            }
            self.step(
                Event::BatchDone {
                    worker: WorkerIndex(worker),
                },
                now,
                out,
            );
        }
    }

    fn computed(&mut self, key: u64, nanos: u64) {
        let request = self.parts.get(&key).map(|part| part.request);
        if let Some(pending) = request.and_then(|request| self.pending.get_mut(&request)) {
            pending.compute_nanos = pending.compute_nanos.max(nanos);
        }
    }

    /// A part is done, failed or given up; with the last one its request is.
    fn end_part(&mut self, key: u64, failure: Option<Failure>, now: Nanos, out: &mut Outbox) {
        let Some(part) = self.parts.remove(&key) else {
            return;
        };
        let Some(pending) = self.pending.get_mut(&part.request) else {
            return;
        };
        pending.parts -= 1;
        if pending.failure.is_none() {
            pending.failure = failure;
        }
        if pending.parts > 0 {
            return;
        }
        let Some(pending) = self.pending.remove(&part.request) else {
            return;
        };
        out.is_changed |= self.pending.is_empty();
        self.unpin(pending.edition);
        out.free_rows.push(pending.input);
        if !pending.is_wanted {
            out.free_results.push(pending.results);
            return;
        }
        let dispatched = pending.first_dispatch.unwrap_or(now);
        let timing = super::Timing::new(
            dispatched.saturating_sub(pending.submitted).0,
            pending.deferred.0,
            pending.compute_nanos,
        );
        let total = now.saturating_sub(pending.submitted).0;
        let answer = match pending.failure {
            Some(failure) => {
                self.counters.failed(pending.model, now);
                out.free_results.push(pending.results);
                Err(failure)
            }
            None => {
                let is_late = pending.within.is_some_and(|within| total > within.0);
                let kind = pending.kinds.costliest().unwrap_or(Kind::Value);
                self.counters
                    .answered(pending.model, (kind, timing), (total, is_late), now);
                Ok((pending.results, timing, now))
            }
        };
        out.answers.push((pending.reply, answer));
    }

    pub(super) fn step(&mut self, event: Event, now: Nanos, out: &mut Outbox) {
        let mut actions = std::mem::take(&mut self.actions);
        self.scheduler.step(event, now, &mut actions);
        self.coalescer.reset();
        for abandoned in &actions.abandoned {
            let worker_slot = match event {
                Event::WorkerLost { worker, .. } => self.worker_slots.get(worker.0),
                _ => None,
            };
            let cause = worker_slot
                .map(|worker_slot| worker_slot.last_end.clone())
                .unwrap_or_default();
            let failure = Failure::Poisonous {
                crashes: abandoned.losses,
                cause,
            };
            self.end_part(abandoned.key.0, Some(failure), now, out);
        }
        for dispatch in &actions.dispatches {
            self.dispatch(dispatch, actions.members(dispatch), (event, now), out);
        }
        if let Some(timer) = actions.timer.filter(|&timer| self.armed != Some(timer)) {
            self.armed = Some(timer);
            out.alarm = Some(timer);
        }
        self.actions = actions;
        let idle = self.scheduler.idle_workers();
        self.counters.window.idle(idle, now);
        self.free.set(idle > 0, now);
    }

    /// A request that named this edition is over.
    pub(super) fn unpin(&mut self, edition: EditionId) {
        self.needs_rollout |= self.catalog.unpin(edition);
    }
}
