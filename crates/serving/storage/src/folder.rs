//! Finds the model file of a folder as written by storage initializers (KServe, MLServer, MLflow).

use std::fs::Metadata;
use std::path::{Path, PathBuf};

use crate::error::StorageErrorKind;
use crate::limits::FOLDER_ENTRIES_MAX;
use crate::mlmodel::{self, Mlmodel, PythonModel};

/// Extensions of model files.
pub(crate) const MODEL_EXTENSIONS: [&str; 6] = ["ubj", "json", "bst", "txt", "xgb", "lgb"];

/// Files of MLServer and MLflow that have such an extension but are not models.
const OTHER_FILES: [&str; 5] = [
    "model-settings.json",
    "settings.json",
    "requirements.txt",
    "input_example.json",
    "serving_input_example.json",
];

/// Returns the model file of a path. For a folder: the file named by MLflow's `MLmodel`, or its
/// only file with an extension of models, or its only file. Hidden files, which volumes of
/// ConfigMaps contain, are ignored.
///
/// # Errors
/// The folder cannot be read, or has no or several such files.
pub fn model_file(path: &Path) -> Result<PathBuf, StorageErrorKind> {
    Ok(resolve_file(path)?.0)
}

/// Like [`model_file`]; also returns the Python model that the folder's `MLmodel` describes.
pub(crate) fn resolve_file(
    path: &Path,
) -> Result<(PathBuf, Option<PythonModel>), StorageErrorKind> {
    if !std::fs::metadata(path)
        .map_err(StorageErrorKind::File)?
        .is_dir()
    {
        return Ok((path.to_owned(), None));
    }
    let (named, python) = match mlmodel::read_folder(path)? {
        Some(Mlmodel { file, python }) => (Some(file), Some(python)),
        None => (None, None),
    };
    let files = visible_names(path, |found| found.is_file())?;
    Ok((path.join(choose_model(&files, named)?), python))
}

/// Returns the files whose changes change the model of a path: the model file, and the `MLmodel`
/// file next to it.
///
/// # Errors
/// See [`model_file`].
pub fn watched_files(path: &Path) -> Result<Vec<PathBuf>, StorageErrorKind> {
    let (file, python) = resolve_file(path)?;
    let described = python.map(|_| path.join(mlmodel::FILE));
    Ok([Some(file), described].into_iter().flatten().collect())
}

/// Selects the model file of a folder from its files and the one named by `MLmodel`, if any.
pub(crate) fn choose_model(
    files: &[String],
    named: Option<String>,
) -> Result<String, StorageErrorKind> {
    // If `MLmodel` names a pickle, its converted file is preferred, if present.
    if let Some(file) = named.as_deref().filter(|name| is_model(name)) {
        return Ok(file.to_owned());
    }
    let mut models = files.iter().filter(|name| is_model(name));
    match (models.next(), models.next(), named, files) {
        // Of any format: the reader reports it.
        (None, _, Some(named), _) => Ok(named),
        (None, _, None, [only]) | (Some(only), None, _, _) => Ok(only.clone()),
        (None, _, None, _) => Err(StorageErrorKind::NoModelFile),
        (Some(first), Some(second), _, _) => Err(StorageErrorKind::SeveralModelFiles {
            first: first.clone(),
            second: second.clone(),
        }),
    }
}

/// Returns the folders in a folder with their names, at least one: one per model in MLServer's and
/// KServe's layouts of several models.
///
/// # Errors
/// The folder cannot be read, or has no folders.
pub fn model_folders(path: &Path) -> Result<Vec<(String, PathBuf)>, StorageErrorKind> {
    let names = visible_names(path, |found| found.is_dir())?;
    if names.is_empty() {
        return Err(StorageErrorKind::NoFolders);
    }
    let named = |name: String| {
        let folder = path.join(&name);
        (name, folder)
    };
    Ok(names.into_iter().map(named).collect())
}

/// Returns the sorted names of the visible entries whose metadata match.
fn visible_names(
    folder: &Path,
    matches: fn(&Metadata) -> bool,
) -> Result<Vec<String>, StorageErrorKind> {
    let mut names = Vec::new();
    for (count, entry) in std::fs::read_dir(folder)
        .map_err(StorageErrorKind::File)?
        .enumerate()
    {
        if count >= FOLDER_ENTRIES_MAX {
            return Err(StorageErrorKind::FolderTooLarge);
        }
        let entry = entry.map_err(StorageErrorKind::File)?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        // A dangling link is neither a file nor a folder.
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
