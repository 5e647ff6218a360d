//! A trial of placements on a live pod: each arm (a way to place its threads, or none) has a window
//! in every round, in an order that changes; arms behind the best by more than the noise are left
//! out, and the verdict says which stays. Pure: time and samples are arguments.
//!
//! Start with [`SubjectTrial`]. The statistics are those of `albacore tune`
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
pub use sample::{Figure, LatencyHistogram, PodUsage, Sample};
pub use subject_trial::{Reading, SubjectTrial};
pub use verdict::{Outcome, Verdict};
