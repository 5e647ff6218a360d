//! Open-loop benchmark of a server of the Open Inference Protocol v2, the library of `albacore
//! bench serve`. It measures the share of requests that are answered in time.
//!
//! Send times are drawn before the run, independent of the server; latencies count from those
//! times. A run in which the generator itself was late is not valid for the server, and is marked.
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

pub use cpu::cpu_time;
pub use error::BenchError;
pub use probe::{Bench, Probe};
pub use random_model::{FEATURES, ModelShape, random_model, random_model_of};
pub use schedule::Schedule;
pub use search::{HighestRate, find_highest_rate};
pub use served::ServerAddress;
pub use spec::Spec;
pub use staircase::{Staircase, median};
