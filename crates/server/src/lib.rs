//! The in-pod tree server: one front process, W worker processes of T threads, one model copy.
//!
//! `engine` owns memory, queues, batches and workers; `front` speaks the protocols and calls
//! `engine`; `worker` is what a worker process runs.
#![forbid(unsafe_code)]

pub mod engine;
pub mod front;
