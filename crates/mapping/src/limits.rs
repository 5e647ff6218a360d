//! Every bound of this crate, with its reason.

/// Most workers. Above any server that runs on one node; keeps counts in `u16` and pairs in `i64`.
pub const WORKERS_MAX: u16 = 256;

/// Most threads of one worker. Above the cpus of a common node.
pub const THREADS_MAX: u16 = 256;

/// Most threads of all workers, W x T. The solver keeps one count per worker and cpu domain and looks at
/// pairs of threads of one worker; 64 x 64 = 4,096 is the size it is built for, this is four times that.
pub const SLOTS_MAX: u32 = 16_384;

/// Most cpus. The largest machines sold have 1,024 cpus or fewer.
pub const CPUS_MAX: usize = 1_024;

/// Largest distance, in clock cycles: with it and [`SLOTS_MAX`] no objective overflows an `i64`.
pub const DISTANCE_MAX: u32 = 1_000_000;
