//! The in-pod tree server: one front process, W worker processes of T threads, one model copy.
//!
//! `run` is the front process: `engine` owns memory, queues, batches and workers; `front` speaks
//! the protocols and calls `engine`; `live` follows the settings file. `worker` is what a worker
//! process runs. `ring`, `orders` and `layout` are what the two processes must agree on.
#![forbid(unsafe_code)]

pub mod args;
pub mod engine;
pub mod events;
mod front;
mod layout;
pub mod limits;
mod live;
mod orders;
mod ring;
pub mod run;
pub mod worker;
