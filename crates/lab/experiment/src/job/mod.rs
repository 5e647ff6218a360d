//! An experiment, or a search for a configuration, in a pod: input files and results are
//! transferred by programs executed in the same container (`pods/exec`), so the pod needs no volume
//! of its own, no network and no permissions.
//!
//! All of them use one folder:
//!
//! ```text
//! input/                   the input, such as experiment.yaml with its models in input/models
//! results/                 as for a run on this machine, a journal such as experiment.jsonl first
//! started                  the input is complete: the job runs
//! ended                    the job has ended; contains the result as JSON
//! fetched                  the client has the results: the pod may exit
//! ```

mod description;
mod follow;
mod pod;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::ExperimentError;
use crate::journal::JOURNAL;

pub use description::{Description, FetchedResults, InputFile, describe, fetched_results};
pub use follow::{FollowMessage, WindowCounter, follow};
pub use pod::{JobState, begin, receive, release, run_in_pod, run_input, state};

/// Folder of a job in its container, an initially empty volume.
pub const JOB_FOLDER: &str = "/work";

/// Folder of the results in the job's folder.
pub const JOB_RESULTS: &str = "results";

const INPUT: &str = "input";
const SPEC: &str = "input/experiment.yaml";
const MODELS: &str = "input/models";
const STARTED: &str = "started";
const ENDED: &str = "ended";
const FETCHED: &str = "fetched";

/// Contents of `ended`.
#[derive(Debug, Serialize, Deserialize)]
struct Ended {
    /// Error, if it failed.
    failure: Option<String>,
}

/// Writes a file atomically, so that a process that waits for it never reads a part of it.
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
