//! What repeated measurements show: ratios with confidence intervals, and successive elimination of
//! what is behind the best. Pure: values in, values out.
//!
//! `albacore experiment`, `albacore tune` and the trials of placements on live pods go by it.
#![forbid(unsafe_code)]

mod elimination;
mod histogram;
mod interval;

pub use elimination::{EQUAL, Look, compare, looks};
pub use histogram::histogram_quantile;
pub use interval::{CONFIDENCE, Claim, Interval, SampleMean, median};
