//! Bounds of watching settings and loading models, each with its reason.

use std::time::Duration;

/// Period in which the settings file and the model files are polled: a stat of each.
pub const POLL_PERIOD: Duration = Duration::from_millis(250);

/// Polls at which a changed model file must be the same before it is loaded: a copy takes a while.
pub const STABLE_POLLS: u32 = 2;

/// Pause before a failed load is retried; doubles with each failure ...
pub const LOAD_BACKOFF_MIN: Duration = Duration::from_secs(1);

/// ... up to this: a server that recovers is noticed within a minute.
pub const LOAD_BACKOFF_MAX: Duration = Duration::from_secs(60);

/// Results of loads, and calls that load and unload models, that wait to be processed: the threads
/// of further results block, further calls are refused.
pub const MESSAGES_MAX: usize = 64;
