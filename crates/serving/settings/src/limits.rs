//! Every bound of the file and of the agent's stream, with its reason. The bounds of single fields
//! are those of the custom resource (`crates/kubernetes/api/src/limits.rs`), so that no deployment
//! that the API server accepts is refused here.

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

/// Most rows that may wait.
pub const QUEUE_ROWS_MAX: u32 = 4_194_304;

/// Largest weight of a model, as of cgroup's `cpu.weight`; the smallest is 1.
pub const WEIGHT_MAX: u32 = 10_000;

/// Weight of a model when the file does not say, as of cgroup's `cpu.weight`.
pub const WEIGHT_DEFAULT: u32 = 100;

/// Most names of classes of a model. As many names of the longest take 280 KB of the file.
pub const CLASSES_MAX: usize = 1024;

/// Longest name of a class, in characters: it is part of a reply, once for each row.
pub const CLASS_CHARS_MAX: usize = 63;

/// Most columns of a model whose categories the settings list.
pub const CATEGORY_COLUMNS_MAX: usize = 256;

/// Most categories of a column. The size of the file bounds those of all columns.
pub const CATEGORIES_MAX: usize = 16_384;

/// Longest name of a column with categories, and longest category, in characters.
pub const CATEGORY_CHARS_MAX: usize = 255;

/// Longest objective or delay: more than ten minutes is a wrong unit.
pub(crate) const TIMESPAN_MICROS_MAX: u64 = 600_000_000;

/// Lowest percentile of an objective: below the median it says nothing about users.
pub(crate) const PERCENTILE_MIN: f64 = 50.0;

/// Highest percentile: needs 10,000 requests to be seen once.
pub(crate) const PERCENTILE_MAX: f64 = 99.99;

/// Percentile when the file does not say.
pub(crate) const PERCENTILE_DEFAULT: f64 = 99.0;

/// Deepest nesting; the deepest field of the file lies at depth 4.
pub(crate) const DEPTH_MAX: usize = 16;

/// Longest part of a value that an error message quotes, in characters.
pub(crate) const QUOTED_CHARS_MAX: usize = 60;

/// Longest snapshot line with its terminator, which a reader buffers: the metrics of a node and its
/// pods, with room to spare.
pub const SNAPSHOT_LINE_BYTES_MAX: usize = 1 << 20;

/// Most pods of a snapshot: twice what the largest kubelets run, as a pod with two addresses is
/// listed twice. At some 600 bytes each they fill half a line.
pub const SNAPSHOT_PODS_MAX: usize = 1024;

/// Longest text of metrics in a snapshot, in bytes before JSON encoding: it leaves room for the
/// pods.
pub const SNAPSHOT_METRICS_BYTES_MAX: usize = 256 << 10;

/// Longest line of a latency report with its terminator: writes of up to 4,096 bytes (PIPE_BUF) to
/// a pipe are atomic, so no line of a correct writer is torn.
pub const REPORT_LINE_BYTES_MAX: usize = 2048;

/// Most buckets of a latency report. Servers have 16; as many counts of 20 digits fit a line.
pub const REPORT_BUCKETS_MAX: usize = 32;

/// Longest name of a node, pod or deployment: that of an object's name in Kubernetes.
pub(crate) const OBJECT_NAME_CHARS_MAX: usize = 253;
