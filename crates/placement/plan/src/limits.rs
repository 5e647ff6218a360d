//! Limits of this crate, each with its reason.

/// Number of foreign changes of one thread's mask within [`CHANGES_WINDOW_MICROS`] that are
/// repaired immediately. After the next one the thread is backed off: a program that writes a
/// fourth time does so on purpose, or periodically.
pub const REPAIRS_MAX: u32 = 3;

/// Time window over which foreign changes are counted, in microseconds: one minute. A person with
/// `taskset` is slower. This limits repairs to 180 per hour and thread in any case.
pub const CHANGES_WINDOW_MICROS: u64 = 60_000_000;

/// Initial back-off, in microseconds. It doubles after each attempt that does not last as long as
/// the preceding pause ...
pub const BACK_OFF_MICROS_MIN: u64 = 60_000_000;

/// ... up to this maximum, in microseconds: one hour. A thread whose mask is always changed
/// immediately gets 9 writes in the first hour (its pin, 3 repairs, and attempts after 1, 3, 7, 15
/// and 31 minutes), then one per hour.
pub const BACK_OFF_MICROS_MAX: u64 = 3_600_000_000;

/// Maximum depth of wrappers (`sh`, `tini`, a launcher) around a pre-fork server.
pub const WRAPPERS_MAX: usize = 32;

/// CPU time, in clock ticks (100 per second), from which a thread without a rank is considered a
/// compute thread that was mistaken for an extra one: a tenth of a second is more than an idle
/// helper thread of a library ever uses.
pub const BUSY_TICKS: u64 = 10;

/// A ranked thread is replaced by a busy extra thread that used this many times its CPU time.
pub const BUSY_RATIO: u64 = 10;

/// Minimum age at which a group of similar children may replace the current workers, in
/// microseconds: between fork and exec, which takes milliseconds, a child looks like its parent.
pub const GROUP_AGE_MICROS: u64 = 100_000;

/// Minimum age, in microseconds, at which a process without children is considered a non-forking
/// server if one worker was requested. A younger one may be a master that is still importing its
/// application: if it were pinned, its workers would inherit a mask of one cpu. A master that
/// imports for longer is pinned, and repaired with its first worker.
pub const NON_FORKING_AGE_MICROS: u64 = 3_000_000;

/// Time after a change of the cpuset during which a mask equal to the whole cpuset is attributed to
/// the kernel, in microseconds. A kernel that does not remember requested masks publishes the new
/// cpuset first and then overwrites the masks one thread at a time, including masks verified in
/// between. Five seconds are a thousand times longer than this takes on a machine that is not
/// overloaded.
pub const SETTLING_MICROS: u64 = 5_000_000;

/// Maximum event loops placed per subject, regardless of thread names: a serving front end and a
/// standby, each with at most 256 as limited by `spec.front.threads`.
pub const FRONT_THREADS_MAX: usize = 512;

/// Maximum threads of a mapping parsed from text: the limit of the solver.
pub(crate) const MAPPING_THREADS_MAX: usize = albacore_solver::limits::SLOTS_MAX as usize;
