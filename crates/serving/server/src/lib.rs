//! The inference server for tree models, which runs in a pod.
//!
//! `run` starts the supervisor (crate `supervision`) or a front, which `serve` runs, after
//! `standby` if it waits to take over from another front. `front` serves the protocols and passes
//! rows to crate `engine`, which owns memory, queues and workers. Crate `server-args` is the
//! command line, `live-settings` watches the settings file, `params-client` receives parameters
//! from `albacore-params`. Fronts and workers are the same binary with a subcommand.
#![forbid(unsafe_code)]

mod event_loops;
mod front;
pub mod run;
mod serve;
mod standby;

#[cfg(any(test, fuzzing))]
pub use front::fuzz_targets;
pub use front::limits;
