//! `--apply`: writes the chosen values into the user's file, monitors the server that uses it, and
//! reverts them if the server became worse.

mod watch;

use std::path::{Path, PathBuf};
use std::time::Duration;

use albacore_os::Signals;
use albacore_statistics::RegressionCheck;
use albacore_values::sentence;

use crate::error::TuneError;
use crate::outcome::Outcome;
use watch::Watch;

/// File to change, and server to monitor.
#[derive(Clone, Debug)]
pub struct ApplyRequest {
    /// The InferenceDeployment.
    pub file: PathBuf,
    /// `http://HOST:PORT` of the server that uses the file, under its clients' load; `None`: the
    /// file is written without monitoring.
    pub server: Option<String>,
    /// Monitoring time before the change, and again after it.
    pub time: Duration,
}

/// A server to be monitored, and its state before the change.
#[derive(Debug)]
pub struct Watching(Option<Watch>);

impl Watching {
    /// Validates the options before time is spent on the search.
    ///
    /// # Errors
    /// The address is invalid; the server does not answer, or is not an Albacore server.
    pub fn check(request: &ApplyRequest) -> Result<Self, TuneError> {
        let watch = request.server.as_deref();
        let watch = watch.map(|url| Watch::connect(url, request.time));
        Ok(Self(watch.transpose()?))
    }
}

/// Writes the values into the file; returns the result in sentences.
///
/// # Errors
/// The file was edited meanwhile, or cannot be written; the server gets too few requests; the
/// server became worse, and the file was restored.
pub fn apply(
    request: &ApplyRequest,
    watching: &Watching,
    outcome: &Outcome,
    on_progress: &mut dyn FnMut(&str),
) -> Result<String, TuneError> {
    let file = request.file.display();
    let patched = outcome.patched.as_ref();
    let patched = patched.map_err(|why| TuneError::Failed(format!("--apply: {why}")))?;
    let own = &outcome.text;
    if patched == own {
        return Ok(format!(
            "{file}: nothing to apply; it has the chosen values."
        ));
    }
    let Some(watch) = &watching.0 else {
        replace(&request.file, own, patched)?;
        return Ok(format!("{file} has the chosen values now."));
    };
    let signals = Signals::install().map_err(|e| TuneError::Failed(sentence(&e)))?;
    on_progress("measuring the server before the change");
    let before = watch.measure(&signals)?;
    replace(&request.file, own, patched)?;
    let undo = || replace(&request.file, patched, own);
    on_progress(&format!("{file} has the chosen values now"));
    if let Err(error) = watch.wait_for(outcome, &signals, on_progress) {
        undo()?;
        let what = sentence(&error);
        return Err(TuneError::Failed(format!("{what}; {file} was restored")));
    }
    on_progress("measuring the server after the change");
    let after = watch.measure(&signals).map_err(|error| {
        let what = sentence(&error);
        TuneError::Failed(format!(
            "{what}; {file} keeps the chosen values, which were not verified"
        ))
    })?;
    let change = RegressionCheck::between(&before, &after);
    let text = change.text();
    if change.is_regression() {
        undo()?;
        return Err(TuneError::Failed(format!(
            "{text}: worse beyond the noise, so {file} was restored; restart its server if workers \
             or threads had changed"
        )));
    }
    Ok(format!("{text}. {file} keeps the chosen values."))
}

/// Replaces the file atomically if it still contains `expected`.
fn replace(file: &Path, expected: &str, text: &str) -> Result<(), TuneError> {
    let now = std::fs::read_to_string(file).map_err(TuneError::file(file))?;
    if now != expected {
        return Err(TuneError::Failed(format!(
            "{}: it was edited meanwhile and is left unchanged",
            file.display()
        )));
    }
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let written = std::fs::write(&new, text).and_then(|()| {
        let permissions = std::fs::metadata(file)?.permissions();
        std::fs::set_permissions(&new, permissions)?;
        std::fs::rename(&new, file)
    });
    written.map_err(TuneError::file(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_only_if_nobody_else_edited_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.yaml");
        std::fs::write(&file, "one").unwrap();
        replace(&file, "one", "two").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "two");
        let refused = replace(&file, "one", "three").unwrap_err().to_string();
        assert!(refused.contains("edited meanwhile"), "{refused}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "two");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
