//! What `/metrics` shows of the engine.

use std::collections::BTreeMap;

use albacore_batching::deadlines::CostEstimate;

use super::window::Load;
use super::{Histogram, Kind, Sharing};

/// What happened to one model's requests since the start.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelStats {
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
    /// Batches that are done by their rows. Of more than 1,024 different sizes, those that
    /// come later are counted under the next power of two.
    pub batch_sizes: BTreeMap<usize, BatchStats>,
    /// Of each kind of output that was asked for, by the costliest of a request or batch.
    pub kinds: Vec<KindStats>,
    /// What batches of the current edition cost, as the scheduler has learned it: of predictions
    /// (values, margins and leaves, here as values), contributions, and interactions, where there
    /// were any.
    pub latency: Vec<(Kind, CostEstimate)>,
}

/// Batches of one size that are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchStats {
    pub batches: u64,
    /// Their time in compute threads, nanoseconds.
    pub compute_nanos: u64,
}

/// Sizes of batches that are counted by themselves: as many as a batch has rows by default.
pub(super) const BATCH_SIZES_MAX: usize = 1_024;

/// What one worker did since the start, over all its processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerStats {
    /// Batches that are done.
    pub batches_total: u64,
    /// Time with a batch, from its dispatch to the notice that it is done, nanoseconds.
    pub busy_nanos_total: u64,
    /// Starts after a death.
    pub restarts_total: u64,
}

/// What happened to one model's requests for one kind of output, and to its batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindStats {
    /// The costliest kind that they asked for.
    pub kind: Kind,
    /// Rows of each batch.
    pub batch_rows: Histogram,
    /// Submit to dispatch, nanoseconds.
    pub queue_nanos: Histogram,
    /// The part of it in which a worker was free: what the release rule waited on purpose,
    /// nanoseconds.
    pub defer_nanos: Histogram,
    /// Time in the worker's compute threads, nanoseconds.
    pub compute_nanos: Histogram,
    /// Submit to reply ready, nanoseconds.
    pub total_nanos: Histogram,
    /// Batches by why they left, in the order of [`DispatchReason::ALL`].
    pub left: [u64; DispatchReason::ALL.len()],
    /// Batches that are done by how threads shared them, in the order of [`Sharing::ALL`].
    pub shared: [u64; Sharing::ALL.len()],
}

/// Why a batch left its queue when it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DispatchReason {
    /// It had as many rows or requests as a batch may have.
    Full,
    /// A request arrived, a worker was free, and nothing was gained by waiting longer.
    Arrival,
    /// Its time had come: waiting longer would gain nothing, or be too late.
    Due,
    /// A worker became free.
    Worker,
    /// Its worker had died: it runs again.
    Replay,
}

impl DispatchReason {
    pub const ALL: [Self; 5] = [
        Self::Full,
        Self::Arrival,
        Self::Due,
        Self::Worker,
        Self::Replay,
    ];

    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Arrival => "arrival",
            Self::Due => "due",
            Self::Worker => "worker",
            Self::Replay => "replay",
        }
    }
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
    pub workers: usize,
    /// Workers that are up.
    pub workers_ready: usize,
    /// Workers that run a batch now.
    pub workers_busy: usize,
    /// Compute threads of each worker.
    pub threads: usize,
    /// By worker; of a worker that has done nothing yet, nothing may be here.
    pub each_worker: Vec<WorkerStats>,
    /// Workers started again after a death.
    pub worker_restarts_total: u64,
    /// How the last of those ended; `None` if none did.
    pub worker_last_end: Option<String>,
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

impl ModelStats {
    /// Nothing has happened yet.
    pub(super) fn new(name: String) -> Self {
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
            batch_sizes: BTreeMap::new(),
            kinds: Vec::new(),
            latency: Vec::new(),
        }
    }

    /// A batch is done.
    pub(super) fn batch_done(&mut self, rows: usize, compute_nanos: u64) {
        let sizes = &mut self.batch_sizes;
        let is_known = sizes.len() < BATCH_SIZES_MAX || sizes.contains_key(&rows);
        let size = if is_known {
            rows
        } else {
            rows.next_power_of_two()
        };
        let of = sizes.entry(size).or_default();
        of.batches += 1;
        of.compute_nanos += compute_nanos;
    }

    /// What is known of a kind; made when it is asked for first.
    pub(super) fn of(&mut self, kind: Kind) -> &mut KindStats {
        let known = self.kinds.iter().position(|stats| stats.kind == kind);
        let at = known.unwrap_or(self.kinds.len());
        if known.is_none() {
            self.kinds.push(KindStats::new(kind));
        }
        &mut self.kinds[at]
    }
}

impl KindStats {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            batch_rows: Histogram::rows(),
            queue_nanos: Histogram::durations(),
            defer_nanos: Histogram::durations(),
            compute_nanos: Histogram::durations(),
            total_nanos: Histogram::durations(),
            left: [0; DispatchReason::ALL.len()],
            shared: [0; Sharing::ALL.len()],
        }
    }
}
