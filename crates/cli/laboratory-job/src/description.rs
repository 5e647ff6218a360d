//! What `albacore-lab` says of what is sent, and of the results that are here.

use std::ffi::OsString;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use albacore_command::{Failure, program_beside, sentence};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What a Job runs.
#[derive(Debug, Deserialize)]
pub(crate) struct Description {
    pub(crate) name: String,
    /// The folder of the results.
    pub(crate) output: PathBuf,
    /// The file of that folder that grows line by line.
    pub(crate) journal: String,
    /// The text of the first file.
    pub(crate) spec: String,
    pub(crate) files: Vec<InputFile>,
    /// Of all that is sent but results.
    pub(crate) digest: String,
    /// The most seconds that it can take.
    pub(crate) seconds_max: u64,
}

/// A file that is sent.
#[derive(Debug, Deserialize)]
pub(crate) struct InputFile {
    pub(crate) path: String,
    /// `None` for the first.
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
    /// Has the file of an experiment checked.
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

    /// Has an InferenceDeployment and the options of a search checked.
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

/// Has the files of a search that was fetched written into its folder: `report.html` and
/// `NAME.yaml` among them. What was found, in sentences.
///
/// # Errors
/// The search ended early or found no values; its results are written.
pub(crate) fn finish_tune(folder: &Path, name: &str) -> Result<String, Failure> {
    ask(&["finish-tune".into(), folder.into(), name.into()], None)
}

/// The answer of `albacore-lab laboratory-job`, which prints its errors itself.
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

/// What a program prints; it reads all of its input before that.
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
    // a program that refused its options has read nothing and says why
    child.wait_with_output()
}
