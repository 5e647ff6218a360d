//! What `albacore-lab` says of the experiment and of the results that are here.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use albacore_command::{Failure, program_beside, sentence};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The experiment as its Job runs it.
#[derive(Debug, Deserialize)]
pub(crate) struct Description {
    pub(crate) name: String,
    /// The folder of the results.
    pub(crate) output: PathBuf,
    /// The text of the experiment's own file.
    pub(crate) spec: String,
    pub(crate) files: Vec<InputFile>,
    /// Of experiment and models.
    pub(crate) digest: String,
    /// The most seconds that it can take.
    pub(crate) seconds_max: u64,
}

/// A file that is sent.
#[derive(Debug, Deserialize)]
pub(crate) struct InputFile {
    pub(crate) path: String,
    /// `None` for the experiment's own.
    pub(crate) source: Option<PathBuf>,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

/// The complete lines of the results that are here.
#[derive(Debug, Deserialize)]
pub(crate) struct FetchedResults {
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

impl Description {
    /// Has the file checked.
    pub(crate) fn read(
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
    pub(crate) fn read(folder: &Path) -> Result<Self, Failure> {
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
