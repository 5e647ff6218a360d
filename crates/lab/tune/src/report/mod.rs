//! Writes `tune.json`, the file with the chosen values, and `report.html`.

mod html;
mod pareto;

use std::path::{Path, PathBuf};

use crate::error::TuneError;
use crate::outcome::Outcome;

/// Writes the results into a folder; returns the path of the file with the chosen values.
///
/// # Errors
/// A file cannot be written.
pub fn write_results(outcome: &Outcome, folder: &Path) -> Result<PathBuf, TuneError> {
    let json = serde_json::to_string_pretty(outcome)
        .map_err(|e| TuneError::Failed(format!("tune.json: {e}")))?;
    let patched = folder.join(format!("{}.yaml", outcome.name));
    let files = [
        (folder.join("tune.json"), json + "\n"),
        (folder.join("report.html"), html::page(outcome)),
        (patched.clone(), outcome.patched.clone()),
    ];
    for (path, text) in files {
        std::fs::write(&path, text).map_err(TuneError::file(&path))?;
    }
    Ok(patched)
}
