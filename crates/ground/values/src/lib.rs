//! Small values that several wings share, each defined once.
#![forbid(unsafe_code)]

mod ids;
mod time;

pub use ids::{Pid, Tid};
pub use time::Micros;
