//! Statistics of the engine for `/metrics`.

use std::collections::BTreeMap;
use std::time::Duration;

use albacore_batching::auto::{Choice, FrontCost};
use albacore_batching::deadlines::CostEstimate;
use albacore_batching::{ModelBatching, ModelLoad};

use super::model_window::{KindLoad, model_load};
use super::window::{Outcomes, ServerLoad};
use super::{Histogram, Kind, WorkDivision};

/// Counters of one model's requests since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelStats {
    pub name: String,
    /// Submitted requests.
    pub requests_total: u64,
    /// Submitted rows.
    pub rows_total: u64,
    /// Answered requests.
    pub answered_total: u64,
    /// Answered requests whose reply missed the model's objective or their own deadline.
    pub late_total: u64,
    /// Accepted requests that failed.
    pub failed_total: u64,
    /// Requests rejected by admission.
    pub shed_total: u64,
    /// Requests whose client went away before the reply.
    pub abandoned_total: u64,
    /// Batches submitted to workers, including replays.
    pub batches_total: u64,
    /// Worker time of finished batches in nanoseconds, normalized to the batch size under load.
    pub work_nanos_total: u64,
    /// Finished batches by number of rows. After 1,024 different sizes, new sizes are rounded up to
    /// a power of two.
    pub batch_sizes: BTreeMap<usize, BatchStats>,
    /// By output kind, the most expensive kind of a request or batch.
    pub kinds: Vec<KindStats>,
    /// Learned batch costs of the current revision: of predictions (values, margins and leaves,
    /// reported as values), contributions, and interactions, if there were any.
    pub latency: Vec<(Kind, CostEstimate)>,
    /// Most threads of a worker for one of its batches; `None`: all of them.
    pub threads: Option<usize>,
    /// Batching in force.
    pub batching: ModelBatching,
    /// The last minute, by output kind.
    pub window: Vec<KindLoad>,
    /// Fraction of bad requests that the objective allows; `None` without an objective.
    pub bad_rate_allowed: Option<f64>,
    /// Choices of policy `auto`; empty under another policy.
    pub choices: Vec<(Kind, Choice)>,
}

/// Finished batches of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchStats {
    pub batches: u64,
    /// Their compute time in nanoseconds.
    pub compute_nanos: u64,
}

/// Number of batch sizes that are counted separately: the default maximum batch size.
pub(super) const BATCH_SIZES_MAX: usize = 1_024;

/// Counters of one worker since the start, over all incarnations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerStats {
    /// Finished batches.
    pub batches_total: u64,
    /// Time with a batch, from dispatch to completion, in nanoseconds.
    pub busy_nanos_total: u64,
    /// Respawns after a loss.
    pub restarts_total: u64,
}

/// Counters of one model's requests and batches for one output kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindStats {
    /// The most expensive requested kind.
    pub kind: Kind,
    /// Requests by outcome.
    pub outcomes: Outcomes,
    /// Rows per batch.
    pub batch_rows: Histogram,
    /// Time from submission to dispatch in nanoseconds.
    pub queue_nanos: Histogram,
    /// The part of `queue_nanos` in which a worker was idle: the batch was deferred on purpose.
    pub defer_nanos: Histogram,
    /// Compute time of the worker in nanoseconds.
    pub compute_nanos: Histogram,
    /// Time from submission to reply in nanoseconds.
    pub total_nanos: Histogram,
    /// Batches by dispatch reason, in the order of [`DispatchReason::ALL`].
    pub dispatch_reasons: [u64; DispatchReason::ALL.len()],
    /// Finished batches by how threads divided them, in the order of [`WorkDivision::ALL`].
    pub shared: [u64; WorkDivision::ALL.len()],
}

/// An image of a model's current revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageStats {
    pub model: String,
    /// The NUMA node of nearly all of its pages; `None`: several, or unknown.
    pub node: Option<u16>,
    pub bytes: u64,
    /// Of these, bytes in huge pages when it was written.
    pub huge_bytes: u64,
}

/// NUMA placement of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    pub images: Vec<ImageStats>,
    /// Workers that are pinned to one node and read a model from another.
    pub workers_far: usize,
    /// Copies of images made for nodes.
    pub copies_made_total: u64,
    /// Copies that could not be made or opened.
    pub copies_failed_total: u64,
    /// How often workers reallocated their scratch memory after a move to another node.
    pub scratch_moves_total: u64,
}

/// Reason of a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DispatchReason {
    /// It had the maximum number of rows or requests.
    Full,
    /// A request arrived while a worker was idle, and waiting would have had no benefit.
    Arrival,
    /// It was due: waiting longer would have had no benefit, or would have been too late.
    Due,
    /// A worker became free.
    Worker,
    /// Replay of a batch whose worker was lost.
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

    /// Name in metrics.
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

/// Total times since the start for which locks taken by requests were held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockTimes {
    /// The scheduler's state: only one event loop makes progress in that time.
    pub state: Duration,
    /// The inboxes of all event loops; other loops lock them to drain them. Sampled.
    pub inboxes: Duration,
    /// The block caches of all event loops and the arenas that they share. Sampled.
    pub memory: Duration,
    /// The counters of event loops; other loops lock them to read them. Sampled.
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
    /// Workers that are running a batch.
    pub workers_busy: usize,
    /// Compute threads of each worker.
    pub threads: usize,
    /// By worker index; workers without any activity may be missing.
    pub each_worker: Vec<WorkerStats>,
    /// Restarts of lost workers.
    pub worker_restarts_total: u64,
    /// Exit status of the last lost worker; `None` if none was lost.
    pub worker_last_exit: Option<String>,
    /// Workers that were killed because they hung.
    pub worker_hangs_total: u64,
    /// Batches replayed because their worker was lost.
    pub replayed_batches_total: u64,
    /// Bytes of shared memory used by reservations and replies.
    pub arena_used_bytes: usize,
    /// Size of the shared memory in bytes.
    pub arena_bytes: usize,
    pub memory: MemoryStats,
    /// Cost of a request for the front end; `None` before it was measured.
    pub front_cost: Option<FrontCost>,
    /// Total times for which locks of the front were held.
    pub locked: LockTimes,
    /// Event loops of the front end.
    pub front_threads: usize,
    /// Recent cpu utilization of each event loop, 0 to 1; empty in the first second, and if the
    /// threads are unknown.
    pub front_busy_ratios: Vec<f64>,
    /// The learned fraction of a request's time that the front end may use, 0 to 1.
    pub front_time_limit_ratio: f64,
    /// Load of the last minute.
    pub load: ServerLoad,
}

impl ModelStats {
    /// The load that the scaling rule uses.
    #[must_use]
    pub fn load(&self) -> ModelLoad {
        model_load(&self.window, self.bad_rate_allowed)
    }

    /// Counts a finished batch.
    pub(super) fn count_batch(&mut self, rows: usize, compute_nanos: u64) {
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
            shared: [0; WorkDivision::ALL.len()],
        }
    }
}
