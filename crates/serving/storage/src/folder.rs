//! Finds the model file of a folder: what storage initializers (KServe, MLServer, MLflow) write.

use std::fs::Metadata;
use std::path::{Path, PathBuf};

use crate::error::Problem;
use crate::limits::FOLDER_ENTRIES_MAX;
use crate::mlmodel::{self, Mlmodel, PythonModel};

/// Endings of model files.
pub(crate) const MODEL_EXTENSIONS: [&str; 6] = ["ubj", "json", "bst", "txt", "xgb", "lgb"];

/// Files with such an ending that are no models: those of MLServer and MLflow.
const OTHER_FILES: [&str; 5] = [
    "model-settings.json",
    "settings.json",
    "requirements.txt",
    "input_example.json",
    "serving_input_example.json",
];

/// The file that a path means: of a folder what MLflow's `MLmodel` names, or its only file with the
/// ending of a model, or its only file. Hidden files are left out: volumes of ConfigMaps have such.
///
/// # Errors
/// The folder cannot be read, or has no or several such files.
pub fn model_file(path: &Path) -> Result<PathBuf, Problem> {
    Ok(resolve_file(path)?.0)
}

/// As [`model_file`], with what the folder's `MLmodel` says of it.
pub(crate) fn resolve_file(path: &Path) -> Result<(PathBuf, Option<PythonModel>), Problem> {
    if !std::fs::metadata(path).map_err(Problem::File)?.is_dir() {
        return Ok((path.to_owned(), None));
    }
    let (named, python) = match mlmodel::read_folder(path)? {
        Some(Mlmodel { file, python }) => (Some(file), Some(python)),
        None => (None, None),
    };
    let files = visible_names(path, |found| found.is_file())?;
    Ok((path.join(choose_model(&files, named)?), python))
}

/// The files of which a change makes another model of a path: the model file, and `MLmodel` beside
/// it.
///
/// # Errors
/// As [`model_file`].
pub fn watched_files(path: &Path) -> Result<Vec<PathBuf>, Problem> {
    let (file, python) = resolve_file(path)?;
    let described = python.map(|_| path.join(mlmodel::FILE));
    Ok([Some(file), described].into_iter().flatten().collect())
}

/// The file of a folder with these files, of which `MLmodel` may have named one.
pub(crate) fn choose_model(files: &[String], named: Option<String>) -> Result<String, Problem> {
    // Of a pickle the conversion is read, where there is one.
    if let Some(file) = named.as_deref().filter(|name| is_model(name)) {
        return Ok(file.to_owned());
    }
    let mut models = files.iter().filter(|name| is_model(name));
    match (models.next(), models.next(), named, files) {
        // Whatever it is: reading it tells which format it has.
        (None, _, Some(named), _) => Ok(named),
        (None, _, None, [only]) | (Some(only), None, _, _) => Ok(only.clone()),
        (None, _, None, _) => Err(Problem::NoModelFile),
        (Some(first), Some(second), _, _) => Err(Problem::SeveralModelFiles {
            first: first.clone(),
            second: second.clone(),
        }),
    }
}

/// The folders in a folder, each with its name: one for each model in MLServer's and KServe's
/// layouts of several models. At least one.
///
/// # Errors
/// The folder cannot be read, or has no folders.
pub fn model_folders(path: &Path) -> Result<Vec<(String, PathBuf)>, Problem> {
    let names = visible_names(path, |found| found.is_dir())?;
    if names.is_empty() {
        return Err(Problem::NoFolders);
    }
    let named = |name: String| {
        let folder = path.join(&name);
        (name, folder)
    };
    Ok(names.into_iter().map(named).collect())
}

/// Names of entries that are `wanted`, sorted.
fn visible_names(folder: &Path, matches: fn(&Metadata) -> bool) -> Result<Vec<String>, Problem> {
    let mut names = Vec::new();
    for (count, entry) in std::fs::read_dir(folder)
        .map_err(Problem::File)?
        .enumerate()
    {
        if count >= FOLDER_ENTRIES_MAX {
            return Err(Problem::FolderTooLarge);
        }
        let entry = entry.map_err(Problem::File)?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        // A link that leads nowhere is neither a file nor a folder.
        let is_match = std::fs::metadata(entry.path()).is_ok_and(|found| matches(&found));
        if is_match && !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

pub(crate) fn is_model(name: &str) -> bool {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    ending.is_some_and(|ending| MODEL_EXTENSIONS.contains(&ending)) && !OTHER_FILES.contains(&name)
}

#[cfg(test)]
mod tests;
