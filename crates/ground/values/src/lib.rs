//! Small value types shared by several wings.
#![forbid(unsafe_code)]

mod histogram;
mod ids;
mod random;
mod time;
mod worker;

pub use histogram::LogHistogram;
pub use ids::{Pid, Tid};
pub use random::XorShift64;
pub use time::{Micros, Nanos};
pub use worker::WorkerIndex;
