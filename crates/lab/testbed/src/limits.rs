//! Bounds of this crate, each with its reason.

use std::time::Duration;

/// An API server becomes ready in 3 s on two idle cores, in 11 s on busy ones; this is for a
/// heavily loaded machine.
pub(crate) const READY_TIME_MAX: Duration = Duration::from_secs(120);

/// Timeout of a response of the API server.
pub(crate) const READ_TIME_MAX: Duration = Duration::from_secs(60);

/// Polling period of the readiness of a program.
pub(crate) const READY_PERIOD: Duration = Duration::from_millis(50);

/// Bytes of a log that an error quotes.
pub(crate) const LOG_TAIL_BYTES: u64 = 4_000;

/// A node's cgroups and folder can be removed 0.1 s after its last process exits; this is for a
/// heavily loaded machine.
pub(crate) const REMOVAL_TIME_MAX: Duration = Duration::from_secs(30);

/// Pause between two attempts of the removal.
pub(crate) const REMOVAL_PERIOD: Duration = Duration::from_millis(50);

/// Delay before a node's program that exited is restarted.
pub(crate) const RESTART_PAUSE: Duration = Duration::from_millis(500);

/// An emulated machine prints its first line after 10 s on two idle cores; this is for busy ones.
pub(crate) const GUEST_FIRST_OUTPUT_MAX: Duration = Duration::from_secs(120);

/// An emulated machine completes a test in 110 s on two idle cores.
pub(crate) const GUEST_TIME_MAX: Duration = Duration::from_secs(300);
