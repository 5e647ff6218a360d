//! Selection of the model file of a folder.

use super::*;

fn found_in(names: &[&str]) -> Result<String, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    for name in names {
        let path = folder.path().join(name);
        let made = match name.strip_suffix('/') {
            Some(_) => std::fs::create_dir(path),
            None => std::fs::write(path, name),
        };
        made.map_err(|error| error.to_string())?;
    }
    let found = model_file(folder.path()).map_err(|problem| problem.to_string())?;
    let name = found.file_name().map(|name| name.display().to_string());
    name.ok_or_else(|| found.display().to_string())
}

#[test]
fn the_only_model_is_found_beside_other_files() {
    for (names, model) in [
        (&["model.bst"][..], "model.bst"),
        (
            &["model.ubj", "model-settings.json", "README.md"],
            "model.ubj",
        ),
        (
            &[
                "MLmodel",
                "conda.yaml",
                "requirements.txt",
                "model.xgb",
                "metadata/",
            ],
            "model.xgb",
        ),
        (&["model.txt", ".model.json", "sub.json/"], "model.txt"),
        // The error of the reader explains how such a file is converted.
        (&["model.joblib"], "model.joblib"),
    ] {
        assert_eq!(found_in(names), Ok(model.to_owned()), "{names:?}");
    }
}

#[test]
fn folders_without_a_model_or_with_several_are_rejected() {
    for (names, words) in [
        (&[][..], "has no model file"),
        (&["a.md", "b.md"], "has no model file"),
        (&["sub.ubj/"], "has no model file"),
        (&["b.ubj", "a.json", "c.bst"], "a.json and b.ubj"),
    ] {
        let error = found_in(names).unwrap_err();
        assert!(error.contains(words), "{names:?}: {error}");
    }
}

#[test]
fn a_file_path_is_returned_unchanged_and_volume_links_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (data, root) = (folder.path().join("..data"), folder.path());
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("model.ubj"), "").unwrap();
    std::os::unix::fs::symlink("..data/model.ubj", root.join("model.ubj")).unwrap();
    std::os::unix::fs::symlink("nowhere", root.join("gone.json")).unwrap();
    let file = root.join("model.ubj");
    assert_eq!(model_file(root).unwrap(), file);
    assert_eq!(model_file(&file).unwrap(), file);
    assert!(matches!(
        model_file(&root.join("absent")),
        Err(StorageErrorKind::File(_))
    ));
}

#[test]
fn each_folder_is_a_model() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["b", "a", "..2026", ".hidden"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    std::fs::write(folder.path().join("c"), "").unwrap();
    let found = model_folders(folder.path()).unwrap();
    let expected = ["a", "b"].map(|name| (name.to_owned(), folder.path().join(name)));
    assert_eq!(found, expected);
    let none = model_folders(&folder.path().join("a"));
    assert!(matches!(none, Err(StorageErrorKind::NoFolders)));
}

#[test]
fn a_folder_with_too_many_files_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..=FOLDER_ENTRIES_MAX {
        std::fs::write(folder.path().join(format!("{number}.md")), "").unwrap();
    }
    assert!(matches!(
        model_file(folder.path()),
        Err(StorageErrorKind::FolderTooLarge)
    ));
}
