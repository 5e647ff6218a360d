//! What `albacore-lab` says of the experiment and of the results that are here.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use albacore_command::{Failure, program_beside, sentence};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The experiment as its Job runs it.
#[derive(Debug, Deserialize)]
pub(super) struct Description {
    pub(super) name: String,
    /// The folder of the results.
    pub(super) output: PathBuf,
    /// The text of the experiment's own file.
    pub(super) spec: String,
    pub(super) files: Vec<InputFile>,
    /// Of experiment and models.
    pub(super) digest: String,
    /// The most seconds that it can take.
    pub(super) seconds_max: u64,
}

/// A file that is sent.
#[derive(Debug, Deserialize)]
pub(super) struct InputFile {
    pub(super) path: String,
    /// `None` for the experiment's own.
    pub(super) source: Option<PathBuf>,
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

/// The complete lines of the results that are here.
#[derive(Debug, Deserialize)]
pub(super) struct FetchedResults {
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

impl Description {
    /// Has the file checked.
    pub(super) fn read(
        file: &Path,
        is_quick: bool,
        output: Option<&PathBuf>,
    ) -> Result<Self, Failure> {
        let mut words: Vec<OsString> = vec!["describe".into(), "--file".into(), file.into()];
        if is_quick {
            words.push("--quick".into());
        }
        if let Some(folder) = output {
            words.push("--output".into());
            words.push(folder.into());
        }
        ask(&words)
    }
}

impl FetchedResults {
    pub(super) fn read(folder: &Path) -> Result<Self, Failure> {
        ask(&["fetched".into(), folder.into()])
    }
}

/// The answer of `albacore-lab experiment-job`, which prints its errors itself.
fn ask<T: DeserializeOwned>(words: &[OsString]) -> Result<T, Failure> {
    let program = program_beside("albacore-lab")?;
    let mut command = Command::new(&program);
    command.arg("experiment-job").args(words);
    let output = command.stderr(Stdio::piped()).output();
    let output = output.map_err(|error| Failure::file(&program, &error))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let text = text.trim();
        let text = text.strip_prefix("albacore: ").unwrap_or(text).to_owned();
        return Err(match output.status.code() {
            Some(64) => Failure::Usage(text),
            _ => Failure::Failed(text),
        });
    }
    serde_json::from_slice(&output.stdout).map_err(|error| {
        let program = program.display();
        Failure::Broken(format!(
            "{program} is of another version: {}",
            sentence(&error)
        ))
    })
}
