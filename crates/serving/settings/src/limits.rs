//! Every bound of the file and of the feed, with its reason. Those of single fields are those of
//! the custom resource (`crates/kubernetes/api/src/limits.rs`), so that what the API server takes
//! is never refused here.

/// Largest file: what etcd takes as one object, as a ConfigMap carries it.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// Most models of one server: each has its own queue and its own shared memory.
pub const MODELS_MAX: usize = 32;

/// Longest name of a model, in characters; it is part of a URL and a metric label.
pub const MODEL_NAME_CHARS_MAX: usize = 63;

/// Longest path or URL, in characters: the longest URI of the custom resource and the folder that
/// volumes are mounted below.
pub const SOURCE_CHARS_MAX: usize = 2048 + 256;

/// Most rows that one batch may hold.
pub const BATCH_ROWS_MAX: u32 = 65_536;

/// Rows of a batch when nothing is said.
pub(crate) const BATCH_ROWS_DEFAULT: u32 = 1024;

/// Most rows that may wait.
pub const QUEUE_ROWS_MAX: u32 = 4_194_304;

/// Rows that may wait when nothing is said.
pub(crate) const QUEUE_ROWS_DEFAULT: u32 = 65_536;

/// Longest objective or delay: beyond ten minutes it is a wrong unit.
pub(crate) const TIMESPAN_MICROS_MAX: u64 = 600_000_000;

/// Lowest percentile of an objective: below the median it says nothing about users.
pub(crate) const PERCENTILE_MIN: f64 = 50.0;

/// Highest percentile: needs 10,000 requests to be seen once.
pub(crate) const PERCENTILE_MAX: f64 = 99.99;

/// Percentile when nothing is said.
pub(crate) const PERCENTILE_DEFAULT: f64 = 99.0;

/// Deepest nesting; the deepest field of the file lies at depth 4.
pub(crate) const DEPTH_MAX: usize = 16;

/// Longest piece of a value that a message repeats, in characters.
pub(crate) const QUOTED_CHARS_MAX: usize = 60;

/// Longest line of the feed, its end included: the metrics of a node and its pods, with room to
/// spare; what a reader keeps while it waits for the end of a line.
pub const FEED_LINE_BYTES_MAX: usize = 1 << 20;

/// Most pods of a snapshot: twice what the largest kubelets run, as a pod of two addresses is there
/// twice. At some 600 bytes each they fill half a line.
pub const FEED_PODS_MAX: usize = 1024;

/// Longest text of metrics in a snapshot, in bytes as it is: encoded, it leaves room for the pods.
pub const FEED_METRICS_BYTES_MAX: usize = 256 << 10;

/// Longest line of a latency report, its end included: a pipe takes up to 4,096 bytes (PIPE_BUF)
/// whole or not at all, so no line of a well-behaved writer is ever torn.
pub const REPORT_LINE_BYTES_MAX: usize = 2048;

/// Most buckets of a latency report. Servers have 16; as many counts of 20 digits fit a line.
pub const REPORT_BUCKETS_MAX: usize = 32;

/// Longest name of a node, pod or deployment: that of an object's name in Kubernetes.
pub(crate) const OBJECT_NAME_CHARS_MAX: usize = 253;

/// Most workers of a server, and most threads of a worker: what a server takes.
pub(crate) const COUNT_MAX: u32 = 512;

/// Most cpus: what the largest kernels are built for.
pub(crate) const CPUS_MAX: f64 = 8192.0;
