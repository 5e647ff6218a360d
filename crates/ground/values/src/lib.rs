//! Small value types shared by several wings, and the text of an error with its sources.
#![forbid(unsafe_code)]

mod histogram;
mod ids;
mod random;
mod sentence;
mod time;
mod worker;

pub use histogram::LogHistogram;
pub use ids::{Pid, Tid};
pub use random::XorShift64;
pub use sentence::sentence;
pub use time::{Micros, Nanos};
pub use worker::WorkerIndex;
