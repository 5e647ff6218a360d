//! Every bound of this crate, with its reason.

use std::time::Duration;

/// How long `albacore plan` may search for a better mapping before it prints the best one so far,
/// on a usual machine (the solver counts steps, not time): short enough to wait for at a prompt,
/// long enough for a thousand pivots.
pub(crate) const PLAN_BUDGET: Duration = Duration::from_secs(2);

/// Largest model file read, in bytes: beyond it a typing error (a disk image, a dump) is likelier
/// than a model.
pub(crate) const FILE_BYTES_MAX: u64 = 16 << 30;

/// Longest header of an `.npy` file in bytes: NumPy itself refuses longer ones.
pub(crate) const NPY_HEADER_BYTES_MAX: usize = 10_000;

/// Opening brackets in the header of an `.npy` file: one for a dictionary, one for a shape, and a
/// reserve that lets small structured types be named in the error. Bounds the recursion of npyz.
pub(crate) const NPY_HEADER_NESTING_MAX: usize = 64;

/// Digits in the header of an `.npy` file: axes of 19 digits in all have a product below 10^19,
/// which fits 64 bits.
pub(crate) const NPY_HEADER_DIGITS_MAX: usize = 19;

/// Most elements of a predicted array: interactions grow with the square of the features; 4 Gi
/// doubles are 32 GiB.
pub(crate) const OUTPUT_ELEMENTS_MAX: usize = 1 << 32;

/// Most threads of `albacore predict`: as many as the largest machine has cpus.
pub(crate) const PREDICT_THREADS_MAX: usize = 8192;

/// Longest `--time-limit`: an hour. A problem that needs longer needs another solver.
pub(crate) const TIME_LIMIT_MAX: Duration = Duration::from_secs(3_600);

/// How long `albacore plan --explain` may try exchanges before it prints the result so far,
/// on a usual machine.
pub(crate) const EXPLAIN_BUDGET: Duration = Duration::from_secs(5);

/// Largest file of `--current` in bytes: the plan of as many threads as are allowed takes less than
/// 1 MiB.
pub(crate) const PLAN_BYTES_MAX: u64 = 64 << 20;

/// Largest file of `--distances` in bytes: the matrix of 1,000 cpus takes some 7 MB.
pub(crate) const DISTANCES_BYTES_MAX: u64 = 64 << 20;

/// Most pairs of cpus that are measured: all of 64 cpus, or of 64 cores with a second cpu each.
/// With [`PAIR_TIME_MIN`] each they take 6 s, and starting their threads some more.
pub(crate) const MEASURED_PAIRS_MAX: usize = 64 * 63 / 2 + 64;

/// Pairs of a level that are measured where there are more in all: the file of 512 cpus stays
/// below the 1 MiB of a ConfigMap.
pub(crate) const SAMPLED_PAIRS: usize = 32;

/// How long measuring takes, unless the times for a pair say otherwise.
pub(crate) const MEASURE_TIME: Duration = Duration::from_secs(5);

/// Shortest time for a pair of cpus: some 30 batches, so that some are not preempted.
pub(crate) const PAIR_TIME_MIN: Duration = Duration::from_millis(3);

/// Longest time for a pair: its figure gets no better.
pub(crate) const PAIR_TIME_MAX: Duration = Duration::from_secs(1);

/// Measurements of a pair whose cpus do not answer, before all is given up: some 6 s.
pub(crate) const PAIR_ATTEMPTS: u32 = 3;

/// Most passes of `albacore restore`: each finds only threads that were created with an old mask
/// during the one before.
pub(crate) const RESTORE_PASSES_MAX: usize = 5;

/// Most processes below a PID of `albacore restore`: as many as a kernel has by default.
pub(crate) const RESTORE_PROCESSES_MAX: usize = 65_536;

/// How long `albacore restore --node` waits for the agent: masks are back within a second, its
/// report within some more.
pub(crate) const NODE_RESTORE_TIME_MAX: Duration = Duration::from_secs(60);

/// Polling period of the report of the node meanwhile.
pub(crate) const NODE_RESTORE_PAUSE: Duration = Duration::from_millis(500);

/// Errors that `albacore restore` prints; the rest is only counted.
pub(crate) const RESTORE_ERRORS_SHOWN: usize = 5;
