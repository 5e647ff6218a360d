//! `albacore experiment`: compares policies over a grid of workers, threads, models and requests.
//!
//! The windows of a comparison are measured within minutes of each other and in random order; the
//! kernel's own scheduling is measured twice, to estimate the noise. Results are appended to a
//! file, so an interrupted run can be resumed; the report is computed only from that file.
#![forbid(unsafe_code)]

mod comparison;
mod error;
mod grid;
mod host_load;
mod job;
mod journal;
mod machine;
mod record;
mod report;
mod run;
mod server;
mod spec;
mod window;

use std::time::{SystemTime, UNIX_EPOCH};

pub use error::ExperimentError;
pub use host_load::{HostLoad, disturbance};
pub use job::{
    Description, FetchedResults, FollowMessage, InputFile, JOB_FOLDER, JOB_RESULTS, JobState,
    WindowCounter, begin, describe, fetched_results, follow, receive, release, run_in_pod,
    run_input, state,
};
pub use journal::{JOURNAL, Results};
pub use record::{Failed, Host, Usage, Window};
pub use report::{report_page, write_report};
pub use run::{Progress, run};
pub use spec::Spec;

fn seconds_since_epoch() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |time| time.as_secs())
}
