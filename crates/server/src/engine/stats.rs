//! Counters and histograms of the engine, as `/metrics` shows them.

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelStats {
    /// The model's name.
    pub name: String,
    /// Requests that were submitted.
    pub requests_total: u64,
    /// Rows that were submitted.
    pub rows_total: u64,
    /// Requests that were answered.
    pub answered_total: u64,
    /// Answered requests whose reply came after the objective of `--slo`.
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
}

/// A snapshot of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Per model, in the order of [`super::Engine::models`].
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
    /// Batches run again because their worker died.
    pub replayed_batches_total: u64,
    /// Shared memory in use by reservations and replies, bytes.
    pub arena_used_bytes: usize,
    /// Shared memory that can be used, bytes.
    pub arena_bytes: usize,
}

/// What [`super::state::State`] counts.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) models: Vec<ModelStats>,
    /// Objective of each model, nanoseconds.
    slos: Vec<Option<u64>>,
    pub(super) worker_restarts_total: u64,
    pub(super) replayed_batches_total: u64,
    /// Moving average of the time that a row takes on one worker, dispatch to done.
    nanos_per_row: u64,
}

impl Counters {
    /// All zero, for models with these names and objectives.
    pub(super) fn new(models: impl Iterator<Item = (String, Option<u64>)>) -> Self {
        let (models, slos) = models
            .map(|(name, slo)| (ModelStats::new(name), slo))
            .unzip();
        Self {
            models,
            slos,
            worker_restarts_total: 0,
            replayed_batches_total: 0,
            nanos_per_row: 0,
        }
    }

    /// Counts in one model; an index that is none counts nowhere.
    fn count(&mut self, model: usize, count: impl FnOnce(&mut ModelStats)) {
        if let Some(stats) = self.models.get_mut(model) {
            count(stats);
        }
    }

    pub(super) fn submitted(&mut self, model: usize, rows: usize) {
        self.count(model, |stats| {
            stats.requests_total += 1;
            stats.rows_total += rows as u64;
        });
    }

    pub(super) fn shed(&mut self, model: usize) {
        self.count(model, |stats| stats.shed_total += 1);
    }

    pub(super) fn abandoned(&mut self, model: usize) {
        self.count(model, |stats| stats.abandoned_total += 1);
    }

    pub(super) fn failed(&mut self, model: usize) {
        self.count(model, |stats| stats.failed_total += 1);
    }

    pub(super) fn answered(&mut self, model: usize, timing: super::Timing, total_nanos: u64) {
        let is_late = self
            .slos
            .get(model)
            .copied()
            .flatten()
            .is_some_and(|slo| total_nanos > slo);
        self.count(model, |stats| {
            stats.answered_total += 1;
            stats.late_total += u64::from(is_late);
            stats.queue_nanos.record(nanos(timing.queue));
            stats.compute_nanos.record(nanos(timing.compute));
            stats.total_nanos.record(total_nanos);
        });
    }

    pub(super) fn dispatched(&mut self, model: usize, rows: usize, is_replay: bool) {
        self.replayed_batches_total += u64::from(is_replay);
        self.count(model, |stats| {
            stats.batches_total += 1;
            stats.batch_rows.record(rows as u64);
        });
    }

    pub(super) fn batch_done(&mut self, rows: usize, elapsed_nanos: u64) {
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
        }
    }
}

fn nanos(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
