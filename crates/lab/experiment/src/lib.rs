//! `albacore experiment`: policies compared over a grid of workers, threads, models and requests.
//!
//! Every window of a comparison sees the machine within minutes of the others and in random order;
//! the kernel's own scheduling is measured twice, which shows the noise. Results are appended to a
//! file, so a run that was interrupted goes on where it stopped; the report is computed from that
//! file alone.
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
    Description, FetchedResults, Followed, InputFile, JOB_FOLDER, JOB_RESULTS, JobState,
    WindowCounter, begin, describe, fetched_results, follow, receive, release, run_in_pod,
    run_sent, state,
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
