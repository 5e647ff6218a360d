//! Bounds of a worker process and of its communication with the front, with their reasons.

use std::time::Duration;

/// Models of one server: each needs one descriptor in every worker.
pub const MODELS_MAX: usize = 64;

/// Slots of models: those that are served, and as many removed ones with running requests.
pub const SLOTS_MAX: usize = 2 * MODELS_MAX;

/// Revisions that a worker lists as open for a front that takes it over: those of every slot, and
/// as many that requests still use.
pub const LISTED_REVISIONS_MAX: usize = 2 * SLOTS_MAX;

/// Images that one command closes; further ones wait for the next command.
pub const CLOSES_MAX: usize = 256;

/// Requests in one batch: the size of a worker's ring, which holds one segment per request.
pub const BATCH_REQUESTS_MAX: usize = 1024;

/// Alignment in shared memory: a cache line, so that no two requests share one.
pub const ALIGNMENT: usize = 64;

/// Length in bytes of the reason that a worker reports for a failed request.
pub const REASON_BYTES_MAX: usize = 256;

/// Longest spin time that a worker accepts from the ring.
pub const SPIN_TIME_MAX: Duration = Duration::from_millis(10);

/// For a model without measurements, predictions of at least this many rows are shared by the
/// threads of a worker: waking a thread costs about as much as a few dozen rows.
pub const PARALLEL_ROWS: usize = 64;

/// The same for SHAP values: a row costs a hundred times as much.
pub const PARALLEL_SHAP_ROWS: usize = 2;

/// Pieces per thread of a batch that is shared by rows: more than one, so that the other threads
/// take over the share of a thread that starts late.
pub const PIECES_PER_THREAD: usize = 4;

/// A batch is shared if one thread would take this many times the wake latency: below that, two
/// threads would finish at about the same time as one.
pub const SHARING_PAYS: f64 = 3.0;

/// Pieces per thread of a batch that is shared by trees: fewer than of rows, because each piece
/// prepares all rows again.
pub const TREE_PARTS_PER_THREAD: usize = 2;

/// Rows of different requests are gathered into one call up to this size of rows and results, so
/// that both copies stay in the cache of a core...
pub const GATHERED_BYTES_MAX: usize = 512 << 10;

/// ...but not from requests of this many rows: the engine computes blocks of this size.
pub const GATHERED_ROWS_MAX: usize = 64;

/// Outputs of requests in a batch that is shared by trees: with more outputs there are enough rows.
pub const TREE_JOBS_MAX: usize = 8;

/// How often a worker measures its wake latency at startup; the shortest time is used ...
pub const WAKE_PROBES: usize = 5;

/// ... if it is at most this: a wakeup takes about 5 to 60 us. A longer time means that the thread
/// waited for a cpu. That is temporary, but the measurement is used for the whole incarnation; so
/// it is repeated ...
pub const WAKE_LATENCY_PLAUSIBLE: Duration = Duration::from_micros(150);

/// ... up to this many times, at most 0.1 s of the startup ...
pub const WAKE_PROBES_MAX: usize = 50;

/// ... after a pause in which the thread falls asleep ...
pub const WAKE_PROBE_PAUSE: Duration = Duration::from_micros(300);

/// ... with this timeout.
pub const WAKE_PROBE_TIMEOUT: Duration = Duration::from_millis(2);
