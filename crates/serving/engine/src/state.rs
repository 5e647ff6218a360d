//! The state of the engine (requests, workers, counters) and its transitions.
//!
//! All of it is behind one mutex of the front. Every method takes the time, and puts actions that
//! must be done without the lock (replies to send, workers to wake, a timer to set) into an
//! [`Outbox`].

use std::sync::Arc;

use albacore_batching::{
    Actions, BatchingParams, Config, DEFAULT_WEIGHT, Event, ModelBatching, Nanos, QueueIndex,
    Scheduler, Slo,
};
use albacore_worker::Segment;
use tokio::sync::oneshot;

use super::candidate::{Installed, Rollout};
use super::catalog::{Catalog, Declared, ModelSlotsExhausted};
use super::counters::Counters;
use super::queues::{QueueCosts, first_queue, kind_of, queue_of, queues_of, slot_of};
use super::{EngineEvent, Kind, KindSet, ModelStats, RequestFailure};
use crate::admission::Admission;
use crate::front_cost::{FrontCostMeter, FrontCpu};
use crate::inbox::Inboxes;
use crate::tallies::Tallies;

mod arrivals;
mod coalesce;
mod dispatches;
mod error_rate;
mod front_shares;
mod hangs;
mod requests;
mod worker_memory;
mod workers;

pub(super) use requests::{Answer, NewRequest, Pending, PendingBox};
pub(super) use worker_memory::CopyTask;
pub(super) use workers::{Incarnation, WorkerSlot};

use coalesce::Coalescer;
use dispatches::IdleTime;
use front_shares::FrontShares;
use requests::{PartEnd, RequestTable};
use worker_memory::{NodeImages, WorkerMemory};
use workers::WorkerPool;

/// Phases of an engine, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EnginePhase {
    /// Not every worker has been up yet.
    Starting,
    Serving,
    /// Accepts and answers requests of open connections, but is not ready.
    Draining,
    /// Accepts no requests, answers pending ones.
    Closing,
    Stopping,
    /// The workers have exited.
    Stopped,
}

/// Actions to carry out after the lock is released.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Sleeping incarnations that have a batch.
    pub(super) wakes: Vec<Arc<Incarnation>>,
    /// Incarnations to attach to this front, with the sequence number of the command.
    pub(super) attaches: Vec<(Arc<Incarnation>, u32)>,
    /// Completed requests.
    pub(super) ended: Vec<PendingBox>,
    /// New choices of policy `auto`.
    pub(super) chosen: Vec<EngineEvent>,
    /// Results of candidates.
    pub(super) installed: Vec<(oneshot::Sender<Installed>, Installed)>,
    /// Expiry of the timer, if it changed.
    pub(super) alarm: Option<Nanos>,
    /// A condition of `SharedState::wait_until` may have changed.
    pub(super) is_changed: bool,
}

/// Turns decisions of the scheduler into batches.
#[derive(Debug)]
struct Dispatcher {
    /// Expiry of the batch timer.
    timer: Option<Nanos>,
    /// Kept between steps, so that the steady state does not allocate.
    actions: Actions,
    segments: Vec<Segment>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) phase: EnginePhase,
    /// The models by name.
    pub(super) catalog: Catalog,
    pub(super) rollout: Rollout,
    pub(super) workers: WorkerPool,
    pub(super) node_images: NodeImages,
    pub(super) scheduler: Scheduler,
    /// Learned costs of the batches of each queue.
    queue_costs: QueueCosts,
    requests: RequestTable,
    dispatcher: Dispatcher,
    coalescer: Coalescer,
    /// Receives the idle workers and row times that decide how long a request waits in its inbox.
    inboxes: Arc<Inboxes>,
    /// Receives the values that admission reads.
    admission: Arc<Admission>,
    front_shares: FrontShares,
    idle_time: IdleTime,
    /// Most threads of a batch, by slot; `None`: all threads of a worker.
    batch_threads: Vec<Option<usize>>,
    pub(super) front_cost: FrontCostMeter,
    pub(super) counters: Counters,
    /// Counts of the event loops that are not in `counters` yet.
    tallies: Arc<Tallies>,
}

impl State {
    /// Creates the state of the front with this number, `threads` threads per worker, and `loops`
    /// event loops.
    pub(super) fn new(config: Config, threads: usize, loops: usize, front: u64) -> Self {
        Self {
            phase: EnginePhase::Starting,
            catalog: Catalog::of_front(front),
            rollout: Rollout::default(),
            workers: WorkerPool::new(config.workers, threads),
            node_images: NodeImages::default(),
            queue_costs: QueueCosts::default(),
            requests: RequestTable::default(),
            dispatcher: Dispatcher {
                timer: None,
                actions: Actions::default(),
                segments: Vec::new(),
            },
            coalescer: Coalescer::default(),
            inboxes: Arc::new(Inboxes::new(loops)),
            admission: Arc::new(Admission::new(loops)),
            front_shares: FrontShares::default(),
            idle_time: IdleTime::default(),
            batch_threads: Vec::new(),
            front_cost: FrontCostMeter::new(loops),
            counters: Counters::new(),
            tallies: Arc::new(Tallies::new(loops)),
            scheduler: Scheduler::new(config),
        }
    }

    pub(super) fn inboxes(&self) -> Arc<Inboxes> {
        Arc::clone(&self.inboxes)
    }

    pub(super) fn admission(&self) -> Arc<Admission> {
        Arc::clone(&self.admission)
    }

    pub(super) fn tallies(&self) -> Arc<Tallies> {
        Arc::clone(&self.tallies)
    }

    /// Adds the counts of the event loops to the counters.
    pub(super) fn take_tallies(&mut self) {
        self.tallies.drain_into(&mut self.counters);
    }

    /// Enters a later phase.
    pub(super) fn enter(&mut self, phase: EnginePhase) {
        self.phase = self.phase.max(phase);
        if self.phase >= EnginePhase::Closing {
            self.admission.close();
        }
    }

    /// Declares a model; returns its slot.
    pub(super) fn declare(
        &mut self,
        name: &str,
        objective: Option<Slo>,
    ) -> Result<usize, ModelSlotsExhausted> {
        let Declared { slot, is_new } = self.catalog.declare(name)?;
        let slots = self.catalog.slots();
        self.queue_costs
            .grow_to(slots, &mut self.scheduler, &self.admission);
        if self.batch_threads.len() < slots {
            self.batch_threads.resize(slots, None);
        }
        if is_new {
            self.batch_threads[slot] = None;
            self.admission.start_slot(slot);
            queues_of(slot).for_each(|queue| self.scheduler.set_own_batching(queue, None));
            self.front_shares.start_slot(slot);
            queues_of(slot).for_each(|queue| self.scheduler.reset_arrivals(queue));
            self.set_slot_weight(slot, DEFAULT_WEIGHT);
            self.take_tallies();
            self.counters.start_slot(slot, name);
            self.reset_costs(slot);
        }
        self.counters.set_objective(slot, objective);
        self.queue_costs
            .set_objective(slot, objective, &mut self.scheduler);
        Ok(slot)
    }

    /// Sets how many threads may compute one batch of a model. The costs of its batches are learned
    /// again if this changes.
    pub(super) fn set_batch_threads(&mut self, name: &str, threads: Option<usize>) {
        let Some(slot) = self.catalog.slot_of(name) else {
            return;
        };
        if std::mem::replace(&mut self.batch_threads[slot], threads) != threads {
            self.reset_costs(slot);
        }
    }

    /// Sets a model's relative share of the workers' and the front's time.
    pub(super) fn set_weight(&mut self, name: &str, weight: u32) {
        if let Some(slot) = self.catalog.slot_of(name) {
            self.set_slot_weight(slot, weight);
        }
    }

    fn set_slot_weight(&mut self, slot: usize, weight: u32) {
        // Its queues are siblings: the weight of one applies to all.
        self.scheduler.set_weight(first_queue(slot), weight);
        self.front_shares.set_weight(slot, weight);
    }

    /// A snapshot of one model.
    pub(super) fn model_stats(&self, slot: usize) -> Option<ModelStats> {
        let latency = self.queue_costs.learned(slot);
        let counted = self.counters.model(slot)?.clone();
        let chosen = |(kind, _): &(Kind, _)| {
            let queue = queue_of(slot, KindSet::only(*kind));
            Some((*kind, self.scheduler.choice(queue)?))
        };
        Some(ModelStats {
            choices: latency.iter().filter_map(chosen).collect(),
            latency,
            threads: self.batch_threads.get(slot).copied().flatten(),
            batching: self.scheduler.batching(queue_of(slot, KindSet::EMPTY)),
            ..counted
        })
    }

    /// Measures the front end once per second; `cpu` reads its cpu times.
    pub(super) fn measure_front(&mut self, now: Nanos, cpu: impl FnOnce() -> Option<FrontCpu>) {
        if !self.front_cost.is_due(now) {
            return;
        }
        if let Some(cpu) = cpu() {
            let work = self.front_shares.take_recorded();
            self.front_cost.measure(cpu, work, now);
            self.scheduler.set_front_cost(self.front_cost.cost());
        }
    }

    /// Reports the choices that policy `auto` made since the last step.
    fn report_choices(&mut self, out: &mut Outbox) {
        while let Some(queue) = self.scheduler.next_changed_choice() {
            let slot = slot_of(queue);
            let mut declared = self.catalog.declared();
            let model = declared.find(|(at, _)| *at == slot);
            if let Some(((_, model), choice)) = model.zip(self.scheduler.choice(queue)) {
                out.chosen.push(EngineEvent::BatchingChosen {
                    model: model.to_owned(),
                    kind: kind_of(queue),
                    choice,
                });
            }
        }
    }

    /// Discards the costs of a model's batches: a new revision may have other costs.
    pub(super) fn reset_costs(&mut self, slot: usize) {
        self.queue_costs.reset(slot, &mut self.scheduler);
        self.inboxes.reset(queues_of(slot));
    }

    /// Applies to new and to waiting requests. `models` are the models with their own batching,
    /// which overrides that of `params`.
    pub(super) fn set_batching(
        &mut self,
        params: &BatchingParams,
        models: &[(&str, Option<ModelBatching>)],
        now: Nanos,
        out: &mut Outbox,
    ) {
        for &(name, own) in models {
            if let Some(slot) = self.catalog.slot_of(name) {
                queues_of(slot).for_each(|queue| self.scheduler.set_own_batching(queue, own));
            }
        }
        self.scheduler.set_params(*params);
        self.step(Event::Timer, now, out);
    }

    /// Most rows of a batch of this queue.
    fn batch_rows_max(&self, queue: QueueIndex) -> usize {
        self.scheduler.batching(queue).batch_rows_max.max(1)
    }

    /// Handles the expiry of the batch timer.
    pub(super) fn timer(&mut self, now: Nanos, out: &mut Outbox) {
        self.dispatcher.timer = None;
        self.step(Event::Timer, now, out);
    }

    /// Passes an event to the scheduler and carries out its decisions.
    pub(super) fn step(&mut self, event: Event, now: Nanos, out: &mut Outbox) {
        let mut actions = std::mem::take(&mut self.dispatcher.actions);
        self.scheduler.step(event, now, &mut actions);
        self.report_choices(out);
        self.coalescer.reset();
        for abandoned in &actions.abandoned {
            let cause = match event {
                Event::WorkerLost { worker, .. } => self.workers.last_exit(worker.position()),
                _ => "",
            };
            let failure = RequestFailure::Poisonous {
                crashes: abandoned.losses,
                cause: cause.to_owned(),
            };
            self.end_part(abandoned.key.0, PartEnd::Failed(failure), out);
        }
        for dispatch in &actions.dispatches {
            self.dispatch(dispatch, actions.requests(dispatch), event, now, out);
        }
        let timer = actions.timer;
        if let Some(timer) = timer.filter(|_| self.dispatcher.timer != timer) {
            self.dispatcher.timer = Some(timer);
            out.alarm = Some(timer);
        }
        self.dispatcher.actions = actions;
        let idle = self.scheduler.idle_workers();
        self.inboxes.set_idle_workers(idle);
        self.counters.idle.idle(idle, now);
        self.idle_time.set(idle > 0, now);
    }

    /// Drops retired revisions after their last request was answered: workers may close them.
    pub(super) fn drop_unneeded_revisions(&mut self) {
        self.rollout.is_pending |= self.catalog.drop_unneeded();
    }
}
