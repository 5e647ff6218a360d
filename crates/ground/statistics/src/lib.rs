//! What repeated measurements show: ratios with confidence intervals, successive elimination of
//! what is behind the best, and whether servers became worse by a change. Pure: values in, values
//! out.
//!
//! `albacore experiment`, `albacore tune` and the trials of placements on live pods go by it.
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
