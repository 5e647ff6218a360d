//! Bounds of the API, each with its reason. The schema, the rules and the reader use them.

/// Most workers of one pod. The largest two-socket servers of 2026 have 768 cpus; more than 256
/// processes in one container are a mistake.
pub const WORKERS_MAX: u16 = 256;

/// Most threads of one worker, for the same reason.
pub const THREADS_MAX: u16 = 256;

/// Most threads of one pod, workers x threads. The placer's CPU and memory bounds are tested with
/// 2,000 managed threads; beyond this the mapping would still be found, but not within its time
/// bound.
pub const SLOTS_MAX: u32 = 2048;

/// Largest distance between two cpus in clock cycles, the bound of the solver.
pub const DISTANCE_MAX: u32 = 1_000_000;

/// Most threads of the front end, the bound of the server.
pub const FRONT_THREADS_MAX: u16 = 256;

/// Largest weight of a model, as of cgroup's `cpu.weight`; the smallest is 1.
pub const WEIGHT_MAX: u16 = 10_000;

/// Default weight of a model, as of cgroup's `cpu.weight`.
pub const WEIGHT_DEFAULT: u16 = 100;

/// Default number of replicas, as of a Deployment.
pub const REPLICAS_DEFAULT: i32 = 1;

/// Most replicas; what the `scale` subresource may ask for.
pub const REPLICAS_MAX: i32 = 10_000;

/// Most models of one server: each has its own queue and its own shared memory.
pub const MODELS_MAX: usize = 32;

/// Most outputs that a model may list: the number of kinds.
pub const OUTPUTS_MAX: usize = 5;

/// Most names of classes of a model, the bound of the server's settings.
pub const CLASSES_MAX: usize = albacore_settings::CLASSES_MAX;

/// Longest name of a class, in characters, the bound of the server's settings.
pub const CLASS_CHARS_MAX: usize = albacore_settings::CLASS_CHARS_MAX;

/// Most columns of a model whose categories are listed, the bound of the server's settings.
pub const CATEGORY_COLUMNS_MAX: usize = albacore_settings::CATEGORY_COLUMNS_MAX;

/// Most categories of a column, the bound of the server's settings.
pub const CATEGORIES_MAX: usize = albacore_settings::CATEGORIES_MAX;

/// Longest category, in characters, the bound of the server's settings.
pub const CATEGORY_CHARS_MAX: usize = albacore_settings::CATEGORY_CHARS_MAX;

/// Longest model name, in characters; it is part of a URL and a metric label.
pub const MODEL_NAME_CHARS_MAX: usize = 63;

/// Longest model URI, in characters: `PATH_MAX` less the scheme, halved to bound the cost of rules.
pub const URI_CHARS_MAX: usize = 2048;

/// Most pods of one node in its `NodePlacement`; the kubelet's own bound is 110, and providers that
/// raise it stop at 500.
pub const NODE_PODS_MAX: usize = 512;

/// Longest name of an `InferenceDeployment`: it becomes a Service and so a DNS label.
pub const NAME_CHARS_MAX: usize = 63;

/// Most rows that one batch may hold.
pub const BATCH_ROWS_MAX: u32 = 65_536;

/// Default rows per batch: trees gain little from larger batches.
pub const BATCH_ROWS_DEFAULT: u32 = 1024;

/// Most rows that may wait: 4 Mi rows of 64 features in float32 are 1 GiB of shared memory.
pub const QUEUE_ROWS_MAX: u32 = 4_194_304;

/// Default number of rows that may wait.
pub const QUEUE_ROWS_DEFAULT: u32 = 65_536;

/// Longest duration of the API. A latency objective or a delay beyond ten minutes is a wrong unit.
pub const TIMESPAN_MICROS_MAX: u64 = 600_000_000;

/// Lowest percentile that an objective may name: below the median it says nothing about users.
pub const PERCENTILE_MIN: f64 = 50.0;

/// Highest percentile: needs 10,000 requests to be seen once.
pub const PERCENTILE_MAX: f64 = 99.99;

/// Largest file that is read as an `InferenceDeployment`: what etcd takes as one object.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// Deepest nesting of a file. The deepest field of a pod template lies at depth 16.
pub const FILE_DEPTH_MAX: usize = 64;

/// Most violations that one reading reports; the rest are counted.
pub const VIOLATIONS_MAX: usize = 20;

/// Longest piece of a user's value that a message repeats, in characters.
pub const QUOTED_CHARS_MAX: usize = 60;

/// Fewest rounds of a trial: of fewer, the interval at 99 % is wider than most differences.
pub const TRIAL_ROUNDS_MIN: u16 = 8;

/// Most rounds of a trial: four placements with windows of 10 s take 50 minutes.
pub const TRIAL_ROUNDS_MAX: u16 = 64;

/// Fewest placements in a trial: one is compared with nothing.
pub const TRIAL_ARMS_MIN: usize = 2;

/// Most placements in a trial: there are no more.
pub const TRIAL_ARMS_MAX: usize = 4;

/// Shortest window of a trial: the masks of a large pod take some milliseconds to write, caches
/// longer to fill.
pub const TRIAL_WINDOW_MICROS_MIN: u64 = 1_000_000;

/// Longest text of a scheduler or kubelet that is repeated, in characters: a condition has room for
/// it, the names around it and the remedy.
pub const POD_MESSAGE_CHARS_MAX: usize = 400;

/// Longest `cpuTopology` of a NodePlacement, in bytes: what a topology's parser takes.
pub const TOPOLOGY_BYTES_MAX: usize = 1024;

/// Longest annotation `albacore.dev/place`, in bytes: all of its fields with the longest name of a
/// container, written with spaces.
pub const PLACE_BYTES_MAX: usize = 512;
