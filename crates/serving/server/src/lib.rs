//! The in-pod tree server.
//!
//! `run` is the supervisor, which crate `supervision` makes, and the front process: `front` serves
//! the protocols and passes rows to crate `engine`, which owns memory, queues and workers. `handover`
//! is what a front leaves to the next one. `config_watcher` watches the settings file,
//! `params_client` receives parameters from `albacore-params`; both write to `effective_config`. A
//! worker process is the same binary with a subcommand.
#![forbid(unsafe_code)]

pub mod args;
pub mod cli_models;
mod config_watcher;
mod control;
mod effective_config;
mod event_loops;
pub mod events;
mod front;
mod handover;
mod model_status;
mod params_client;
pub mod run;
mod serve;

#[cfg(any(test, fuzzing))]
pub use front::fuzz_targets;
pub use front::limits;
