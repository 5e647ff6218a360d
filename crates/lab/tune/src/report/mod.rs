//! Writes `tune.json`, the file with the chosen values, and `report.html`.

mod html;
mod pareto;

use std::path::{Path, PathBuf};

use crate::error::TuneError;
use crate::outcome::Outcome;

/// Writes the results into a folder; returns the path of the file with the chosen values.
///
/// # Errors
/// A file cannot be written; the run ended early, or the layout of the user's file does not allow
/// the values: then the other files are written.
pub fn write_results(outcome: &Outcome, folder: &Path) -> Result<PathBuf, TuneError> {
    let json = serde_json::to_string_pretty(outcome)
        .map_err(|e| TuneError::Failed(format!("tune.json: {e}")))?;
    let write = |path: &Path, text: &str| std::fs::write(path, text).map_err(TuneError::file(path));
    write(&folder.join("tune.json"), &(json + "\n"))?;
    write(&folder.join("report.html"), &html::page(outcome))?;
    if let Some(why) = &outcome.ended_early {
        return Err(TuneError::EndedEarly {
            why: why.clone(),
            folder: folder.to_owned(),
            best: outcome.chosen.name(),
        });
    }
    let path = folder.join(format!("{}.yaml", outcome.name));
    match &outcome.patched {
        Ok(text) => write(&path, text).map(|()| path),
        Err(why) => {
            let (chosen, folder) = (outcome.chosen.name(), folder.display());
            let what = format!("{why}; chosen: {chosen}; the other results are in {folder}");
            Err(TuneError::Failed(what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_does_not_fit_on_the_disk_is_named_and_those_before_it_are_kept() {
        let outcome = Outcome::of_tests();
        for (file, kept) in [
            ("fraud.yaml", &["tune.json", "report.html"][..]),
            ("report.html", &["tune.json"]),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let full = folder.path().join(file);
            std::os::unix::fs::symlink("/dev/full", &full).unwrap();
            let error = write_results(&outcome, folder.path()).unwrap_err();
            let error = albacore_values::sentence(&error);
            let due = format!("{}: No space left on device", full.display());
            assert!(error.starts_with(&due), "{error}");
            for name in kept {
                let length = std::fs::metadata(folder.path().join(name)).unwrap().len();
                assert!(length > 0, "{name}");
            }
        }
    }
}
