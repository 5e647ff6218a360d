//! Shared by the long-running programs of Albacore: command lines, logs, termination signals,
//! listeners, and HTTP endpoints for probes and scrapers.
#![forbid(unsafe_code)]

mod command_line;
#[cfg(feature = "listener")]
mod exposition;
#[cfg(feature = "listener")]
mod limits;
#[cfg(feature = "listener")]
mod listener;
mod logs;
#[cfg(feature = "listener")]
mod monitoring;
#[cfg(feature = "listener")]
mod process;
mod signals;

pub use command_line::{
    EXIT_BROKEN_INVARIANT, EXIT_USAGE, exit_code, parse_arguments, parse_arguments_from,
};
#[cfg(feature = "listener")]
pub use exposition::MetricsFormat;
#[cfg(feature = "listener")]
pub use limits::ACCEPT_PAUSE;
#[cfg(feature = "listener")]
pub use listener::{ListenError, listen, listen_on_each};
pub use logs::{LogArgs, LogFormat, LogsError, start_logs};
#[cfg(feature = "listener")]
pub use monitoring::{MonitoringEndpoints, serve_monitoring};
pub use signals::termination_signal;
