//! The files that the laws speak of, read once.

use std::path::{Path, PathBuf};

use crate::lexer::code_of;

/// A Rust file of the workspace.
pub(crate) struct Source {
    /// Path below the root of the repository, with `/`.
    pub(crate) path: String,
    /// Name of its crate's folder.
    pub(crate) krate: String,
    /// Its lines as they stand.
    pub(crate) lines: Vec<String>,
    /// Its lines with comments and texts blanked.
    pub(crate) code: Vec<String>,
    /// Which lines are test code.
    pub(crate) is_test: Vec<bool>,
    /// Written by a program: the laws on shape do not hold.
    pub(crate) is_generated: bool,
}

/// A place that breaks a law, and what to do about it.
pub(crate) struct Violation {
    /// `file:line`, or `file`.
    pub(crate) place: String,
    /// What is wrong and the way out.
    pub(crate) what: String,
}

impl Violation {
    pub(crate) fn at(source: &Source, index: usize, what: impl Into<String>) -> Self {
        Self {
            place: format!("{}:{}", source.path, index + 1),
            what: what.into(),
        }
    }

    pub(crate) fn of(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            what: what.into(),
        }
    }
}

/// Fails with every violation, one a line.
#[track_caller]
pub(crate) fn assert_kept(law: &str, violations: impl IntoIterator<Item = Violation>) {
    let lines: Vec<String> = violations
        .into_iter()
        .map(|o| format!("  {}: {}", o.place, o.what))
        .collect();
    assert!(
        lines.is_empty(),
        "{law}\n{} violations:\n{}\n",
        lines.len(),
        lines.join("\n")
    );
}

pub(crate) fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("crates/xtask lies two folders below the root")
        .to_path_buf()
}

/// The text of a file of the repository; fails with what the file is for.
#[track_caller]
pub(crate) fn text_of(path: &str, purpose: &str) -> String {
    let found = std::fs::read_to_string(root().join(path));
    found.unwrap_or_else(|error| panic!("{path}: {error}; it must exist: {purpose}"))
}

/// Names of the folders of `folder`, a path below the root; sorted.
pub(crate) fn folders(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root().join(folder)).into_iter().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("a folder of the repository can be listed"))
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Path of every crate's folder below the root: `crates/<wing>/<crate>` or `crates/<crate>`.
pub(crate) fn crate_paths() -> Vec<String> {
    let wings = folders("crates").into_iter();
    let is_crate = |path: &String| root().join(path).join("Cargo.toml").is_file();
    wings
        .flat_map(|wing| {
            let wing = format!("crates/{wing}");
            let inner = folders(&wing).into_iter();
            let inner: Vec<String> = inner.map(|name| format!("{wing}/{name}")).collect();
            std::iter::once(wing).chain(inner)
        })
        .filter(is_crate)
        .collect()
}

/// Name of the crate in this folder.
pub(crate) fn crate_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Every file below `folder` (a path below the root), sorted, without what is built or data.
pub(crate) fn files(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.trim_end_matches('/').to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder))
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() {
                name.clone()
            } else {
                format!("{folder}/{name}")
            };
            let is_skipped = ["target", ".git", "demo", "node_modules", "__pycache__"]
                .contains(&name.as_str())
                && folder.is_empty()
                || path == "tests/data"
                || name == "__pycache__";
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && !is_skipped => folders.push(path),
                Ok(kind) if kind.is_file() => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// Every Rust file of every crate.
pub(crate) fn sources() -> Vec<Source> {
    let sources = files("crates");
    sources
        .into_iter()
        .filter(|path| path.ends_with(".rs"))
        .map(read)
        .collect()
}

fn read(path: String) -> Source {
    let text = text_of(&path, "it was just listed");
    Source::parse(path, &text)
}

impl Source {
    /// The file `crates/<wing>/<crate>/...` or `crates/<crate>/...` with this text.
    pub(crate) fn parse(path: String, text: &str) -> Self {
        let code: Vec<String> = code_of(text).lines().map(str::to_owned).collect();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let parts: Vec<&str> = path.split('/').collect();
        let is_test_part = |part: &&str| matches!(*part, "tests" | "benches" | "tests.rs");
        let is_test = match parts.iter().any(is_test_part) {
            true => vec![true; lines.len()],
            false => inline_tests(&code),
        };
        Self {
            krate: crate_part(&parts).to_owned(),
            is_generated: lines.iter().take(3).any(|l| l.contains("@generated")),
            path,
            lines,
            code,
            is_test,
        }
    }
}

/// The crate's folder in the parts of a path: the last one before those that every crate has.
fn crate_part<'a>(parts: &[&'a str]) -> &'a str {
    let inner = ["src", "tests", "benches", "examples", "build.rs"];
    let at = parts.iter().position(|part| inner.contains(part));
    at.and_then(|at| parts.get(at.checked_sub(1)?))
        .copied()
        .unwrap_or_default()
}

/// Which lines belong to items under `#[cfg(test)]`.
fn inline_tests(code: &[String]) -> Vec<bool> {
    let mut is_test = vec![false; code.len()];
    let indent_of = |line: &str| line.len() - line.trim_start().len();
    let mut at = 0;
    while at < code.len() {
        if !code[at].trim_start().starts_with("#[cfg(test)]") {
            at += 1;
            continue;
        }
        let indent = indent_of(&code[at]);
        let mut has_body = false;
        let end = (at..code.len()).find(|&i| {
            let line = code[i].trim_end();
            has_body |= line.ends_with('{');
            let closes = line.trim_start().starts_with('}') && indent_of(line) == indent;
            closes && has_body || !has_body && line.ends_with(';') || line.ends_with("{}")
        });
        let end = end.unwrap_or(code.len() - 1);
        is_test[at..=end].fill(true);
        at = end + 1;
    }
    is_test
}
