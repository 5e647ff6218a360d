//! `albacore-lab laboratory-job`: internal commands of `albacore experiment --node` and `albacore
//! tune NAME`, on the client and in their pods. Not for users: `albacore` and the images must have
//! the same version.

use std::io::{Read as _, Write as _, stdin, stdout};
use std::path::{Path, PathBuf};

use albacore_command::{Failure, print_json, sentence};
use albacore_experiment::{
    ExperimentError, FetchedResults, FollowMessage, JOB_FOLDER, JOURNAL, Progress, WindowCounter,
    begin, describe, fetched_results, follow, receive, release, run_in_pod, run_input, state,
};
use albacore_tune::{
    TUNE_JOURNAL, describe_job, has_tune_input, line_text, run_job, write_fetched,
};
use clap::Subcommand;
use serde_json::json;

use crate::experiment_command::{progress_line, usage_or_failed};
use crate::tune_command::{MeasuringArgs, failure};

/// Maximum size of an object: etcd accepts 1.5 MiB.
const OBJECT_BYTES_MAX: u64 = 4 << 20;

#[derive(Debug, Subcommand)]
pub(crate) enum LaboratoryJobCommand {
    /// On the client: check an experiment and list the data to send, as JSON
    Describe {
        #[arg(short, long)]
        file: PathBuf,
        #[arg(long = "quick")]
        is_quick: bool,
        #[arg(long)]
        output: Option<PathBuf>,
    },
    /// On the client: check the InferenceDeployment on standard input (JSON) and list the data to
    /// send, as JSON
    DescribeTune {
        #[command(flatten)]
        measuring: MeasuringArgs,
        #[arg(long)]
        output: Option<PathBuf>,
    },
    /// On the client: print how much of a journal was fetched, as JSON
    Fetched { journal: PathBuf },
    /// On the client: write the files of a fetched search and print its summary as JSON
    FinishTune { folder: PathBuf, name: String },
    /// The main program of the pod
    Run,
    /// In the pod: print the state (waiting, running or ended) as JSON
    State,
    /// In the pod: receive a part of a file from standard input
    Receive {
        path: String,
        offset: u64,
        bytes: u64,
    },
    /// In the pod: start, if the files listed on standard input are present
    Begin,
    /// In the pod: print results as JSON lines until the end
    Follow { bytes: u64, sha256: String },
    /// In the pod: let the main program exit
    Release,
}

impl LaboratoryJobCommand {
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
            Self::DescribeTune { measuring, output } => {
                return describe_tune(measuring, output.as_deref());
            }
            Self::Fetched { journal } => {
                let fetched = fetched_results(journal);
                return print_json(&fetched.map_err(|e| usage_or_failed(&e))?);
            }
            Self::FinishTune { folder, name } => return finish_tune(folder, name),
            Self::State => return print_json(&json!({ "state": state(folder) })),
            Self::Run => run_in_pod(folder, &mut || run_received_job(folder)),
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
                follow_received_job(folder, &fetched)
            }
            Self::Release => release(folder),
        };
        done.map_err(|e| usage_or_failed(&e))
    }
}

fn describe_tune(measuring: &MeasuringArgs, output: Option<&Path>) -> Result<(), Failure> {
    let bad = |error: String| Failure::Usage(format!("the InferenceDeployment: {error}"));
    let mut text = String::new();
    let read = stdin().lock().take(OBJECT_BYTES_MAX);
    { read }
        .read_to_string(&mut text)
        .map_err(|e| bad(e.to_string()))?;
    let object = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
    let described = describe_job(&object, &measuring.options(), output);
    print_json(&described.map_err(failure)?)
}

fn finish_tune(folder: &Path, name: &str) -> Result<(), Failure> {
    let (summary, _) = write_fetched(folder, name).map_err(failure)?;
    print_json(&summary)
}

fn run_received_job(folder: &Path) -> Result<(), ExperimentError> {
    match has_tune_input(folder) {
        true => run_job(folder).map_err(|error| ExperimentError::Job {
            what: sentence(&error),
        }),
        false => run_input(folder, &mut |progress| {
            eprintln!("{}", progress_line(&progress));
        }),
    }
}

fn follow_received_job(folder: &Path, fetched: &FetchedResults) -> Result<(), ExperimentError> {
    if has_tune_input(folder) {
        return follow(folder, TUNE_JOURNAL, fetched, &mut |what| {
            print_message(&what, |line, _| line_text(line).map(|text| (text, false)))
        });
    }
    let mut counter = WindowCounter::default();
    follow(folder, JOURNAL, fetched, &mut |what| {
        print_message(&what, |line, is_new| {
            counter.count(line, is_new, |progress| {
                let is_passing = matches!(progress, Progress::Window { .. });
                (progress_line(progress), is_passing)
            })
        })
    })
}

/// Prints one JSON object per line; `{}` is a keep-alive message. `describe` returns the text of a
/// line, and whether it is shown only until the next one.
fn print_message(
    followed: &FollowMessage<'_>,
    describe: impl FnOnce(&str, bool) -> Option<(String, bool)>,
) -> std::io::Result<()> {
    let message = match followed {
        FollowMessage::Line { text, is_new } => {
            let (meaning, is_passing) = describe(text, *is_new).unzip();
            if !is_new {
                return Ok(());
            }
            let is_passing = is_passing.unwrap_or_default();
            json!({"line": text, "text": meaning, "is_passing": is_passing})
        }
        FollowMessage::KeepAlive => json!({}),
        FollowMessage::End(failure) => json!({ "end": { "failure": failure } }),
    };
    let mut output = stdout().lock();
    writeln!(output, "{message}")?;
    output.flush()
}
