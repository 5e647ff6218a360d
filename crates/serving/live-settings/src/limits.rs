//! Bounds of watching settings and loading models, with their reasons.

use std::time::Duration;

/// Interval at which the settings file and the model files are polled with one `stat` each.
pub const POLL_PERIOD: Duration = Duration::from_millis(250);

/// Number of consecutive polls at which a changed model file must have the same stamp before it is
/// loaded, because copying a file takes time.
pub const STABLE_POLLS: u32 = 2;

/// Initial backoff after a failed load; doubled on each failure ...
pub const LOAD_BACKOFF_MIN: Duration = Duration::from_secs(1);

/// ... up to this maximum: a recovered store is used again within a minute.
pub const LOAD_BACKOFF_MAX: Duration = Duration::from_secs(60);

/// Capacity of the queue of load results and of API calls that load and unload models. If it is
/// full, threads that send results block and further calls are rejected.
pub const MESSAGES_MAX: usize = 64;
