//! The version: equal in all files, and set in all of them at once.
// Helper functions are also test code.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use albacore_xtask::release::version;

/// Files that contain the version, in a separate repository.
const FILES: [&str; 5] = [
    "Cargo.toml",
    "CHANGELOG.md",
    "charts/albacore/Chart.yaml",
    "docs/operate/upgrade.md",
    "manifests/kserve/runtime.yaml",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
}

fn git(folder: &Path, arguments: &[&str]) {
    let status = Command::new("git")
        .args(arguments)
        .current_dir(folder)
        .status()
        .unwrap();
    assert!(status.success(), "git {arguments:?}");
}

fn copy() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in FILES {
        let to = folder.path().join(file);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(root().join(file), to).unwrap();
    }
    git(folder.path(), &["init", "--quiet"]);
    git(folder.path(), &["add", "."]);
    folder
}

#[test]
fn every_file_names_the_version_of_the_workspace() {
    version::check(root()).unwrap();
    assert_eq!(version::current(root()).unwrap(), env!("CARGO_PKG_VERSION"));
}

#[test]
fn a_version_is_set_in_every_file() {
    let copy = copy();
    let old = version::current(copy.path()).unwrap();
    version::set(copy.path(), "97.98.99-rc.1").unwrap();
    assert_eq!(version::current(copy.path()).unwrap(), "97.98.99-rc.1");
    version::check(copy.path()).unwrap();
    version::check_changelog(copy.path()).unwrap();
    for file in FILES {
        let text = std::fs::read_to_string(copy.path().join(file)).unwrap();
        assert!(text.contains("97.98.99-rc.1"), "{file}");
        let is_old = text.contains(&format!(":{old}"));
        assert!(!is_old || file == "CHANGELOG.md", "{file}");
    }
    let again = version::set(copy.path(), "97.98.99-rc.1").unwrap_err();
    assert!(again.to_string().contains("was released"), "{again}");
    let wrong = version::set(copy.path(), "v2").unwrap_err();
    assert!(wrong.to_string().contains("\"v2\""), "{wrong}");
}

#[test]
fn a_file_with_another_version_is_named() {
    let copy = copy();
    let path = copy.path().join(FILES[4]);
    let text = std::fs::read_to_string(&path).unwrap();
    let old = version::current(copy.path()).unwrap();
    std::fs::write(&path, text.replace(&format!(":{old}"), ":97.98.99")).unwrap();
    let error = version::check(copy.path()).unwrap_err().to_string();
    assert!(
        error.contains("runtime.yaml") && error.contains("97.98.99"),
        "{error}"
    );
}
