//! Bounds of this crate, each with its reason.

use std::time::Duration;

/// A ready API server takes 3 s on two quiet cores, 11 s on busy ones; this is for a machine that does much else.
pub(crate) const READY_TIME_MAX: Duration = Duration::from_secs(120);

/// Pause between two looks whether a program is ready.
pub(crate) const READY_PERIOD: Duration = Duration::from_millis(50);

/// Bytes of a log that an error shows.
pub(crate) const LOG_TAIL_BYTES: u64 = 4_000;
