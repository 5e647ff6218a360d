//! What the programs of Albacore that run for long have in common: how a command line begins, how
//! logs are printed, which signals end them, how they listen and what a probe is told. No work of
//! theirs.
#![forbid(unsafe_code)]

mod command_line;
#[cfg(feature = "listener")]
mod exposition;
#[cfg(feature = "listener")]
mod limits;
#[cfg(feature = "listener")]
mod listening;
mod logs;
#[cfg(feature = "listener")]
mod process;
mod signals;
#[cfg(feature = "listener")]
mod site;

pub use command_line::{BROKEN, USAGE, arguments, ended};
#[cfg(feature = "listener")]
pub use exposition::MetricsFormat;
#[cfg(feature = "listener")]
pub use limits::ACCEPT_PAUSE;
#[cfg(feature = "listener")]
pub use listening::{ListenError, listen};
pub use logs::{LogFormat, LogsError, start_logs};
pub use signals::terminated;
#[cfg(feature = "listener")]
pub use site::{Pages, serve_pages};
