//! Descriptions by `albacore-lab` of the files to send and of the local results.

use std::ffi::OsString;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use albacore_command::{Failure, program_beside, sentence};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Description of the work of a Job.
#[derive(Debug, Deserialize)]
pub(crate) struct Description {
    pub(crate) name: String,
    /// The local directory of the results.
    pub(crate) output: PathBuf,
    /// The file in that directory to which lines are appended.
    pub(crate) journal: String,
    /// Content of the first file.
    pub(crate) spec: String,
    pub(crate) files: Vec<InputFile>,
    /// Digest of everything that is sent except results.
    pub(crate) digest: String,
    /// Upper bound of its run time in seconds.
    pub(crate) seconds_max: u64,
}

/// A file to send.
#[derive(Debug, Deserialize)]
pub(crate) struct InputFile {
    pub(crate) path: String,
    /// `None` for the first file.
    pub(crate) source: Option<PathBuf>,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

/// Size and digest of the complete lines of the local results.
#[derive(Debug, Deserialize)]
pub(crate) struct FetchedResults {
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

impl Description {
    /// Validates and describes the file of an experiment.
    pub(crate) fn of_experiment(
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
        ask(&words, None)
    }

    /// Validates and describes an InferenceDeployment and the options of a search.
    pub(crate) fn of_tune(
        object: &Value,
        options: &[OsString],
        output: Option<&PathBuf>,
    ) -> Result<Self, Failure> {
        let mut words: Vec<OsString> = vec!["describe-tune".into()];
        words.extend_from_slice(options);
        if let Some(folder) = output {
            words.push("--output".into());
            words.push(folder.into());
        }
        ask(&words, Some(object))
    }
}

impl FetchedResults {
    pub(crate) fn read(journal: &Path) -> Result<Self, Failure> {
        ask(&["fetched".into(), journal.into()], None)
    }
}

/// Writes the output files of a fetched search into its directory, among them `report.html` and
/// `NAME.yaml`. Returns the findings as sentences.
///
/// # Errors
/// The search ended early or found no values; its results are still written.
pub(crate) fn finish_tune(folder: &Path, name: &str) -> Result<String, Failure> {
    ask(&["finish-tune".into(), folder.into(), name.into()], None)
}

/// Runs `albacore-lab laboratory-job`, which prints its errors itself, and parses its output.
fn ask<T: DeserializeOwned>(words: &[OsString], input: Option<&Value>) -> Result<T, Failure> {
    let program = program_beside("albacore-lab")?;
    let mut command = Command::new(&program);
    command.arg("laboratory-job").args(words);
    let output = answer(&mut command, input).map_err(|error| Failure::file(&program, &error))?;
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

/// Runs a program and returns its output; the program reads all of its input before it prints.
fn answer(command: &mut Command, input: Option<&Value>) -> std::io::Result<Output> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let Some(input) = input else {
        return command.output();
    };
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    if let Some(mut sink) = child.stdin.take()
        && let Err(error) = sink.write_all(input.to_string().as_bytes())
        && error.kind() != ErrorKind::BrokenPipe
    {
        return Err(error);
    }
    // a program that rejected its options reads no input and prints the reason
    child.wait_with_output()
}
