//! Every bound of the supervisor, with its reason.

use std::time::Duration;

/// The supervisor looks at everything at least this often, whatever comes.
pub const PASS_PERIOD: Duration = Duration::from_secs(1);

/// How soon a message is sent again that its receiver had no room for.
pub const RESEND_PERIOD: Duration = Duration::from_millis(1);

/// How long a front waits for room for a message: the supervisor does nothing that takes longer
/// than starting a process.
pub const SEND_PATIENCE: Duration = Duration::from_secs(10);

/// Messages that wait for one front: more than models, settings and workers of a server. A front
/// that reads none of so many does not work any more.
pub const WAITING_MAX: usize = 4_096;

/// Characters of a reason in a message, which is bounded.
pub const REASON_CHARS_MAX: usize = 1_000;

/// A standby is started this long after a front became ready: its start takes some 50 ms of cpu
/// time, which clients that connect again after a takeover need first ...
pub const STANDBY_PAUSE: Duration = Duration::from_millis(300);

/// ... or this long after the front began to serve: one of its models may never be loaded.
pub const STANDBY_PAUSE_UNREADY: Duration = Duration::from_secs(5);

/// How long a standby may take to be prepared: it checks every model, about a second for each GiB.
pub const STANDBY_DEADLINE: Duration = Duration::from_secs(120);

/// A standby that could not start is started again after a pause that doubles from this ...
pub const RETRY_PAUSE_MIN: Duration = Duration::from_millis(500);

/// ... up to this.
pub const RETRY_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Consecutive fronts that may die before they are ready: then the server ends, so that whoever
/// started it learns of it.
pub const FAILURES_MAX: u32 = 5;
