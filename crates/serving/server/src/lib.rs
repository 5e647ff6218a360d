//! The in-pod tree server: what one front process says, hears and follows.
//!
//! `run` is the front process: `front` speaks the protocols and calls crate `engine`, which owns
//! memory, queues and workers; `live` follows the settings file. A worker process is this very
//! binary with a subcommand.
#![forbid(unsafe_code)]

pub mod args;
pub mod events;
pub mod fixed;
mod front;
mod live;
pub mod run;
mod told;

#[cfg(any(test, fuzzing))]
pub use front::fuzzed;
pub use front::limits;
