//! An experiment, or a search for a configuration, in a pod: files come in and results go out
//! through programs that are run in the container beside this one, so the pod needs no volume of
//! its own, no network and no rights.
//!
//! All of them work on one folder:
//!
//! ```text
//! input/                   what was sent, such as experiment.yaml with its models in input/models
//! results/                 as of a run on this machine, a journal such as experiment.jsonl first
//! started                  the files are complete: it runs
//! ended                    it has ended; JSON says how
//! fetched                  the results are where they are wanted: the pod may end
//! ```

mod description;
mod follow;
mod pod;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::ExperimentError;
use crate::journal::JOURNAL;

pub use description::{Description, FetchedResults, InputFile, describe, fetched_results};
pub use follow::{Followed, WindowCounter, follow};
pub use pod::{JobState, begin, receive, release, run_in_pod, run_sent, state};

/// The folder of a job in its container, a volume that is empty at first.
pub const JOB_FOLDER: &str = "/work";

/// The results in that folder.
pub const JOB_RESULTS: &str = "results";

const INPUT: &str = "input";
const SPEC: &str = "input/experiment.yaml";
const MODELS: &str = "input/models";
const STARTED: &str = "started";
const ENDED: &str = "ended";
const FETCHED: &str = "fetched";

/// What `ended` holds.
#[derive(Debug, Serialize, Deserialize)]
struct Ended {
    /// Why it failed.
    failure: Option<String>,
}

/// Writes a file in one step, so that whoever waits for it never reads half of it.
fn write(path: &Path, bytes: &[u8]) -> Result<(), ExperimentError> {
    let new = path.with_extension("new");
    let written = std::fs::write(&new, bytes).and_then(|()| std::fs::rename(&new, path));
    written.map_err(file_error(path))
}

fn file_error(path: &Path) -> impl Fn(std::io::Error) -> ExperimentError + use<> {
    let path: PathBuf = path.to_owned();
    move |source| ExperimentError::File {
        path: path.clone(),
        source,
    }
}

#[cfg(test)]
mod tests;
