//! Counters and histograms of the engine, as `/metrics` shows them.

use albacore_batching::{LatencyLine, LatencyModel, Nanos};

use super::window::{Load, OutcomeWindow, Outcomes, ServerWindow};
use super::{Kind, Objective};

/// Upper bounds of the duration buckets, nanoseconds; the last bucket has no bound.
pub(super) const DURATION_BOUNDS_NANOS: [u64; 15] = [
    50_000,
    100_000,
    150_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    1_000_000_000,
    10_000_000_000,
];

/// Upper bounds of the batch size buckets, rows; the last bucket has no bound.
pub(super) const ROWS_BOUNDS: [u64; 15] = [
    1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 16_384, 65_536,
];

/// A histogram over one of the fixed bound tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// Upper bounds, inclusive; one bucket more than bounds.
    pub bounds: &'static [u64; 15],
    /// How many values fell into each bucket (not cumulative); the last has no upper bound.
    pub buckets: [u64; 16],
    /// Sum of all values, in the unit of `bounds`.
    pub sum: u64,
    /// Number of values.
    pub count: u64,
}

impl Histogram {
    /// An empty histogram of durations in nanoseconds.
    #[must_use]
    pub(super) const fn durations() -> Self {
        Self {
            bounds: &DURATION_BOUNDS_NANOS,
            buckets: [0; 16],
            sum: 0,
            count: 0,
        }
    }

    /// An empty histogram of row counts.
    #[must_use]
    pub(super) const fn rows() -> Self {
        Self {
            bounds: &ROWS_BOUNDS,
            buckets: [0; 16],
            sum: 0,
            count: 0,
        }
    }

    /// Counts `value`.
    pub fn record(&mut self, value: u64) {
        let bucket = self.bounds.partition_point(|&bound| bound < value);
        self.buckets[bucket] += 1;
        self.sum = self.sum.saturating_add(value);
        self.count += 1;
    }
}

/// What happened to one model's requests since the start.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelStats {
    /// The model's name.
    pub name: String,
    /// Requests that were submitted.
    pub requests_total: u64,
    /// Rows that were submitted.
    pub rows_total: u64,
    /// Requests that were answered.
    pub answered_total: u64,
    /// Answered requests whose reply came after the model's objective or their own.
    pub late_total: u64,
    /// Accepted requests that failed.
    pub failed_total: u64,
    /// Requests refused because the queue was full.
    pub shed_total: u64,
    /// Requests whose client went away before the reply.
    pub abandoned_total: u64,
    /// Batches handed to a worker, replays included.
    pub batches_total: u64,
    /// Rows of each batch.
    pub batch_rows: Histogram,
    /// Submit to dispatch, nanoseconds.
    pub queue_nanos: Histogram,
    /// Time in the worker's compute threads, nanoseconds.
    pub compute_nanos: Histogram,
    /// Submit to reply ready, nanoseconds.
    pub total_nanos: Histogram,
    /// What batches cost, of the kinds of output that were asked for, by the costliest of a batch.
    pub latency: Vec<(Kind, LatencyLine)>,
}

/// A snapshot of the engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    /// Per model to be served, loaded or not.
    pub models: Vec<ModelStats>,
    /// Rows reserved or waiting for a worker.
    pub queue_rows: usize,
    /// The bound of `queue_rows`.
    pub queue_rows_max: usize,
    /// Workers configured.
    pub workers: usize,
    /// Workers that are up.
    pub workers_ready: usize,
    /// Workers that run a batch now.
    pub workers_busy: usize,
    /// Compute threads of each worker.
    pub threads: usize,
    /// Workers started again after a death.
    pub worker_restarts_total: u64,
    /// Workers that were ended because they hung.
    pub worker_hangs_total: u64,
    /// Batches run again because their worker died.
    pub replayed_batches_total: u64,
    /// Shared memory in use by reservations and replies, bytes.
    pub arena_used_bytes: usize,
    /// Shared memory that can be used, bytes.
    pub arena_bytes: usize,
    /// How loaded the last minute was.
    pub load: Load,
}

/// What is counted of one model.
#[derive(Debug)]
struct SlotCounters {
    stats: ModelStats,
    objective: Option<Objective>,
    window: OutcomeWindow,
    /// By `Kind as usize`.
    latency: [LatencyModel; Kind::ALL.len()],
}

/// What [`super::state::State`] counts.
#[derive(Debug)]
pub(super) struct Counters {
    /// By slot.
    slots: Vec<SlotCounters>,
    pub(super) window: ServerWindow,
    pub(super) worker_restarts_total: u64,
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
            worker_restarts_total: 0,
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
            latency: Default::default(),
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

    /// Another edition costs something else.
    pub(super) fn forget_latency(&mut self, slot: usize) {
        if let Some(counters) = self.slots.get_mut(slot) {
            counters.latency = Default::default();
        }
    }

    /// A snapshot of one model.
    pub(super) fn model(&self, slot: usize) -> Option<ModelStats> {
        let counters = self.slots.get(slot)?;
        let kinds = Kind::ALL.into_iter();
        let line = |kind: Kind| Some((kind, counters.latency[kind as usize].line()?));
        Some(ModelStats {
            latency: kinds.filter_map(line).collect(),
            ..counters.stats.clone()
        })
    }

    /// How loaded the last minute was.
    pub(super) fn load(&mut self, workers: usize, now: Nanos) -> Load {
        let models = self.slots.iter().map(|slot| {
            let percentile = slot
                .objective
                .map_or(99.0, |objective| objective.percentile);
            (slot.window.sum(now), 1.0 - percentile / 100.0)
        });
        self.window.load(workers, models, now)
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
        timing: super::Timing,
        (total_nanos, is_after_its_own): (u64, bool),
        now: Nanos,
    ) {
        let objective = self.slots.get(model).and_then(|slot| slot.objective);
        let is_after = objective.is_some_and(|slo| total_nanos > nanos(slo.latency));
        let is_late = is_after || is_after_its_own;
        self.count(model, |stats| {
            stats.answered_total += 1;
            stats.late_total += u64::from(is_late);
            stats.queue_nanos.record(nanos(timing.queue));
            stats.compute_nanos.record(nanos(timing.compute));
            stats.total_nanos.record(total_nanos);
        });
        self.outcome(model, now, |outcomes| match is_late {
            true => outcomes.late += 1,
            false => outcomes.good += 1,
        });
        self.window.answered(total_nanos, now);
    }

    pub(super) fn dispatched(&mut self, model: usize, rows: usize, is_replay: bool) {
        self.replayed_batches_total += u64::from(is_replay);
        self.count(model, |stats| {
            stats.batches_total += 1;
            stats.batch_rows.record(rows as u64);
        });
    }

    /// A batch is done; `of` is its model and costliest kind, if they are those of all its rows.
    pub(super) fn batch_done(
        &mut self,
        rows: usize,
        elapsed_nanos: u64,
        of: Option<(usize, Kind)>,
    ) {
        if let Some((slot, kind)) = of
            && let Some(counters) = self.slots.get_mut(slot)
        {
            counters.latency[kind as usize].observe(rows, Nanos(elapsed_nanos));
        }
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

impl ModelStats {
    fn new(name: String) -> Self {
        Self {
            name,
            requests_total: 0,
            rows_total: 0,
            answered_total: 0,
            late_total: 0,
            failed_total: 0,
            shed_total: 0,
            abandoned_total: 0,
            batches_total: 0,
            batch_rows: Histogram::rows(),
            queue_nanos: Histogram::durations(),
            compute_nanos: Histogram::durations(),
            total_nanos: Histogram::durations(),
            latency: Vec::new(),
        }
    }
}

fn nanos(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
