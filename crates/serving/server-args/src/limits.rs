//! Limits of arguments, with their reasons.

/// Cpus per front-end thread if `--front-threads` is not given ...
pub(crate) const FRONT_THREAD_CPUS: usize = 4;

/// ... but at least this many threads on machines with twice as many cpus, because a second thread
/// keeps a slow parse from delaying all other requests ...
pub(crate) const FRONT_THREADS_MIN: usize = 2;

/// ... and at most this many: they handle more small requests than the workers of any machine
/// compute.
pub(crate) const FRONT_THREADS_AUTO_MAX: usize = 16;

/// Maximum number of front-end threads: the cpus of the largest machines that serve trees.
pub(crate) const FRONT_THREADS_MAX: usize = 256;

/// Largest value of `--cpus-max`: the maximum number of cpus of distribution kernels.
pub(crate) const CPUS_MAX: usize = 8192;

/// Maximum number of workers of a server: twice the CPUs of the largest machines that serve trees.
pub(crate) const WORKERS_MAX: usize = 512;

/// Maximum number of compute threads of a worker: as above.
pub(crate) const THREADS_MAX: usize = 512;

/// Largest value of `--max-rows`.
pub(crate) const BATCH_ROWS_MAX: usize = 1 << 20;

/// Largest value of `--queue-rows`.
pub(crate) const QUEUE_ROWS_MAX: usize = 1 << 24;
