//! Every dependency has a reason and only one version. `make lint` checks the rest: cargo-deny
//! checks licenses, sources and duplicate versions, cargo-shear checks that each dependency is
//! used.

use std::collections::BTreeMap;

use crate::tree::{Violation, assert_kept, crate_paths, text_of};

/// The names in a section of a manifest, with their line number and line.
fn section<'a>(text: &'a str, header: &str) -> Vec<(usize, &'a str, &'a str)> {
    let mut is_inside = false;
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('[') {
            is_inside = line.trim() == header;
        } else if is_inside && let Some((name, _)) = line.split_once(['=', '.']) {
            let name = name.trim();
            if !name.starts_with('#') && !name.is_empty() {
                found.push((index, name, line));
            }
        }
    }
    found
}

/// The lines `# name: reason` of deny.toml.
fn reasons(text: &str) -> BTreeMap<&str, usize> {
    let lines = text.lines().enumerate().filter_map(|(index, line)| {
        let (name, reason) = line.strip_prefix("# - ")?.split_once(": ")?;
        (reason.len() > 10).then_some((name, index))
    });
    lines.collect()
}

#[test]
fn every_dependency_has_its_reason() {
    let deny = text_of("deny.toml", "it holds the reason of each dependency");
    let reasons = reasons(&deny);
    let manifest = text_of("Cargo.toml", "it is the workspace");
    let named = section(&manifest, "[workspace.dependencies]");
    let foreign = || {
        named
            .iter()
            .filter(|(_, name, _)| !name.starts_with("albacore-"))
    };
    let mut violations = Vec::new();
    for (index, name, _) in foreign().filter(|(_, name, _)| !reasons.contains_key(name)) {
        let what = format!("{name}: add a line `# - {name}: why it is needed` to deny.toml");
        violations.push(Violation::of(format!("Cargo.toml:{}", index + 1), what));
    }
    for (name, index) in &reasons {
        if !foreign().any(|(_, known, _)| known == name) {
            let what = format!("{name} is not a dependency: remove its reason");
            violations.push(Violation::of(format!("deny.toml:{}", index + 1), what));
        }
    }
    assert_kept("Every dependency has its reason in deny.toml.", violations);
}

#[test]
fn every_crate_takes_its_dependencies_from_the_workspace() {
    let mut violations = Vec::new();
    for krate in crate_paths() {
        let path = format!("{krate}/Cargo.toml");
        let text = text_of(&path, "it was just listed");
        for header in [
            "[dependencies]",
            "[dev-dependencies]",
            "[build-dependencies]",
            "[target.'cfg(target_env = \"musl\")'.dependencies]",
        ] {
            for (index, name, line) in section(&text, header) {
                if !line.contains("workspace = true") {
                    let what = format!(
                        "{name}: put it into [workspace.dependencies] of Cargo.toml \
                         and write `{name}.workspace = true`"
                    );
                    violations.push(Violation::of(format!("{path}:{}", index + 1), what));
                }
            }
        }
    }
    assert_kept("One version of each dependency.", violations);
}
