//! Small values that several wings share, each defined once.
#![forbid(unsafe_code)]

mod histogram;
mod ids;
mod random;
mod time;

pub use histogram::LogHistogram;
pub use ids::{Pid, Tid};
pub use random::{SplitMix64, XorShift64, Xoshiro256};
pub use time::Micros;
