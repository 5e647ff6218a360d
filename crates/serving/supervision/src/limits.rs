//! Bounds of the supervisor, with their reasons.

use std::time::Duration;

/// The supervisor checks everything at least this often, even without events.
pub const PASS_PERIOD: Duration = Duration::from_secs(1);

/// Delay before a message is sent again that its receiver had no room for.
pub const RESEND_PERIOD: Duration = Duration::from_millis(1);

/// How long a front waits for room for a message: no operation of the supervisor takes longer than
/// starting a process.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of queued messages for one front: more than a server has models, settings and
/// workers. A front that reads none of that many is stuck.
pub const WAITING_MAX: usize = 4_096;

/// Length in characters of a reason in a message, because messages are bounded.
pub const REASON_CHARS_MAX: usize = 1_000;

/// A standby is started this long after a front became ready: its start takes about 50 ms of cpu
/// time, which clients that reconnect after a takeover need first ...
pub const STANDBY_PAUSE: Duration = Duration::from_millis(300);

/// ... or this long after the front began to serve, because one of its models may never be loaded.
pub const STANDBY_PAUSE_UNREADY: Duration = Duration::from_secs(5);

/// Timeout of the preparation of a standby: it checks every model, about one second per GiB.
pub const STANDBY_DEADLINE: Duration = Duration::from_secs(120);

/// A standby that could not start is started again after a backoff that doubles from this ...
pub const RETRY_PAUSE_MIN: Duration = Duration::from_millis(500);

/// ... up to this.
pub const RETRY_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Consecutive fronts that may die before they are ready; then the server exits, so that its parent
/// process can react.
pub const FAILURES_MAX: u32 = 5;
