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
