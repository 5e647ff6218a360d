//! Bounds of this crate, each with its reason.

/// Foreign changes of one thread's mask that are repaired at once within [`CHANGES_WINDOW_MICROS`];
/// after the next one the thread is left as it is for a while: a program that writes a fourth time
/// does so on purpose, or by a timer.
pub const REPAIRS_MAX: u32 = 3;

/// The time in which foreign changes count together, microseconds: one minute. A person with
/// `taskset` is slower. So a thread is repaired 180 times an hour at most, whatever is done to it.
pub const CHANGES_WINDOW_MICROS: u64 = 60_000_000;

/// The first pause in which a thread is left as it is, microseconds. Each try that does not last as
/// long as the pause before it doubles the pause ...
pub const BACK_OFF_MICROS_MIN: u64 = 60_000_000;

/// ... up to this, microseconds: one hour. A thread whose mask is changed back at once gets 9
/// writes in the first hour (its pin, 3 repairs, and tries after 1, 3, 7, 15 and 31 minutes), then
/// one an hour.
pub const BACK_OFF_MICROS_MAX: u64 = 3_600_000_000;

/// Depth to which wrappers (`sh`, `tini`, a launcher) around a pre-fork server are followed.
pub const WRAPPERS_MAX: usize = 32;

/// Cpu time, in clock ticks (100 a second), from which a thread without a rank counts as a compute
/// thread that was taken for an extra one: a tenth of a second is more than a library's idle helper
/// ever uses.
pub const BUSY_TICKS: u64 = 10;

/// A thread in a rank yields it to a busy extra thread that used this many times its cpu time.
pub const BUSY_RATIO: u64 = 10;

/// Age from which a group of like children may take the place of the workers, microseconds: a child
/// looks like its parent between fork and exec, which takes milliseconds.
pub const GROUP_AGE_MICROS: u64 = 100_000;

/// Age from which a process that has forked nothing is taken for a server that does not fork, if
/// one worker was asked for, microseconds. Before that it may be a master that is still importing
/// its application: pinned then, it would spawn workers on one cpu. One that imports longer
/// is pinned, and repaired with its first worker.
pub const LONER_AGE_MICROS: u64 = 3_000_000;

/// Time after a change of the cpuset in which a mask that became the whole cpuset is the kernel's
/// doing, microseconds. A kernel that forgets pins shows the new cpuset first and writes the masks
/// after it, one thread at a time: what was verified in between is overwritten. Five seconds are a
/// thousand times what that takes on a machine that is not starved.
pub const SETTLING_MICROS: u64 = 5_000_000;

/// Event loops placed of one subject, whatever threads call themselves: a serving front end and one
/// that stands by, each with the 256 that `spec.front.threads` allows at most.
pub const FRONT_THREADS_MAX: usize = 512;

/// Most threads of a mapping that is read from a text: as many as the solver takes.
pub(crate) const MAPPING_THREADS_MAX: usize = albacore_solver::limits::SLOTS_MAX as usize;
