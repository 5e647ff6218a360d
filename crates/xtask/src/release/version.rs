//! `xtask version`: keeps the version equal in all files that contain it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};

use crate::images::{IMAGES, rfc3339};

/// Files with the version on its own line, with the text before and after it.
const LINES: [(&str, &str, &str); 3] = [
    ("Cargo.toml", "version = \"", "\""),
    ("charts/albacore/Chart.yaml", "version: ", ""),
    ("charts/albacore/Chart.yaml", "appVersion: ", ""),
];

const CHANGELOG: &str = "CHANGELOG.md";
const UNRELEASED: &str = "## [Unreleased]\n";

/// Files from which users copy commands and manifests. Decision records are excluded, because they
/// are not updated.
const COPIED: [&str; 5] = [
    "charts",
    "docs",
    "examples",
    "manifests",
    ":!docs/decisions",
];

/// Sets `version` in the checkout at `root`: in the workspace, the chart, the tags of images, and a
/// heading of the changelog above the unreleased changes. Files generated from them are updated by
/// `make docs manifests`.
///
/// # Errors
/// `version` is not `MAJOR.MINOR.PATCH` or `MAJOR.MINOR.PATCH-PRERELEASE`, the changelog already
/// contains it, or a file cannot be read or written.
pub fn set(root: &Path, version: &str) -> Result<()> {
    ensure!(
        is_version(version),
        "VERSION is {version:?}: give one like 0.2.0 or 0.2.0-rc.1"
    );
    let old = current(root)?;
    let path = root.join(CHANGELOG);
    let changelog = read(&path)?;
    ensure!(
        !changelog.contains(&format!("\n## [{version}] ")),
        "{CHANGELOG} has a section [{version}]: that version was released"
    );
    for (file, before, after) in LINES {
        let path = root.join(file);
        let text = read(&path)?;
        let line = |version: &str| format!("\n{before}{version}{after}\n");
        let (was, is) = (line(&old), line(version));
        ensure!(text.contains(&was), "{file} has no line {:?}", was.trim());
        write(&path, &text.replacen(&was, &is, 1))?;
    }
    for (path, text) in files_with_tags(root)? {
        let mut new = text.clone();
        for image in &IMAGES {
            let tag = |version: &str| format!("{}:{version}", image.name);
            new = new.replace(&tag(&old), &tag(version));
        }
        if new != text {
            write(&path, &new)?;
        }
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let today = rfc3339(now)
        .split('T')
        .next()
        .unwrap_or_default()
        .to_owned();
    let heading = format!("{UNRELEASED}\n## [{version}] - {today}\n");
    write(&path, &changelog.replacen(UNRELEASED, &heading, 1))
}

/// Fails if the version in the chart or in an image tag differs from that of the workspace at
/// `root`.
///
/// # Errors
/// The file, the version in it, and the remedy.
pub fn check(root: &Path) -> Result<()> {
    let version = current(root)?;
    for (file, before, after) in LINES {
        let line = format!("\n{before}{version}{after}\n");
        ensure!(
            read(&root.join(file))?.contains(&line),
            "{file} has no line {:?}: run `make version VERSION={version}`",
            line.trim()
        );
    }
    for (path, text) in files_with_tags(root)? {
        if let Some(tag) = tags(&text).into_iter().find(|tag| *tag != version) {
            bail!(
                "{} has an image with the tag {tag}, the workspace has the version {version}",
                path.display()
            );
        }
    }
    Ok(())
}

/// Fails if the changelog has no section for the version of the workspace.
///
/// # Errors
/// The missing section and the remedy.
pub fn check_changelog(root: &Path) -> Result<()> {
    let version = current(root)?;
    ensure!(
        read(&root.join(CHANGELOG))?.contains(&format!("\n## [{version}] - ")),
        "{CHANGELOG} has no section [{version}]: run `make version VERSION={version}` and commit"
    );
    Ok(())
}

/// The version of the workspace at `root`.
///
/// # Errors
/// `Cargo.toml` cannot be read or contains no version.
pub fn current(root: &Path) -> Result<String> {
    let (file, before, after) = LINES[0];
    let text = read(&root.join(file))?;
    let mut lines = text.lines();
    let version = lines.find_map(|line| line.strip_prefix(before)?.strip_suffix(after));
    Ok(version
        .with_context(|| format!("{file} has no version"))?
        .to_owned())
}

/// The image tags in `text` that are versions.
fn tags(text: &str) -> Vec<&str> {
    let mut tags = Vec::new();
    for image in &IMAGES {
        let name = format!("{}:", image.name);
        for (at, _) in text.match_indices(&name) {
            let rest = &text[at + name.len()..];
            let is_part = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            let tag = rest[..end].trim_end_matches('.');
            if is_version(tag) {
                tags.push(tag);
            }
        }
    }
    tags
}

fn is_version(text: &str) -> bool {
    let (numbers, prerelease) = match text.split_once('-') {
        Some((numbers, prerelease)) => (numbers, Some(prerelease)),
        None => (text, None),
    };
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let is_word = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric());
    numbers.split('.').count() == 3
        && numbers.split('.').all(is_number)
        && prerelease.is_none_or(|words| words.split('.').all(is_word))
}

/// Path and text of files under version control that contain an image with a tag.
fn files_with_tags(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let output = Command::new("git")
        .args(["grep", "--files-with-matches", "--text", "-E"])
        .args(["albacore-[a-z]+:[0-9]", "--"])
        .args(COPIED)
        .current_dir(root)
        .output()
        .context("cannot run git")?;
    let mut files = Vec::new();
    for file in String::from_utf8(output.stdout)?.lines() {
        let path = root.join(file);
        let text = read(&path)?;
        files.push((path, text));
    }
    Ok(files)
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_three_numbers_and_perhaps_a_prerelease() {
        for version in ["0.2.0", "10.20.30", "0.2.0-rc.1"] {
            assert!(is_version(version), "{version}");
        }
        for text in [
            "",
            "0.2",
            "v0.2.0",
            "0.2.0.1",
            "0.2.0-",
            "0.2.x",
            "0..1",
            "1.2.3-a/b",
        ] {
            assert!(!is_version(text), "{text}");
        }
    }

    #[test]
    fn tags_of_images_are_found_where_they_are_versions() {
        let text = "r/albacore-server:0.1.0, albacore-agent:1.2.3-rc.1. albacore-cli:$version";
        assert_eq!(tags(text), ["0.1.0", "1.2.3-rc.1"]);
    }
}
