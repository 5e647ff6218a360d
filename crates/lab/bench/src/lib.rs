//! How much of an open load a server of the Open Inference Protocol v2 answers in time: what
//! `albacore bench serve` runs.
//!
//! Requests are sent at times drawn before the run, whatever the server does; latencies count from
//! those times. A run in which the generator itself was late says nothing of the server, and is
//! marked.
#![forbid(unsafe_code)]

pub mod comparison;
mod cpu;
mod error;
mod mix;
pub mod print;
mod probe;
mod random_model;
mod schedule;
mod search;
mod served;
mod spec;
mod staircase;
mod target;

pub use cpu::time_of as cpu_time;
pub use error::BenchError;
pub use probe::{Bench, Probe};
pub use random_model::{FEATURES, ModelShape, random_model, random_model_of};
pub use schedule::Schedule;
pub use search::{Found, highest};
pub use served::ServerAddress;
pub use spec::Spec;
pub use staircase::{Staircase, median};
