//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Time budget of `albacore plan` for finding a better mapping before it prints the best one so
/// far, on a typical machine (the solver counts steps, not time): short enough for interactive use,
/// long enough for a thousand pivots.
pub(crate) const PLAN_BUDGET: Duration = Duration::from_secs(2);

/// Largest model file read, in bytes: a larger file is more likely a mistake (a disk image, a dump)
/// than a model.
pub(crate) const FILE_BYTES_MAX: u64 = 16 << 30;

/// Longest header of an `.npy` file in bytes: NumPy itself rejects longer ones.
pub(crate) const NPY_HEADER_BYTES_MAX: usize = 10_000;

/// Opening brackets in the header of an `.npy` file: one for a dictionary, one for a shape, and a
/// reserve so that errors can name small structured types. Bounds the recursion of npyz.
pub(crate) const NPY_HEADER_NESTING_MAX: usize = 64;

/// Digits in the header of an `.npy` file: axes with 19 digits in total have a product below 10^19,
/// which fits in 64 bits.
pub(crate) const NPY_HEADER_DIGITS_MAX: usize = 19;

/// Most elements of a predicted array: the size of interactions is quadratic in the features; 4 Gi
/// doubles are 32 GiB.
pub(crate) const OUTPUT_ELEMENTS_MAX: usize = 1 << 32;

/// Most threads of `albacore predict`: the number of CPUs of the largest machines.
pub(crate) const PREDICT_THREADS_MAX: usize = 8192;

/// Longest `--time-limit`: one hour. A problem that needs longer needs another solver.
pub(crate) const TIME_LIMIT_MAX: Duration = Duration::from_secs(3_600);

/// Time budget of `albacore plan --explain` for trying exchanges before it prints the result so
/// far, on a typical machine.
pub(crate) const EXPLAIN_BUDGET: Duration = Duration::from_secs(5);

/// Largest file of `--current` in bytes: a plan with the largest permitted number of threads takes
/// less than 1 MiB.
pub(crate) const PLAN_BYTES_MAX: u64 = 64 << 20;

/// Largest file of `--distances` in bytes: the matrix of 1,000 cpus takes some 7 MB.
pub(crate) const DISTANCES_BYTES_MAX: u64 = 64 << 20;

/// Most pairs of CPUs that are measured: all pairs of 64 CPUs, or of 64 cores plus one pair within
/// each core. With [`PAIR_TIME_MIN`] each, they take 6 s, plus the time for starting their threads.
pub(crate) const MEASURED_PAIRS_MAX: usize = 64 * 63 / 2 + 64;

/// Pairs measured per level if there are more pairs in total, so that the file of 512 CPUs stays
/// below the 1 MiB limit of a ConfigMap.
pub(crate) const SAMPLED_PAIRS: usize = 32;

/// Total time of a measurement, unless the limits per pair require a different one.
pub(crate) const MEASURE_TIME: Duration = Duration::from_secs(5);

/// Shortest time per pair of CPUs: about 30 batches, so that some of them are not preempted.
pub(crate) const PAIR_TIME_MIN: Duration = Duration::from_millis(3);

/// Longest time per pair: more time does not improve the result.
pub(crate) const PAIR_TIME_MAX: Duration = Duration::from_secs(1);

/// Attempts to measure a pair whose CPUs do not respond before the measurement is aborted: about 6
/// s.
pub(crate) const PAIR_ATTEMPTS: u32 = 3;

/// Most passes of `albacore restore`: each pass only finds threads that were created with an old
/// mask during the previous pass.
pub(crate) const RESTORE_PASSES_MAX: usize = 5;

/// Most processes below a PID of `albacore restore`: the default process limit of the kernel.
pub(crate) const RESTORE_PROCESSES_MAX: usize = 65_536;

/// How long `albacore restore --node` waits for the agent: masks are given back within a second,
/// and its report follows some seconds later.
pub(crate) const NODE_RESTORE_TIME_MAX: Duration = Duration::from_secs(60);

/// Polling interval of the node's report meanwhile.
pub(crate) const NODE_RESTORE_PAUSE: Duration = Duration::from_millis(500);

/// Errors that `albacore restore` prints; further ones are only counted.
pub(crate) const RESTORE_ERRORS_SHOWN: usize = 5;
