//! Bounds of the settings file and of the agent's stream, with their reasons. The bounds of single
//! fields equal those of the custom resource (`crates/kubernetes/api/src/limits.rs`), so that any
//! deployment that the API server accepts is accepted here.

/// Largest file: the maximum size of an etcd object, because a ConfigMap stores the file.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// Maximum number of models of a server: each has its own queue and its own shared memory.
pub const MODELS_MAX: usize = 32;

/// Longest name of a model, in characters; it is part of a URL and a metric label.
pub const MODEL_NAME_CHARS_MAX: usize = 63;

/// Longest path or URL, in characters: the longest URI of the custom resource plus the folder below
/// which volumes are mounted.
pub const SOURCE_CHARS_MAX: usize = 2048 + 256;

/// Maximum rows of a batch.
pub const BATCH_ROWS_MAX: u32 = 65_536;

/// Maximum rows in the queue.
pub const QUEUE_ROWS_MAX: u32 = 4_194_304;

/// Largest weight of a model, as for cgroup's `cpu.weight`; the smallest is 1.
pub const WEIGHT_MAX: u32 = 10_000;

/// Default weight of a model, as for cgroup's `cpu.weight`.
pub const WEIGHT_DEFAULT: u32 = 100;

/// Maximum number of class names of a model. That many names of maximum length use 280 KB of the
/// file.
pub const CLASSES_MAX: usize = 1024;

/// Longest name of a class, in characters; a reply contains it once per row.
pub const CLASS_CHARS_MAX: usize = 63;

/// Maximum number of columns of a model whose categories the settings list.
pub const CATEGORY_COLUMNS_MAX: usize = 256;

/// Maximum number of categories of a column. The total over all columns is bounded by the file
/// size.
pub const CATEGORIES_MAX: usize = 16_384;

/// Longest name of a categorical column, and longest category, in characters.
pub const CATEGORY_CHARS_MAX: usize = 255;

/// Longest objective or delay: more than ten minutes indicates a wrong unit.
pub(crate) const TIMESPAN_MICROS_MAX: u64 = 600_000_000;

/// Lowest percentile of an objective: below the median it does not describe what users observe.
pub(crate) const PERCENTILE_MIN: f64 = 50.0;

/// Highest percentile: 10,000 requests are needed to observe it once.
pub(crate) const PERCENTILE_MAX: f64 = 99.99;

/// Default percentile.
pub(crate) const PERCENTILE_DEFAULT: f64 = 99.0;

/// Maximum nesting depth; the deepest field of the file has depth 4.
pub(crate) const DEPTH_MAX: usize = 16;

/// Longest excerpt of a value in an error message, in characters.
pub(crate) const QUOTED_CHARS_MAX: usize = 60;

/// Longest snapshot line with its terminator, which a reader buffers: the metrics of a node and its
/// pods, with a margin.
pub const SNAPSHOT_LINE_BYTES_MAX: usize = 1 << 20;

/// Maximum number of pods of a snapshot: twice the number of pods of the largest kubelets, because
/// a pod with two addresses is listed twice. At about 600 bytes each they use half a line.
pub const SNAPSHOT_PODS_MAX: usize = 1024;

/// Longest metrics text of a snapshot, in bytes before JSON encoding; leaves room for the pods.
pub const SNAPSHOT_METRICS_BYTES_MAX: usize = 256 << 10;

/// Longest line of a latency report with its terminator: writes of up to 4,096 bytes (PIPE_BUF) to
/// a pipe are atomic, so a line of a correct writer is never torn.
pub const REPORT_LINE_BYTES_MAX: usize = 2048;

/// Maximum number of buckets of a latency report. Servers use 16; this many counts of 20 digits fit
/// in a line.
pub const REPORT_BUCKETS_MAX: usize = 32;

/// Longest name of a node, pod or deployment: the limit of Kubernetes object names.
pub(crate) const OBJECT_NAME_CHARS_MAX: usize = 253;
