//! Statistics of repeated measurements: ratios with confidence intervals, successive elimination of
//! arms, and detection of regressions after a change. Pure functions.
//!
//! Used by `albacore experiment`, `albacore tune` and trials of placements on live pods.
#![forbid(unsafe_code)]

mod elimination;
mod histogram;
mod interval;
mod regression_check;
mod request_counters;

pub use elimination::{ArmComparison, EQUIVALENCE_RATIO, compare, comparison_rounds};
pub use histogram::histogram_quantile;
pub use interval::{CONFIDENCE, Interval, SampleMean, SpeedDifference, median};
pub use regression_check::RegressionCheck;
pub use request_counters::{RequestCounters, RequestWindow, metric_sum};
