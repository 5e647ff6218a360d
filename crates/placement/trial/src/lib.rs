//! A trial of placements on a live pod: in every round, each arm (a placement method, or none) is
//! measured in one window, in varying order. Arms that are worse than the best by more than the
//! noise are eliminated, and the verdict selects the arm to keep. Pure: time and samples are
//! arguments.
//!
//! Start with [`SubjectTrial`]. Uses the same statistics as `albacore tune`
//! (`albacore-statistics`).
#![forbid(unsafe_code)]

mod arm;
mod limits;
mod load_watch;
mod order;
mod run;
mod sample;
mod subject_trial;
mod verdict;

pub use arm::Arm;
pub use limits::{LOAD_REPORT_PERIOD, REPORT_PERIOD, REPORT_WAIT_MAX};
pub use run::{TrialRun, TrialSpec, TrialState};
pub use sample::{LatencyHistogram, PodUsage, Sample, TrialMetric};
pub use subject_trial::{SubjectSnapshot, SubjectTrial};
pub use verdict::{Outcome, Verdict};
