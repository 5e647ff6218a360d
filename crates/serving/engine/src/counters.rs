//! Counters of the state for metrics, status and scaling.

use albacore_batching::{Nanos, Slo};

use super::model_window::{KindLoad, ModelWindow};
use super::tallies::KindTally;
use super::window::{IdleWindow, Outcomes, ServerLoad};
use super::{DispatchReason, Kind, ModelStats, WorkDivision, WorkerStats};

/// Counters of one model.
#[derive(Debug)]
struct SlotCounters {
    stats: ModelStats,
    objective: Option<Slo>,
    window: ModelWindow,
}

#[derive(Debug)]
pub(super) struct Counters {
    slots: Vec<SlotCounters>,
    pub(super) idle: IdleWindow,
    /// By worker index; workers without any activity may be missing.
    pub(super) workers: Vec<WorkerStats>,
    pub(super) worker_restarts_total: u64,
    /// Exit status of the last restarted worker.
    pub(super) worker_last_exit: Option<String>,
    pub(super) worker_hangs_total: u64,
    pub(super) replayed_batches_total: u64,
    /// Moving average of the time per row on one worker, from dispatch to completion.
    nanos_per_row: u64,
}

impl Counters {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            idle: IdleWindow::new(),
            workers: Vec::new(),
            worker_restarts_total: 0,
            worker_last_exit: None,
            worker_hangs_total: 0,
            replayed_batches_total: 0,
            nanos_per_row: 0,
        }
    }

    /// Resets a slot's counters for a new model.
    pub(super) fn start_slot(&mut self, slot: usize, name: &str) {
        let counters = SlotCounters {
            stats: ModelStats {
                name: name.to_owned(),
                ..ModelStats::default()
            },
            objective: None,
            window: ModelWindow::default(),
        };
        match self.slots.get_mut(slot) {
            Some(old) => *old = counters,
            None => self.slots.push(counters),
        }
    }

    pub(super) fn set_objective(&mut self, slot: usize, objective: Option<Slo>) {
        if let Some(counters) = self.slots.get_mut(slot) {
            counters.objective = objective;
        }
    }

    pub(super) fn model(&self, slot: usize) -> Option<&ModelStats> {
        self.slots.get(slot).map(|counters| &counters.stats)
    }

    /// The last minute by slot, with the fraction of bad requests that the objective allows.
    pub(super) fn windows(&self, now: Nanos) -> Vec<(Vec<KindLoad>, Option<f64>)> {
        let slots = self.slots.iter();
        let windows = slots.map(|slot| {
            let allowed = slot.objective.map(|slo| 1.0 - slo.percentile / 100.0);
            (slot.window.kinds(now), allowed)
        });
        windows.collect()
    }

    /// Load of the last minute, from [`Counters::windows`].
    pub(super) fn load(
        &mut self,
        workers: usize,
        windows: &[(Vec<KindLoad>, Option<f64>)],
        now: Nanos,
    ) -> ServerLoad {
        self.idle.load(workers, windows, now)
    }

    /// Updates the counters of one model; an unknown slot is ignored.
    fn count(&mut self, slot: usize, count: impl FnOnce(&mut ModelStats)) {
        if let Some(counters) = self.slots.get_mut(slot) {
            count(&mut counters.stats);
        }
    }

    /// Counts an outcome of a request; `kind` is `None` if its body was not read.
    fn outcome(
        &mut self,
        slot: usize,
        kind: Option<Kind>,
        now: Nanos,
        count: impl Fn(&mut Outcomes),
    ) {
        if let Some(counters) = self.slots.get_mut(slot) {
            count(counters.window.outcomes(kind, now));
            if let Some(kind) = kind {
                count(&mut counters.stats.of(kind).outcomes);
            }
        }
    }

    pub(super) fn count_submission(&mut self, model: usize, rows: usize) {
        self.count(model, |stats| {
            stats.requests_total += 1;
            stats.rows_total += rows as u64;
        });
    }

    pub(super) fn count_shed(
        &mut self,
        model: usize,
        kind: Option<Kind>,
        requests: u64,
        now: Nanos,
    ) {
        self.count(model, |stats| stats.shed_total += requests);
        self.outcome(model, kind, now, |outcomes| outcomes.shed += requests);
    }

    /// Counts a request whose client went away; if that was at or after its own deadline, it also
    /// counts as late.
    pub(super) fn count_abandoned(
        &mut self,
        model: usize,
        kind: Option<Kind>,
        is_late: bool,
        now: Nanos,
    ) {
        self.count(model, |stats| {
            stats.abandoned_total += 1;
            stats.late_total += u64::from(is_late);
        });
        if is_late {
            self.outcome(model, kind, now, |outcomes| outcomes.late += 1);
        }
    }

    /// Adds requests of one span of the window, the span that contains `at`.
    pub(super) fn add_tally(&mut self, slot: usize, kind: Kind, tally: &KindTally, at: Nanos) {
        let Some(SlotCounters { stats, window, .. }) = self.slots.get_mut(slot) else {
            return;
        };
        let outcomes = &tally.outcomes;
        stats.answered_total += outcomes.good + outcomes.late;
        stats.late_total += outcomes.late;
        stats.failed_total += outcomes.failed;
        let of = stats.of(kind);
        of.outcomes.add(outcomes);
        of.queue_nanos.add(&tally.queue_nanos);
        of.defer_nanos.add(&tally.defer_nanos);
        of.compute_nanos.add(&tally.compute_nanos);
        of.total_nanos.add(&tally.total_nanos);
        window.record(kind, outcomes, &tally.latencies, at);
    }

    pub(super) fn count_dispatch(
        &mut self,
        model: usize,
        kind: Kind,
        rows: usize,
        reason: DispatchReason,
    ) {
        self.replayed_batches_total += u64::from(reason == DispatchReason::Replay);
        self.count(model, |stats| {
            stats.batches_total += 1;
            let of = stats.of(kind);
            of.batch_rows.record(rows as u64);
            of.dispatch_reasons[reason as usize] += 1;
        });
    }

    /// Counts how a worker's threads divided a finished batch.
    pub(super) fn count_work_division(&mut self, model: usize, kind: Kind, sharing: WorkDivision) {
        self.count(model, |stats| stats.of(kind).shared[sharing as usize] += 1);
    }

    fn worker(&mut self, worker: usize) -> &mut WorkerStats {
        if self.workers.len() <= worker {
            self.workers.resize(worker + 1, WorkerStats::default());
        }
        &mut self.workers[worker]
    }

    /// Counts a lost worker, which is respawned.
    pub(super) fn count_restart(&mut self, worker: usize) {
        self.worker_restarts_total += 1;
        self.worker(worker).restarts_total += 1;
    }

    /// Counts a batch of `rows` rows that a worker finished `elapsed_nanos` after its dispatch.
    pub(super) fn count_worker_batch(&mut self, worker: usize, rows: usize, elapsed_nanos: u64) {
        let of = self.worker(worker);
        of.batches_total += 1;
        of.busy_nanos_total += elapsed_nanos;
        let sample = elapsed_nanos / (rows as u64).max(1);
        let average = self.nanos_per_row;
        self.nanos_per_row = if average == 0 {
            sample
        } else {
            (average * 7 + sample) / 8
        };
    }

    /// Counts a finished batch of a model.
    pub(super) fn count_batch(&mut self, model: usize, rows: usize, compute_nanos: u64) {
        self.count(model, |stats| stats.count_batch(rows, compute_nanos));
    }

    /// Adds the work of a finished batch of a model, see `QueueCosts::work_of`.
    pub(super) fn add_work(&mut self, model: usize, work: Nanos) {
        self.count(model, |stats| stats.work_nanos_total += work.0);
    }

    /// Moving average of the time per row on one worker.
    pub(super) fn nanos_per_row(&self) -> u64 {
        self.nanos_per_row
    }
}
