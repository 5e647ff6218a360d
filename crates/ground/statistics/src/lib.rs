//! Statistics of repeated measurements: ratios with confidence intervals, successive elimination of
//! arms, and detection of regressions after a change. Pure functions.
//!
//! Used by `albacore experiment`, `albacore tune` and trials of placements on live pods.
#![forbid(unsafe_code)]

mod change;
mod elimination;
mod histogram;
mod interval;
mod served;

pub use change::Change;
pub use elimination::{EQUAL, Look, compare, looks};
pub use histogram::histogram_quantile;
pub use interval::{CONFIDENCE, Claim, Interval, SampleMean, median};
pub use served::{Served, ServedWindow, metric_sum};
