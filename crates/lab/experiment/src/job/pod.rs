//! Container side: the main program, and short-lived programs that transfer files.

use std::fs::OpenOptions;
use std::io::{Read, Seek as _, SeekFrom};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use albacore_os::Signals;
use albacore_values::sentence;
use serde::{Deserialize, Serialize};

use super::description::sum;
use super::{ENDED, Ended, FETCHED, JOB_RESULTS, SPEC, STARTED, file_error, write};
use crate::run::{Progress, run};
use crate::spec::Spec;
use crate::{ExperimentError, JOB_FOLDER};

/// Timeout of the input: the client sends it immediately, and a gigabyte takes a quarter of an hour
/// over a slow link.
const INPUT_TIME_MAX: Duration = Duration::from_secs(1_800);

/// Time for which the pod keeps results that were not fetched: those of a job that ends in the
/// evening are available in the morning.
const RESULTS_TIME_MAX: Duration = Duration::from_secs(12 * 3_600);

const POLL: Duration = Duration::from_millis(200);

/// Maximum size of the list of files.
const LIST_BYTES_MAX: u64 = 1 << 20;

/// State of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Its input is incomplete.
    Waiting,
    Running,
    Ended,
}

/// An input file that must be complete before the job starts.
#[derive(Debug, Deserialize)]
struct Expected {
    path: String,
    sha256: String,
}

/// Main program of the pod: waits for the input, runs `work`, and waits until the results are
/// fetched.
///
/// # Errors
/// The input did not arrive in time; the work failed; SIGINT or SIGTERM.
pub fn run_in_pod(
    folder: &Path,
    work: &mut dyn FnMut() -> Result<(), ExperimentError>,
) -> Result<(), ExperimentError> {
    let signals = Signals::install()?;
    if !wait(&folder.join(STARTED), INPUT_TIME_MAX, &signals) {
        let what = format!(
            "no files were received within {} min: run the same command again",
            INPUT_TIME_MAX.as_secs() / 60
        );
        return Err(ExperimentError::Job { what });
    }
    let done = work();
    let failure = done.as_ref().err().map(|error| sentence(error));
    let ended = serde_json::to_vec(&Ended { failure }).unwrap_or_default();
    write(&folder.join(ENDED), &ended)?;
    // after SIGTERM this returns immediately: results not fetched by then are lost with the pod
    wait(&folder.join(FETCHED), RESULTS_TIME_MAX, &signals);
    done
}

/// Runs the experiment of the input.
///
/// # Errors
/// Those of [`Spec::read`] and [`run`].
pub fn run_input(
    folder: &Path,
    on_progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(), ExperimentError> {
    let spec = Spec::read(&folder.join(SPEC), false)?;
    run(&spec, &folder.join(JOB_RESULTS), on_progress).map(drop)
}

/// Waits for the file; returns false after a timeout or a signal.
fn wait(path: &Path, time: Duration, signals: &Signals) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < time && signals.termination_count() == 0 {
        if path.exists() {
            return true;
        }
        std::thread::sleep(POLL);
    }
    path.exists()
}

/// State of the job.
#[must_use]
pub fn state(folder: &Path) -> JobState {
    match (folder.join(STARTED).exists(), folder.join(ENDED).exists()) {
        (false, _) => JobState::Waiting,
        (true, false) => JobState::Running,
        (true, true) => JobState::Ended,
    }
}

/// Writes `bytes` of `input` into a file of the job at `offset`, and truncates the file after them,
/// so a part may be sent again.
///
/// # Errors
/// The path is outside of the folder; the job is running already; the input is too short; the disk
/// is full.
pub fn receive(
    folder: &Path,
    path: &str,
    offset: u64,
    bytes: u64,
    input: &mut dyn Read,
) -> Result<(), ExperimentError> {
    let file = resolve(folder, path)?;
    if state(folder) != JobState::Waiting {
        return Err(refused(path, "the job is already running"));
    }
    let failed = file_error(&file);
    if let Some(above) = file.parent() {
        std::fs::create_dir_all(above).map_err(&failed)?;
    }
    let mut options = OpenOptions::new();
    let options = options.create(true).truncate(false).write(true);
    let mut open = options.open(&file).map_err(&failed)?;
    open.set_len(offset).map_err(&failed)?;
    open.seek(SeekFrom::Start(offset)).map_err(&failed)?;
    let copied = std::io::copy(&mut input.take(bytes), &mut open).map_err(&failed)?;
    match copied == bytes {
        true => Ok(()),
        false => Err(refused(
            path,
            "the connection was closed before all bytes were received",
        )),
    }
}

/// Starts the job if all files of the list (JSON) exist with their checksums.
///
/// # Errors
/// A file is missing or corrupt.
pub fn begin(folder: &Path, list: &mut dyn Read) -> Result<(), ExperimentError> {
    let list = std::io::BufReader::new(list.take(LIST_BYTES_MAX));
    let mut lines = serde_json::Deserializer::from_reader(list).into_iter::<Vec<Expected>>();
    // parses only the first value, without waiting for the end of the input
    let all = match lines.next() {
        Some(Ok(all)) => all,
        Some(Err(error)) => return Err(refused("the list of files", &error.to_string())),
        None => return Err(refused("the list of files", "it is empty")),
    };
    for Expected { path, sha256 } in &all {
        let found = sum(&resolve(folder, path)?, None)?;
        if found != *sha256 {
            return Err(refused(
                path,
                "its checksum differs: it was damaged in transit, or changed while it was sent: \
                 run the same command again",
            ));
        }
    }
    write(&folder.join(STARTED), b"")
}

/// Allows the pod to exit.
///
/// # Errors
/// The folder cannot be written.
pub fn release(folder: &Path) -> Result<(), ExperimentError> {
    write(&folder.join(FETCHED), b"")
}

/// Resolves a path below the folder.
fn resolve(folder: &Path, path: &str) -> Result<PathBuf, ExperimentError> {
    let is_below = |path: &Path| path.components().all(|c| matches!(c, Component::Normal(_)));
    match is_below(Path::new(path)) {
        true => Ok(folder.join(path)),
        false => Err(refused(path, &format!("it is not below {JOB_FOLDER}"))),
    }
}

fn refused(path: &str, what: &str) -> ExperimentError {
    ExperimentError::Job {
        what: format!("{path}: {what}"),
    }
}
