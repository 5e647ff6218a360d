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
use super::least::Least;
use super::queues::{Queues, queues_of, slot_of};
use super::standing::Standing;
use super::tend::{Candidate, Installed};
use super::{Failure, Kind, KindSet, ModelStats, Objective, Priority, Rules};
use crate::limits::{CATCH_UP_PERIOD, CRASH_BLAME, HANG_BLAME, KILL_BLAME, RESPAWNS_AT_ONCE};
use crate::orders::{EditionId, Orders};
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
struct Part {
    request: u64,
    first_row: usize,
    rows: usize,
    is_running: bool,
}

/// What one life of a worker is talked to by.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) ring: Ring,
    /// Where it finds orders.
    pub(super) channel: Channel,
}

/// A batch as it was dispatched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
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
pub(super) struct Seat {
    /// The present life; `None` between two.
    pub(super) life: Option<Arc<Life>>,
    /// It serves, or did in this life before it was held.
    pub(super) is_ready: bool,
    /// It takes no batch until it has followed its orders.
    pub(super) is_held: bool,
    pub(super) sequence: u32,
    pub(super) batch: Option<Running>,
    /// Keys of the batch, in the order of its segments.
    members: Vec<u64>,
    /// What it was told and has not said to be done.
    pub(super) orders: Option<Orders>,
    /// The images that this life has open.
    pub(super) has: Vec<EditionId>,
    /// Lives in a row that ended before the worker was ready.
    pub(super) failures: u32,
    /// How its last life ended, or why none could begin.
    last_end: String,
    /// How long it may be at what it does now.
    patience: Option<Patience>,
    /// It hangs, and is to be killed.
    is_hung: bool,
}

/// How far the engine is in its life.
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
    pub(super) wakes: Vec<Arc<Life>>,
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
mod dispatches;
mod gathering;
mod hangs;

pub(super) use arrivals::ahead_of;
use dispatches::FreeTime;
use gathering::Gathering;
use hangs::Patience;

#[derive(Debug)]
pub(super) struct State {
    pub(super) scheduler: Scheduler,
    pub(super) phase: Phase,
    pub(super) counters: Counters,
    pub(super) seats: Vec<Seat>,
    pub(super) catalog: Catalog,
    pub(super) candidate: Option<Candidate>,
    /// A worker may have to be told something, or be welcomed: see [`State::tend`].
    pub(super) is_untended: bool,
    queues: Queues,
    actions: Actions,
    pending: HashMap<u64, Pending>,
    parts: HashMap<u64, Part>,
    next_key: u64,
    batch_rows_max: usize,
    armed: Option<Nanos>,
    segments: Vec<Segment>,
    threads: usize,
    /// Cpus that this process may use.
    cpus: usize,
    free: FreeTime,
    gathering: Gathering,
    /// When it was last looked what workers say.
    looked: Nanos,
    /// How long requests wait for the front.
    pub(super) standing: Standing,
    least: Vec<Least>,
}

impl State {
    pub(super) fn new(config: Config, threads: usize) -> Self {
        Self {
            threads,
            cpus: usize::MAX,
            free: FreeTime::default(),
            gathering: Gathering::default(),
            looked: Nanos(0),
            standing: Standing::default(),
            least: Vec::new(),
            phase: Phase::Starting,
            counters: Counters::new(),
            seats: (0..config.workers).map(|_| Seat::default()).collect(),
            catalog: Catalog::default(),
            candidate: None,
            is_untended: false,
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
            self.least.resize_with(self.catalog.slots(), Least::default);
            self.least[slot] = Least::default();
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
        self.gathering.forget(queues_of(slot));
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
    pub(super) fn least(&mut self, slot: usize) -> Option<&mut Least> {
        self.least.get_mut(slot)
    }

    /// Requests that are not answered.
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Workers that take batches.
    pub(super) fn ready_workers(&self) -> usize {
        self.seats.iter().filter(|seat| seat.is_ready).count()
    }

    /// The most lives in a row of one worker that ended before it was ready, and the last end.
    pub(super) fn worst_start(&self) -> (u32, &str) {
        let worst = self.seats.iter().max_by_key(|seat| seat.failures);
        worst.map_or((0, ""), |seat| (seat.failures, &seat.last_end))
    }

    /// How the last life of a worker ended.
    pub(super) fn last_end(&self, worker: usize) -> &str {
        self.seats.get(worker).map_or("", |seat| &seat.last_end)
    }

    /// Whether no worker is up, nor expected soon: each of them failed to start again and again.
    pub(super) fn is_hopeless(&self) -> bool {
        self.seats
            .iter()
            .all(|seat| !seat.is_ready && seat.failures > RESPAWNS_AT_ONCE)
    }

    /// A life of a worker began.
    pub(super) fn worker_started(&mut self, worker: usize, life: Arc<Life>, now: Nanos) {
        if let Some(seat) = self.seats.get_mut(worker) {
            seat.expect_up(now);
            seat.is_hung = false;
            seat.life = Some(life);
            seat.sequence = 0;
            seat.has.clear();
        }
    }

    /// A life of a worker could not even begin. How many in a row ended too early.
    pub(super) fn worker_not_started(&mut self, worker: usize, cause: &str) -> u32 {
        let Some(seat) = self.seats.get_mut(worker) else {
            return 0;
        };
        seat.failures = seat.failures.saturating_add(1);
        seat.last_end = cause.to_owned();
        seat.failures
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
        let Some(seat) = self.seats.get_mut(worker) else {
            return 0;
        };
        out.is_changed = true;
        seat.failures = if seat.is_ready {
            0
        } else {
            seat.failures.saturating_add(1)
        };
        seat.last_end = match seat.is_hung {
            true => format!("it hung and was ended by {exit}"),
            false => exit.to_string(),
        };
        let has_begun = seat
            .life
            .take()
            .is_some_and(|life| life.ring.is_begun(seat.sequence));
        let blame = match exit {
            _ if !has_begun => 0,
            _ if seat.is_hung => HANG_BLAME,
            Exit::Signal(SIGKILL) => KILL_BLAME,
            Exit::Signal(_) | Exit::Code(_) => CRASH_BLAME,
        };
        seat.is_ready = false;
        seat.is_held = false;
        let orders = seat.orders.take();
        self.is_untended = true;
        let failures = seat.failures;
        let had_batch = seat.batch.take().is_some();
        let members = std::mem::take(&mut seat.members);
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
        if let Some(seat) = self.seats.get_mut(worker) {
            seat.members = members;
        }
        if let Some(orders) = orders {
            self.blame_candidate(&orders, exit, out);
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
        for worker in 0..self.seats.len() {
            self.collect(worker, now, out);
        }
    }

    /// Takes in batches that are done and a timer that is over, without being told of them, if
    /// nobody has looked for a while: sooner it would only make batches smaller.
    pub(super) fn catch_up(&mut self, now: Nanos, out: &mut Outbox) {
        if now.saturating_sub(self.looked).0 < CATCH_UP_PERIOD.as_nanos() as u64 {
            return;
        }
        self.looked = now;
        for worker in 0..self.seats.len() {
            let is_done = self.seats.get(worker).is_some_and(|seat| {
                let ring = seat.life.as_ref().map(|life| &life.ring);
                seat.batch.is_some() && ring.is_some_and(|ring| ring.is_finished(seat.sequence))
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
        let Some(seat) = self.seats.get_mut(worker) else {
            return;
        };
        let Some(life) = seat.life.clone() else {
            return;
        };
        let ring = &life.ring;
        // A new life may be up, a held one idle: both are greeted.
        self.is_untended |= !seat.is_ready || seat.is_held;
        if seat.orders.is_some() {
            return self.collect_orders(worker, out);
        }
        let is_finished = seat.batch.is_some() && ring.is_finished(seat.sequence);
        if let Some(batch) = seat.batch.take_if(|_| is_finished) {
            let members = std::mem::take(&mut seat.members);
            // A worker that says nonsense about time is not believed.
            let elapsed = now.saturating_sub(batch.dispatched).0;
            let compute_nanos = ring.compute_nanos().min(elapsed);
            let slot = slot_of(batch.queue);
            self.counters
                .batch_done((worker, slot), batch.rows, (elapsed, compute_nanos));
            self.gathering.note(batch.queue, batch.rows, compute_nanos);
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
            if let Some(seat) = self.seats.get_mut(worker) {
                seat.members = members;
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
        self.gathering.decided();
        for abandoned in &actions.abandoned {
            let seat = match event {
                Event::WorkerLost { worker, .. } => self.seats.get(worker.0),
                _ => None,
            };
            let cause = seat.map(|seat| seat.last_end.clone()).unwrap_or_default();
            let failure = Failure::Poisonous {
                deaths: abandoned.losses,
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
        self.is_untended |= self.catalog.unpin(edition);
    }
}
