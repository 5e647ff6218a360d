//! Limits of arguments, each with its reason.

/// Cpus for each thread of the front end, where their number is not given ...
pub(crate) const FRONT_THREAD_CPUS: usize = 4;

/// ... but at least so many threads where there are twice as many cpus, as a second one keeps a
/// slow parse from delaying all other requests ...
pub(crate) const FRONT_THREADS_MIN: usize = 2;

/// ... and at most so many: they serve more small requests than the workers of any machine compute.
pub(crate) const FRONT_THREADS_AUTO_MAX: usize = 16;

/// Threads of the front end: as many as the cpus of the largest machines that serve trees.
pub(crate) const FRONT_THREADS_MAX: usize = 256;

/// Largest value of `--cpus-max`: as many as kernels of distributions have.
pub(crate) const CPUS_MAX: usize = 8192;

/// Workers of one server: twice the CPUs of the largest machines that serve trees.
pub(crate) const WORKERS_MAX: usize = 512;

/// Compute threads of one worker: as above.
pub(crate) const THREADS_MAX: usize = 512;

/// Largest value of `--max-rows`.
pub(crate) const BATCH_ROWS_MAX: usize = 1 << 20;

/// Largest value of `--queue-rows`.
pub(crate) const QUEUE_ROWS_MAX: usize = 1 << 24;
