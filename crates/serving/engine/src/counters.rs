//! What [`super::state::State`] counts, behind its lock.

use albacore_batching::Nanos;

use super::queues::percentile_of;
use super::window::{Load, OutcomeWindow, Outcomes, ServerWindow};
use super::{DispatchReason, Kind, ModelStats, Objective, Sharing, WorkerStats};

/// What is counted of one model.
#[derive(Debug)]
struct SlotCounters {
    stats: ModelStats,
    objective: Option<Objective>,
    window: OutcomeWindow,
}

/// What [`super::state::State`] counts.
#[derive(Debug)]
pub(super) struct Counters {
    slots: Vec<SlotCounters>,
    pub(super) window: ServerWindow,
    /// By worker, as far as they were counted.
    pub(super) workers: Vec<WorkerStats>,
    pub(super) worker_restarts_total: u64,
    /// How the last of those ended.
    pub(super) worker_last_end: Option<String>,
    pub(super) worker_hangs_total: u64,
    pub(super) replayed_batches_total: u64,
    /// Moving average of the time that a row takes on one worker, dispatch to done.
    nanos_per_row: u64,
}

impl Counters {
    /// All zero, of no model.
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            window: ServerWindow::new(),
            workers: Vec::new(),
            worker_restarts_total: 0,
            worker_last_end: None,
            worker_hangs_total: 0,
            replayed_batches_total: 0,
            nanos_per_row: 0,
        }
    }

    /// Counts from zero for a model in this slot.
    pub(super) fn start_slot(&mut self, slot: usize, name: &str) {
        let counters = SlotCounters {
            stats: ModelStats::new(name.to_owned()),
            objective: None,
            window: OutcomeWindow::new(),
        };
        match self.slots.get_mut(slot) {
            Some(old) => *old = counters,
            None => self.slots.push(counters),
        }
    }

    /// Another objective for the requests that are answered from now on.
    pub(super) fn set_objective(&mut self, slot: usize, objective: Option<Objective>) {
        if let Some(counters) = self.slots.get_mut(slot) {
            counters.objective = objective;
        }
    }

    /// What was counted of one model.
    pub(super) fn model(&self, slot: usize) -> Option<&ModelStats> {
        self.slots.get(slot).map(|counters| &counters.stats)
    }

    /// How loaded the last minute was.
    pub(super) fn load(&mut self, workers: usize, now: Nanos) -> Load {
        let models = self.slots.iter().map(|slot| {
            let percentile = percentile_of(slot.objective);
            (slot.window.sum(now), 1.0 - percentile / 100.0)
        });
        let mut load = self.window.load(workers, models, now);
        let newest = self.slots.iter().map(|slot| slot.window.newest(now));
        newest.for_each(|outcomes| load.newest.add(&outcomes));
        load
    }

    /// Counts in one model; an index that is none counts nowhere.
    fn count(&mut self, slot: usize, count: impl FnOnce(&mut ModelStats)) {
        if let Some(counters) = self.slots.get_mut(slot) {
            count(&mut counters.stats);
        }
    }

    fn outcome(&mut self, slot: usize, now: Nanos, count: impl FnOnce(&mut Outcomes)) {
        if let Some(counters) = self.slots.get_mut(slot) {
            count(counters.window.now(now));
        }
    }

    pub(super) fn submitted(&mut self, model: usize, rows: usize) {
        self.count(model, |stats| {
            stats.requests_total += 1;
            stats.rows_total += rows as u64;
        });
    }

    pub(super) fn shed(&mut self, model: usize, now: Nanos) {
        self.count(model, |stats| stats.shed_total += 1);
        self.outcome(model, now, |outcomes| outcomes.shed += 1);
    }

    /// The client went away; if that was at its own deadline, it was not answered in time.
    pub(super) fn abandoned(&mut self, model: usize, is_late: bool, now: Nanos) {
        self.count(model, |stats| {
            stats.abandoned_total += 1;
            stats.late_total += u64::from(is_late);
        });
        if is_late {
            self.outcome(model, now, |outcomes| outcomes.late += 1);
        }
    }

    pub(super) fn failed(&mut self, model: usize, now: Nanos) {
        self.count(model, |stats| stats.failed_total += 1);
        self.outcome(model, now, |outcomes| outcomes.failed += 1);
    }

    pub(super) fn answered(
        &mut self,
        model: usize,
        (kind, timing): (Kind, super::Timing),
        (total_nanos, is_after_its_own): (u64, bool),
        now: Nanos,
    ) {
        let objective = self.slots.get(model).and_then(|slot| slot.objective);
        let is_after = objective.is_some_and(|slo| total_nanos > nanos(slo.latency_of(kind)));
        let is_late = is_after || is_after_its_own;
        self.count(model, |stats| {
            stats.answered_total += 1;
            stats.late_total += u64::from(is_late);
            let of = stats.of(kind);
            of.queue_nanos.record(nanos(timing.queue));
            of.defer_nanos.record(nanos(timing.deferred));
            of.compute_nanos.record(nanos(timing.compute));
            of.total_nanos.record(total_nanos);
        });
        self.outcome(model, now, |outcomes| match is_late {
            true => outcomes.late += 1,
            false => outcomes.good += 1,
        });
        self.window.answered(total_nanos, now);
    }

    pub(super) fn dispatched(
        &mut self,
        model: usize,
        kind: Kind,
        rows: usize,
        left: DispatchReason,
    ) {
        self.replayed_batches_total += u64::from(left == DispatchReason::Replay);
        self.count(model, |stats| {
            stats.batches_total += 1;
            let of = stats.of(kind);
            of.batch_rows.record(rows as u64);
            of.left[left as usize] += 1;
        });
    }

    /// How the threads of a worker shared a batch that is done.
    pub(super) fn shared(&mut self, model: usize, kind: Kind, sharing: Sharing) {
        self.count(model, |stats| stats.of(kind).shared[sharing as usize] += 1);
    }

    /// The counters of a worker.
    fn worker(&mut self, worker: usize) -> &mut WorkerStats {
        if self.workers.len() <= worker {
            self.workers.resize(worker + 1, WorkerStats::default());
        }
        &mut self.workers[worker]
    }

    /// A worker died and is started again.
    pub(super) fn restarted(&mut self, worker: usize) {
        self.worker_restarts_total += 1;
        self.worker(worker).restarts_total += 1;
    }

    /// A batch of `rows` rows is done.
    pub(super) fn batch_done(
        &mut self,
        (worker, model): (usize, usize),
        rows: usize,
        (elapsed_nanos, compute_nanos): (u64, u64),
    ) {
        let of = self.worker(worker);
        of.batches_total += 1;
        of.busy_nanos_total += elapsed_nanos;
        self.count(model, |stats| stats.batch_done(rows, compute_nanos));
        let sample = elapsed_nanos / (rows as u64).max(1);
        let average = self.nanos_per_row;
        self.nanos_per_row = if average == 0 {
            sample
        } else {
            (average * 7 + sample) / 8
        };
    }

    /// How long `rows` rows take on `workers` workers, by what was seen so far.
    pub(super) fn nanos_for(&self, rows: usize, workers: usize) -> u64 {
        self.nanos_per_row.saturating_mul(rows as u64) / (workers as u64).max(1)
    }
}

fn nanos(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
