//! The statistics that `/metrics` shows of the engine.

use std::collections::BTreeMap;
use std::time::Duration;

use albacore_batching::auto::{Choice, FrontCost};
use albacore_batching::deadlines::CostEstimate;
use albacore_batching::{ModelBatching, ModelLoad};

use super::model_window::{KindLoad, model_load};
use super::window::{Load, Outcomes};
use super::{Histogram, Kind, Sharing};

/// Counts of one model's requests since the start.
#[derive(Clone, Debug, Default, PartialEq)]
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
    /// Requests refused by admission.
    pub shed_total: u64,
    /// Requests whose client went away before the reply.
    pub abandoned_total: u64,
    /// Batches handed to a worker, replays included.
    pub batches_total: u64,
    /// What finished batches cost, had each been as large as those under load, nanoseconds of a
    /// worker.
    pub work_nanos_total: u64,
    /// Finished batches by their number of rows. After 1,024 different sizes, new ones are counted
    /// under the next power of two.
    pub batch_sizes: BTreeMap<usize, BatchStats>,
    /// For each kind of output, by the costliest kind of a request or batch.
    pub kinds: Vec<KindStats>,
    /// The learned costs of batches of the current edition: of predictions (values, margins and
    /// leaves, here as values), contributions, and interactions, where there were any.
    pub latency: Vec<(Kind, CostEstimate)>,
    /// Most threads of a worker that compute one of its batches; `None`: all of them.
    pub threads: Option<usize>,
    /// How its batches are made.
    pub batching: ModelBatching,
    /// The last minute, by kind of output.
    pub window: Vec<KindLoad>,
    /// The share of bad requests that the objective allows; `None` without an objective.
    pub bad_rate_allowed: Option<f64>,
    /// What policy `auto` chose for these; empty under another policy.
    pub choices: Vec<(Kind, Choice)>,
}

/// Finished batches of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchStats {
    pub batches: u64,
    /// Their time in compute threads, nanoseconds.
    pub compute_nanos: u64,
}

/// Batch sizes that are counted separately: as many as a batch has rows by default.
pub(super) const BATCH_SIZES_MAX: usize = 1_024;

/// Counts of one worker since the start, over all incarnations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerStats {
    /// Finished batches.
    pub batches_total: u64,
    /// Time with a batch, from its dispatch to its completion, nanoseconds.
    pub busy_nanos_total: u64,
    /// Starts after a loss.
    pub restarts_total: u64,
}

/// Counts of one model's requests and batches for one kind of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindStats {
    /// The costliest kind that was asked for.
    pub kind: Kind,
    /// Requests by how they ended.
    pub outcomes: Outcomes,
    /// Rows of each batch.
    pub batch_rows: Histogram,
    /// Submit to dispatch, nanoseconds.
    pub queue_nanos: Histogram,
    /// The part of `queue_nanos` in which a worker was free: the batch was deferred on purpose.
    pub defer_nanos: Histogram,
    /// Time in the worker's compute threads, nanoseconds.
    pub compute_nanos: Histogram,
    /// Submit to reply ready, nanoseconds.
    pub total_nanos: Histogram,
    /// Batches by the reason of their dispatch, in the order of [`DispatchReason::ALL`].
    pub dispatch_reasons: [u64; DispatchReason::ALL.len()],
    /// Finished batches by how threads shared them, in the order of [`Sharing::ALL`].
    pub shared: [u64; Sharing::ALL.len()],
}

/// An image of a model's current edition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageStats {
    pub model: String,
    /// The NUMA node with nearly all of its pages; `None`: several, or it is not known.
    pub node: Option<u16>,
    pub bytes: u64,
    /// Of these, bytes in huge pages when it was written.
    pub huge_bytes: u64,
}

/// Where memory lies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    pub images: Vec<ImageStats>,
    /// Workers that are pinned to one node and read a model from another.
    pub workers_far: usize,
    /// Copies of images to nodes.
    pub copies_made_total: u64,
    /// Copies that could not be made or opened.
    pub copies_failed_total: u64,
    /// How often workers allocated their scratch memory again, on the node that they came to.
    pub scratch_moves_total: u64,
}

/// Why a batch was dispatched when it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DispatchReason {
    /// It had as many rows or requests as a batch may have.
    Full,
    /// A request arrived while a worker was free, and waiting would have gained nothing.
    Arrival,
    /// Its time was due: waiting longer would gain nothing, or be too late.
    Due,
    /// A worker became free.
    Worker,
    /// Its worker was lost: it runs again.
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

/// For how long each kind of lock that a request takes was held since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockTimes {
    /// The scheduler's state: only one event loop works in that time.
    pub state: Duration,
    /// The inboxes of all event loops; another loop takes one to empty it. Sampled.
    pub inboxes: Duration,
    /// The caches of memory of all event loops and the arenas that they share. Sampled.
    pub memory: Duration,
    /// What the event loops count of answers; another loop takes it over to be read. Sampled.
    pub tallies: Duration,
}

/// A snapshot of the engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    /// Declared models, loaded or not.
    pub models: Vec<ModelStats>,
    /// Rows reserved or waiting for a worker.
    pub queue_rows: usize,
    /// The bound of `queue_rows`.
    pub queue_rows_max: usize,
    pub workers: usize,
    /// Workers that serve.
    pub workers_ready: usize,
    /// Workers that run a batch now.
    pub workers_busy: usize,
    /// Compute threads of each worker.
    pub threads: usize,
    /// By worker index; workers that have done nothing may be missing.
    pub each_worker: Vec<WorkerStats>,
    /// Restarts of lost workers.
    pub worker_restarts_total: u64,
    /// How the last lost worker ended; `None` if none was lost.
    pub worker_last_end: Option<String>,
    /// Workers that were killed because they hung.
    pub worker_hangs_total: u64,
    /// Batches run again because their worker was lost.
    pub replayed_batches_total: u64,
    /// Shared memory in use by reservations and replies, bytes.
    pub arena_used_bytes: usize,
    /// Shared memory that can be used, bytes.
    pub arena_bytes: usize,
    pub memory: MemoryStats,
    /// What a request costs the front end; `None` before it was measured.
    pub front_cost: Option<FrontCost>,
    /// For how long locks of the front were held.
    pub locked: LockTimes,
    /// Event loops of the front end.
    pub front_threads: usize,
    /// Share of the last seconds in which each event loop used its cpu, 0 to 1; empty in the first
    /// second, and where the threads are not known.
    pub front_busy_ratios: Vec<f64>,
    /// The part of a request's time that the front end may take, 0 to 1: learned.
    pub front_time_limit_ratio: f64,
    /// Load of the last minute.
    pub load: Load,
}

impl ModelStats {
    /// What the scaling rule goes by.
    #[must_use]
    pub fn load(&self) -> ModelLoad {
        model_load(&self.window, self.bad_rate_allowed)
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

    /// The counters of a kind, created when they are first needed.
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
            outcomes: Outcomes::default(),
            batch_rows: Histogram::rows(),
            queue_nanos: Histogram::durations(),
            defer_nanos: Histogram::durations(),
            compute_nanos: Histogram::durations(),
            total_nanos: Histogram::durations(),
            dispatch_reasons: [0; DispatchReason::ALL.len()],
            shared: [0; Sharing::ALL.len()],
        }
    }
}
