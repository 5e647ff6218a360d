//! Every bound of the server but those of the engine and of connections (crates `engine` and
//! `connections`), with its reason: of requests, of replies, then of what runs beside them.
//!
//! A client that runs into a bound is counted in `albacore_bounds_reached_total` by the bound's
//! name, see [`albacore_connections::Limit`].

use std::time::Duration;

// ---- requests ----

/// Largest body of an HTTP request, before and after unpacking, and largest gRPC message, bytes.
/// 1,024 rows of 4,096 features as JSON text of 12 characters are 50 MB.
pub const BODY_BYTES_MAX: usize = 64 << 20;

/// Bytes of unfinished bodies over all connections of both protocols. Four of the largest at once;
/// beyond it a request is told to come back later, so that many slow senders cannot fill the memory
/// of the pod.
pub const BODIES_BYTES_MAX: usize = 4 * BODY_BYTES_MAX;

/// Longest silence inside a body. A sender that stalls longer is not going to make any deadline.
pub const BODY_SILENCE_MAX: Duration = Duration::from_secs(10);

/// A timer that fires later than this says that this process had no cpu, and that what clients sent
/// meanwhile may lie unread ...
pub const STALL_MIN: Duration = Duration::from_millis(250);

/// ... which is read within this.
pub const STALL_GRACE: Duration = Duration::from_secs(1);

/// Bytes per second that a body must have after that time: one byte a second holds its share of
/// memory for [`BODY_SILENCE_MAX`] and not for days, and a phone on a bad line is faster.
pub const BODY_RATE_MIN: u64 = 16 << 10;

/// Bytes read and thrown away after a refusal, so that a client still sending gets to read the
/// answer.
pub const DISCARDED_BYTES_MAX: usize = 2 * BODY_BYTES_MAX;

/// Input or output tensors named by one request: five exist.
pub const TENSORS_MAX: usize = 16;

/// Dimensions of a shape: two are right, a few more make the message useful.
pub const DIMENSIONS_MAX: usize = 8;

/// Parameters of a gRPC request and of each of its tensors: five are known, gateways add theirs. In
/// JSON unknown ones are skipped and cost nothing.
pub const PARAMETERS_MAX: usize = 64;

/// Bytes of a gRPC message's typed integers: as variable-length integers of one byte they grow to
/// eight bytes each. Raw contents have no such bound.
pub const TYPED_INTEGER_BYTES_MAX: usize = BODY_BYTES_MAX / 8;

/// Bytes of a message to the health and the reflection service: names.
pub const SMALL_MESSAGE_BYTES_MAX: usize = 64 << 10;

// Depth of JSON: typed parts are a fixed number deep, everything else is skipped without recursion,
// so that depth costs nothing; the parser's own bound of 128 stands before both.

// ---- replies ----

/// Bytes of feature names and types in a model's metadata; more are left out. gRPC clients take
/// replies of 4 MiB unless told otherwise.
pub const METADATA_NAMES_BYTES_MAX: usize = 2 << 20;

/// Bytes of text for a byte of values: twelve digits, point, sign and comma for four.
pub const TEXT_PER_BYTE: usize = 3;

/// Replies shorter than this are not compressed: they fit one packet anyway.
pub const COMPRESSED_REPLY_BYTES_MIN: usize = 1_024;

/// How often the standard gRPC health service looks at the engine.
pub const HEALTH_PERIOD: Duration = Duration::from_millis(100);

// ---- beside the front ----

/// Threads of the front that serve connections: one does the work of any load that the workers can
/// take on a small machine, a second keeps a slow parse from delaying everybody else.
pub const FRONT_THREADS: usize = 2;

/// Workers of one server: twice the cpus of the largest machines that serve trees.
pub const WORKERS_MAX: usize = 512;

/// Compute threads of one worker: as above.
pub const THREADS_MAX: usize = 512;

/// Rows of a batch that a user may ask for with `--max-rows`.
pub const BATCH_ROWS_MAX: usize = 1 << 20;

/// Rows of a queue that a user may ask for with `--queue-rows`.
pub const QUEUE_ROWS_MAX: usize = 1 << 24;

/// How often the settings file and the model files are looked at: a stat of each.
pub const POLL_PERIOD: Duration = Duration::from_millis(250);

/// Looks at which a changed model file must be the same before it is read: who copies into place
/// writes for a while.
pub const STEADY_LOOKS: u32 = 2;

/// Pause before a model that could not be loaded is tried again; doubles with each failure ...
pub const LOAD_PAUSE_MIN: Duration = Duration::from_secs(1);

/// ... up to this: a server that is back is noticed within a minute.
pub const LOAD_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Outcomes of loading that wait to be heard: more make their threads wait, which does no harm.
pub const ATTEMPTS_MAX: usize = 64;

/// How long what was told by `--params` stays in force after its stream was lost: by then a mounted
/// ConfigMap has what was told, after the kubelet's minute of caching and minute of syncing.
pub const TOLD_KEPT_FOR: Duration = Duration::from_secs(150);

/// Pause before the stream of `--params` is opened again; doubles with each failure ...
pub const PARAMS_PAUSE_MIN: Duration = Duration::from_millis(50);

/// ... up to this: soon enough for who restarted it, and 20 connections a second for 100 pods.
pub const PARAMS_PAUSE_MAX: Duration = Duration::from_secs(5);

/// How long a connection to `--params` may take.
pub const PARAMS_CONNECT_MAX: Duration = Duration::from_secs(5);

/// How long the answer that opens the stream may take.
pub const PARAMS_ANSWER_MAX: Duration = Duration::from_secs(10);

/// How often a silent stream is asked whether its other end still lives ...
pub const PARAMS_KEEPALIVE_PERIOD: Duration = Duration::from_secs(20);

/// ... and how long the answer may take.
pub const PARAMS_KEEPALIVE_WAIT: Duration = Duration::from_secs(10);

/// Bytes of a message of parameters: those of 32 models have some 3 KiB.
pub const PARAMS_BYTES_MAX: usize = 64 << 10;

/// Shortest pause between two reports of latency, whatever `--params` asks for.
pub const REPORT_PERIOD_MIN: Duration = Duration::from_millis(100);
