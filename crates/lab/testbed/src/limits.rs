//! Bounds of this crate, each with its reason.

use std::time::Duration;

/// A ready API server takes 3 s on two quiet cores, 11 s on busy ones; this is for a machine that
/// does much else.
pub(crate) const READY_TIME_MAX: Duration = Duration::from_secs(120);

/// Longest wait for an answer of the API server.
pub(crate) const READ_TIME_MAX: Duration = Duration::from_secs(60);

/// Pause between two looks whether a program is ready.
pub(crate) const READY_PERIOD: Duration = Duration::from_millis(50);

/// Bytes of a log that an error shows.
pub(crate) const LOG_TAIL_BYTES: u64 = 4_000;

/// A node's cgroups and folder are gone 0.1 s after its last process; this is for a machine that
/// does much else.
pub(crate) const REMOVAL_TIME_MAX: Duration = Duration::from_secs(30);

/// Pause between two attempts to remove them.
pub(crate) const REMOVAL_PERIOD: Duration = Duration::from_millis(50);

/// Pause before a node's program that ended is started again.
pub(crate) const RESTART_PAUSE: Duration = Duration::from_millis(500);

/// An emulated machine writes its first line after 10 s on two quiet cores; this is for busy ones.
pub(crate) const GUEST_BOOT_MAX: Duration = Duration::from_secs(120);

/// It does a test's work in 110 s on two quiet cores.
pub(crate) const GUEST_TIME_MAX: Duration = Duration::from_secs(300);
