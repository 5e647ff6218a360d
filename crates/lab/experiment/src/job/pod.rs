//! The container's side: its main program, and the short ones that hand it files.

use std::fs::OpenOptions;
use std::io::{Read, Seek as _, SeekFrom};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use albacore_os::Signals;
use serde::{Deserialize, Serialize};

use super::description::sum;
use super::{ENDED, Ended, FETCHED, JOB_RESULTS, SPEC, STARTED, file_error, write};
use crate::run::{Progress, run};
use crate::spec::Spec;
use crate::{ExperimentError, JOB_FOLDER};

/// How long the pod waits for its files: whoever started it sends them at once, and a gigabyte
/// takes a quarter of an hour over a slow line.
const INPUT_TIME_MAX: Duration = Duration::from_secs(1_800);

/// How long the pod keeps results that nobody has fetched: one that ends in the evening is still
/// there in the morning.
const RESULTS_TIME_MAX: Duration = Duration::from_secs(12 * 3_600);

const POLL: Duration = Duration::from_millis(200);

/// Bytes of the list of files.
const LIST_BYTES_MAX: u64 = 1 << 20;

/// Where a job is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Its files are not complete.
    Waiting,
    Running,
    Ended,
}

/// A file that the job must have before it starts.
#[derive(Debug, Deserialize)]
struct Expected {
    path: String,
    sha256: String,
}

/// The main program of the pod: waits for files, runs `work`, and waits until its results are
/// fetched.
///
/// # Errors
/// No files came in time; the work failed; SIGINT or SIGTERM.
pub fn run_in_pod(
    folder: &Path,
    work: &mut dyn FnMut() -> Result<(), ExperimentError>,
) -> Result<(), ExperimentError> {
    let signals = Signals::install()?;
    if !wait(&folder.join(STARTED), INPUT_TIME_MAX, &signals) {
        let what = format!(
            "no files came within {} min: run the same command again",
            INPUT_TIME_MAX.as_secs() / 60
        );
        return Err(ExperimentError::Job { what });
    }
    let done = work();
    let failure = done.as_ref().err().map(ToString::to_string);
    let ended = serde_json::to_vec(&Ended { failure }).unwrap_or_default();
    write(&folder.join(ENDED), &ended)?;
    // after SIGTERM this ends at once: results that were not fetched by then are lost with the pod
    wait(&folder.join(FETCHED), RESULTS_TIME_MAX, &signals);
    done
}

/// Runs the experiment that was sent.
///
/// # Errors
/// Those of [`Spec::read`] and [`run`].
pub fn run_sent(folder: &Path, tell: &mut dyn FnMut(Progress<'_>)) -> Result<(), ExperimentError> {
    let spec = Spec::read(&folder.join(SPEC), false)?;
    run(&spec, &folder.join(JOB_RESULTS), tell).map(drop)
}

/// Whether the file exists before the time is over or a signal arrives.
fn wait(path: &Path, time: Duration, signals: &Signals) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < time && signals.take() == 0 {
        if path.exists() {
            return true;
        }
        std::thread::sleep(POLL);
    }
    path.exists()
}

/// Where the job is.
#[must_use]
pub fn state(folder: &Path) -> JobState {
    match (folder.join(STARTED).exists(), folder.join(ENDED).exists()) {
        (false, _) => JobState::Waiting,
        (true, false) => JobState::Running,
        (true, true) => JobState::Ended,
    }
}

/// Writes `bytes` of `input` into a file of the job from `offset` on; what was behind is cut off,
/// so a part may be sent again.
///
/// # Errors
/// The path leaves the folder; the job runs already; the input ends too early; the disk is full.
pub fn receive(
    folder: &Path,
    path: &str,
    offset: u64,
    bytes: u64,
    input: &mut dyn Read,
) -> Result<(), ExperimentError> {
    let file = place(folder, path)?;
    if state(folder) != JobState::Waiting {
        return Err(refused(path, "the job runs already"));
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
        false => Err(refused(path, "the connection ended before its bytes")),
    }
}

/// Starts the job if all files of the list (JSON) are there with their sums.
///
/// # Errors
/// A file is missing or was damaged on its way.
pub fn begin(folder: &Path, list: &mut dyn Read) -> Result<(), ExperimentError> {
    let list = std::io::BufReader::new(list.take(LIST_BYTES_MAX));
    let mut lines = serde_json::Deserializer::from_reader(list).into_iter::<Vec<Expected>>();
    // the first value alone: the end of the input is not waited for
    let all = match lines.next() {
        Some(Ok(all)) => all,
        Some(Err(error)) => return Err(refused("the list of files", &error.to_string())),
        None => return Err(refused("the list of files", "it is empty")),
    };
    for Expected { path, sha256 } in &all {
        let found = sum(&place(folder, path)?, None)?;
        if found != *sha256 {
            return Err(refused(
                path,
                "it was damaged on its way, or changed while it was sent: run the same command again",
            ));
        }
    }
    write(&folder.join(STARTED), b"")
}

/// Lets the pod end.
///
/// # Errors
/// The folder cannot be written.
pub fn release(folder: &Path) -> Result<(), ExperimentError> {
    write(&folder.join(FETCHED), b"")
}

/// A path below the folder.
fn place(folder: &Path, path: &str) -> Result<PathBuf, ExperimentError> {
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
