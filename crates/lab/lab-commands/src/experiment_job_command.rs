//! `albacore-lab experiment-job`: what `albacore experiment --node` runs here and in its pod. Not
//! for users: `albacore` and the images of one version belong together.

use std::io::{Write as _, stdin, stdout};
use std::path::{Path, PathBuf};

use albacore_command::{Failure, print_json};
use albacore_experiment::{
    FetchedResults, Followed, JOB_FOLDER, Progress, begin, describe, fetched_results, follow,
    receive, release, run_in_pod, state,
};
use clap::Subcommand;
use serde_json::json;

use crate::experiment_command::{progress_line, usage_or_failed};

#[derive(Debug, Subcommand)]
pub(crate) enum ExperimentJobCommand {
    /// Here: check an experiment and list what is sent, as JSON
    Describe {
        #[arg(short, long)]
        file: PathBuf,
        #[arg(long = "quick")]
        is_quick: bool,
        #[arg(long)]
        output: Option<PathBuf>,
    },
    /// Here: how much of the results is in a folder, as JSON
    Fetched { folder: PathBuf },
    /// The main program of the pod
    Run,
    /// In the pod: waiting, running or ended, as JSON
    State,
    /// In the pod: take a part of a file from standard input
    Receive {
        path: String,
        offset: u64,
        bytes: u64,
    },
    /// In the pod: start, if the files listed on standard input are there
    Begin,
    /// In the pod: print results as JSON lines until the end
    Follow { bytes: u64, sha256: String },
    /// In the pod: let it end
    Release,
}

impl ExperimentJobCommand {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let folder = Path::new(JOB_FOLDER);
        let done = match self {
            Self::Describe {
                file,
                is_quick,
                output,
            } => {
                let described = describe(file, *is_quick, output.as_deref());
                return print_json(&described.map_err(|e| usage_or_failed(&e))?);
            }
            Self::Fetched { folder } => {
                let fetched = fetched_results(folder);
                return print_json(&fetched.map_err(|e| usage_or_failed(&e))?);
            }
            Self::State => return print_json(&json!({ "state": state(folder) })),
            Self::Run => run_in_pod(folder, &mut |progress| {
                eprintln!("{}", progress_line(&progress));
            }),
            Self::Receive {
                path,
                offset,
                bytes,
            } => receive(folder, path, *offset, *bytes, &mut stdin().lock()),
            Self::Begin => begin(folder, &mut stdin().lock()),
            Self::Follow { bytes, sha256 } => {
                let fetched = FetchedResults {
                    bytes: *bytes,
                    sha256: sha256.clone(),
                };
                follow(folder, &fetched, &mut tell)
            }
            Self::Release => release(folder),
        };
        done.map_err(|e| usage_or_failed(&e))
    }
}

/// One JSON object a line; `{}` is a sign of life.
fn tell(followed: Followed<'_>) -> std::io::Result<()> {
    let message = match &followed {
        Followed::Line(line, progress) => json!({
            "line": line,
            "text": progress.as_ref().map(progress_line),
            "is_passing": matches!(progress, Some(Progress::Window { .. })),
        }),
        Followed::Alive => json!({}),
        Followed::End(failure) => json!({ "end": { "failure": failure } }),
    };
    let mut output = stdout().lock();
    writeln!(output, "{message}")?;
    output.flush()
}
