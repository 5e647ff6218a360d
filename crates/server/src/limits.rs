//! Every bound of the server but those of the protocol front (`front/limits.rs`) and of the engine
//! (crate `engine`), with its reason.

use std::time::Duration;

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
