//! Bounds of the API, each with its reason. Used by the schema, the rules and the reader.

/// Maximum workers of a pod. The largest two-socket servers of 2026 have 768 CPUs; more than 256
/// processes in one container are a mistake.
pub const WORKERS_MAX: u16 = 256;

/// Maximum threads of a worker, for the same reason.
pub const THREADS_MAX: u16 = 256;

/// Maximum threads of a pod, workers x threads. The placer's CPU and memory bounds are tested with
/// 2,000 managed threads; with more threads the mapping would still be found, but not within its
/// time bound.
pub const SLOTS_MAX: u32 = 2048;

/// Maximum distance between two CPUs in clock cycles, the bound of the solver.
pub const DISTANCE_MAX: u32 = 1_000_000;

/// Maximum threads of the front end, the bound of the server.
pub const FRONT_THREADS_MAX: u16 = 256;

/// Maximum weight of a model, as for cgroup's `cpu.weight`; the minimum is 1.
pub const WEIGHT_MAX: u16 = 10_000;

/// Default weight of a model, as for cgroup's `cpu.weight`.
pub const WEIGHT_DEFAULT: u16 = 100;

/// Default number of replicas, as for a Deployment.
pub const REPLICAS_DEFAULT: i32 = 1;

/// Maximum replicas, also through the `scale` subresource.
pub const REPLICAS_MAX: i32 = 10_000;

/// Maximum models of a server: each has its own queue and its own shared memory.
pub const MODELS_MAX: usize = 32;

/// Maximum outputs that a model may list: the number of kinds.
pub const OUTPUTS_MAX: usize = 5;

/// Maximum class names of a model, the bound of the server's settings.
pub const CLASSES_MAX: usize = albacore_settings::CLASSES_MAX;

/// Maximum length of a class name, in characters, the bound of the server's settings.
pub const CLASS_CHARS_MAX: usize = albacore_settings::CLASS_CHARS_MAX;

/// Maximum columns of a model with listed categories, the bound of the server's settings.
pub const CATEGORY_COLUMNS_MAX: usize = albacore_settings::CATEGORY_COLUMNS_MAX;

/// Maximum categories of a column, the bound of the server's settings.
pub const CATEGORIES_MAX: usize = albacore_settings::CATEGORIES_MAX;

/// Maximum length of a category, in characters, the bound of the server's settings.
pub const CATEGORY_CHARS_MAX: usize = albacore_settings::CATEGORY_CHARS_MAX;

/// Maximum length of a model name, in characters; it is part of a URL and a metric label.
pub const MODEL_NAME_CHARS_MAX: usize = 63;

/// Maximum length of a model URI, in characters: `PATH_MAX` minus the scheme, halved to bound the
/// cost of rules.
pub const URI_CHARS_MAX: usize = 2048;

/// Maximum pods of a node in its `NodePlacement`; the default bound of the kubelet is 110, and
/// providers that raise it stop at 500.
pub const NODE_PODS_MAX: usize = 512;

/// Maximum length of the name of an `InferenceDeployment`, which is also the name of a Service and
/// thus a DNS label.
pub const NAME_CHARS_MAX: usize = 63;

/// Maximum rows of a batch.
pub const BATCH_ROWS_MAX: u32 = 65_536;

/// Default maximum rows of a batch: trees gain little from larger batches.
pub const BATCH_ROWS_DEFAULT: u32 = 1024;

/// Maximum queued rows: 4 Mi rows of 64 features in float32 are 1 GiB of shared memory.
pub const QUEUE_ROWS_MAX: u32 = 4_194_304;

/// Default maximum of queued rows.
pub const QUEUE_ROWS_DEFAULT: u32 = 65_536;

/// Maximum duration in the API. A latency objective or delay of more than ten minutes is a wrong
/// unit.
pub const TIMESPAN_MICROS_MAX: u64 = 600_000_000;

/// Lowest percentile of an objective; below the median it is meaningless for users.
pub const PERCENTILE_MIN: f64 = 50.0;

/// Highest percentile of an objective; 10,000 requests are needed for one violation.
pub const PERCENTILE_MAX: f64 = 99.99;

/// Maximum size of a file with an `InferenceDeployment`: the largest object that etcd accepts.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// Maximum nesting depth of a file. The deepest field of a pod template is at depth 16.
pub const FILE_DEPTH_MAX: usize = 64;

/// Maximum violations that are reported at once; the rest are counted.
pub const VIOLATIONS_MAX: usize = 20;

/// Maximum length of a user's value that is quoted in a message, in characters.
pub const QUOTED_CHARS_MAX: usize = 60;

/// Minimum rounds of a trial: with fewer, the interval at 99 % is wider than most differences.
pub const TRIAL_ROUNDS_MIN: u16 = 8;

/// Maximum rounds of a trial: four placements with windows of 10 s take 50 minutes.
pub const TRIAL_ROUNDS_MAX: u16 = 64;

/// Minimum placements in a trial, because a single one cannot be compared.
pub const TRIAL_ARMS_MIN: usize = 2;

/// Maximum placements in a trial: the number of arms.
pub const TRIAL_ARMS_MAX: usize = 4;

/// Minimum window of a trial: writing the masks of a large pod takes some milliseconds, filling
/// caches takes longer.
pub const TRIAL_WINDOW_MICROS_MIN: u64 = 1_000_000;

/// Maximum length of a scheduler's or kubelet's text that is quoted, in characters: a condition has
/// room for it, the names around it and the remedy.
pub const POD_MESSAGE_CHARS_MAX: usize = 400;

/// Maximum length of `cpuTopology` in a NodePlacement, in bytes, the bound of the topology parser.
pub const TOPOLOGY_BYTES_MAX: usize = 1024;

/// Maximum length of the annotation `albacore.dev/place`, in bytes: all of its fields with the
/// longest container name, written with spaces.
pub const PLACE_BYTES_MAX: usize = 512;
