//! Every dependency has a reason, one version, and somebody who needs it.

use std::collections::{BTreeMap, BTreeSet};

use crate::manifests::linked;
use crate::tree::{Offence, Source, assert_kept, crate_of, crate_paths, sources, text_of};

/// Names in a section of a manifest, with their line number and the line itself.
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

/// `# name: reason` lines of deny.toml.
fn reasons(text: &str) -> BTreeMap<&str, usize> {
    let lines = text.lines().enumerate().filter_map(|(index, line)| {
        let (name, reason) = line.strip_prefix("# - ")?.split_once(": ")?;
        (reason.len() > 10).then_some((name, index))
    });
    lines.collect()
}

const PURPOSE: &str = "it holds the licenses, sources and reasons of all dependencies";

#[test]
fn every_dependency_has_its_reason() {
    let deny = text_of("deny.toml", PURPOSE);
    let reasons = reasons(&deny);
    let manifest = text_of("Cargo.toml", "it is the workspace");
    let named = section(&manifest, "[workspace.dependencies]");
    let foreign = || {
        named
            .iter()
            .filter(|(_, name, _)| !name.starts_with("albacore-"))
    };
    let mut offences = Vec::new();
    for (index, name, _) in foreign().filter(|(_, name, _)| !reasons.contains_key(name)) {
        let what = format!("{name}: add a line `# - {name}: why it is needed` to deny.toml");
        offences.push(Offence::of(format!("Cargo.toml:{}", index + 1), what));
    }
    for (name, index) in &reasons {
        if !foreign().any(|(_, known, _)| known == name) {
            let what = format!("{name} is no dependency: remove its reason");
            offences.push(Offence::of(format!("deny.toml:{}", index + 1), what));
        }
    }
    assert_kept("Every dependency has its reason in deny.toml.", offences);
}

#[test]
fn every_dependency_is_one_version_and_used() {
    let manifest = text_of("Cargo.toml", "it is the workspace");
    let mut used = BTreeMap::<&str, bool>::new();
    for (_, name, _) in section(&manifest, "[workspace.dependencies]") {
        used.insert(name, false);
    }
    let mut offences = Vec::new();
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
                    offences.push(Offence::of(format!("{path}:{}", index + 1), what));
                }
                if let Some(is_used) = used.get_mut(name) {
                    *is_used = true;
                }
            }
        }
    }
    let is_ours = |name: &str| name.starts_with("albacore-");
    for (name, _) in used
        .iter()
        .filter(|(name, is_used)| !**is_used && !is_ours(name))
    {
        let what = format!("{name}: no crate uses it; remove it");
        offences.push(Offence::of("Cargo.toml", what));
    }
    assert_kept(
        "One version of each dependency, and each is used.",
        offences,
    );
}

/// The tables of a manifest whose crates are linked into what is built.
const LINKED: [&str; 2] = [
    "[dependencies]",
    "[target.'cfg(target_env = \"musl\")'.dependencies]",
];

/// Whether a path in `code` begins with the crate `name`.
fn is_path(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + name.len()..]);
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let root = before.strip_suffix("::").unwrap_or(before);
        let is_first = !root.ends_with(is_part) && !root.ends_with('>');
        let is_used = before.trim_end().ends_with("use") && after.starts_with([';', ' ']);
        is_first && (after.starts_with("::") || is_used)
    })
}

/// Folders of the modules that `source` takes from elsewhere by `#[path]`.
fn borrowed(source: &Source) -> Vec<String> {
    let paths = source.lines.iter().filter_map(|line| {
        let path = line.trim().strip_prefix("#[path = \"")?.split('"').next()?;
        let mut parts: Vec<&str> = source.path.split('/').collect();
        parts.pop();
        for part in path.split('/') {
            match part {
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        parts.pop();
        Some(format!("{}/", parts.join("/")))
    });
    paths.collect()
}

/// Dependencies of `manifest`, by line, that no code of `sources` names: those of tests may be
/// named anywhere, the others must be named outside of tests.
fn unnamed<'a>(manifest: &'a str, sources: &[&Source]) -> Vec<(usize, &'a str)> {
    let is_named = |name: &str, in_tests: bool| {
        let name = name.replace('-', "_");
        sources.iter().any(|source| {
            let is_example = source.path.split('/').any(|part| part == "examples");
            let mut lines = source.code.iter().zip(&source.is_test);
            lines.any(|(line, is_test)| {
                (in_tests || !(*is_test || is_example)) && is_path(line, &name)
            })
        })
    };
    let linked = LINKED.into_iter().map(|header| (header, false));
    let tables = linked.chain([("[dev-dependencies]", true), ("[build-dependencies]", true)]);
    let entries = tables.flat_map(|(header, in_tests)| {
        let entries = section(manifest, header).into_iter();
        entries.map(move |(index, name, _)| (index, name, in_tests))
    });
    entries
        .filter(|(_, name, in_tests)| !is_named(name, *in_tests))
        .map(|(index, name, _)| (index, name))
        .collect()
}

#[test]
fn every_dependency_of_a_crate_is_named_in_its_code() {
    let all = sources();
    let mut offences = Vec::new();
    for krate in crate_paths() {
        let path = format!("{krate}/Cargo.toml");
        let text = text_of(&path, "it was just listed");
        let own: Vec<&Source> = all.iter().filter(|s| s.krate == crate_of(&krate)).collect();
        let borrowed: BTreeSet<String> = own.iter().flat_map(|s| borrowed(s)).collect();
        let is_borrowed = |s: &&Source| borrowed.iter().any(|folder| s.path.starts_with(folder));
        let own: Vec<&Source> = own
            .into_iter()
            .chain(all.iter().filter(is_borrowed))
            .collect();
        for (index, name) in unnamed(&text, &own) {
            let what = format!(
                "{name}: no code names it; remove it, or move it to [dev-dependencies] if tests do"
            );
            offences.push(Offence::of(format!("{path}:{}", index + 1), what));
        }
    }
    assert_kept("A crate depends on what its code names.", offences);
}

#[test]
fn dependencies_that_no_code_names_are_found() {
    let manifest = "[dependencies]\nserde.workspace = true\nserde-saphyr.workspace = true\n\
                    bytes.workspace = true\ntokio.workspace = true\n\
                    [dev-dependencies]\nproptest.workspace = true\nzip.workspace = true\n";
    let code = "// bytes\nuse serde_saphyr::x;\nfn f(bytes: u8) { x::tokio::y(bytes) }\n#[cfg(test)]\nmod tests {\n    use tokio::y;\n    \
                use zip::z;\n}\n";
    let source = Source::parse("crates/x/src/lib.rs".to_owned(), code);
    let found: Vec<&str> = unnamed(manifest, &[&source])
        .into_iter()
        .map(|(_, n)| n)
        .collect();
    assert_eq!(found, ["serde", "bytes", "tokio", "proptest"]);
}

/// The lines of the list `name = [...]` of deny.toml, without brackets.
fn list<'a>(deny: &'a str, name: &str) -> Vec<&'a str> {
    let start = format!("{name} = [");
    let lines = deny.lines().skip_while(|line| *line != start).skip(1);
    lines
        .take_while(|line| *line != "]")
        .map(str::trim)
        .collect()
}

/// Whether an SPDX expression can be met with the licenses `allowed`. A slash is an old "OR".
fn is_allowed(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let expression = expression.replace('/', " OR ");
    // "AND" binds tighter than "OR"; of parentheses, crates use one level.
    if let Some((before, rest)) = expression.split_once('(')
        && let Some((inside, after)) = rest.split_once(')')
    {
        let inside = if is_allowed(inside, allowed) {
            "allowed"
        } else {
            "denied"
        };
        return is_allowed(&format!("{before}{inside}{after}"), allowed);
    }
    expression.split(" OR ").any(|alternative| {
        alternative
            .split(" AND ")
            .all(|l| l.trim() == "allowed" || allowed.contains(l.trim()))
    })
}

#[test]
fn license_expressions_are_understood() {
    let allowed = BTreeSet::from(["MIT", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"]);
    for (expression, is_met) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("Unlicense/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("(GPL-3.0 OR LGPL-3.0) AND Unicode-3.0", false),
        ("Apache-2.0 WITH LLVM-exception OR GPL-3.0", true),
    ] {
        assert_eq!(is_allowed(expression, &allowed), is_met, "{expression}");
    }
}

#[test]
fn licenses_and_sources_are_those_of_deny_toml() {
    let deny = text_of("deny.toml", PURPOSE);
    let allowed: BTreeSet<&str> = list(&deny, "allow")
        .into_iter()
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    assert!(
        allowed.contains("MIT"),
        "deny.toml lists the licenses, one a line"
    );
    let mut offences = Vec::new();
    for package in linked() {
        let Some(source) = &package.source else {
            continue;
        };
        if !source.contains("crates.io-index") {
            let what = format!("comes from {source}: only crates.io may");
            offences.push(Offence::of(&package.name, what));
        }
        if !is_allowed(&package.license, &allowed) {
            let what = format!("has license {}: find another crate", package.license);
            offences.push(Offence::of(&package.name, what));
        }
    }
    assert_kept("Licenses and sources are those of deny.toml.", offences);
}

#[test]
fn two_versions_of_a_crate_are_listed_with_their_reason() {
    let deny = text_of("deny.toml", PURPOSE);
    let listed: BTreeSet<&str> = list(&deny, "skip")
        .into_iter()
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    let mut versions = BTreeMap::<String, BTreeSet<String>>::new();
    for package in linked() {
        versions
            .entry(package.name)
            .or_default()
            .insert(package.version);
    }
    let is_listed = |name: &str, version: &str| {
        listed.iter().any(|entry| {
            entry
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix('@'))
                .is_some_and(|start| version == start || version.starts_with(&format!("{start}.")))
        })
    };
    let mut offences = Vec::new();
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        let unlisted = versions
            .iter()
            .filter(|version| !is_listed(name, version))
            .count();
        if unlisted > 1 {
            let all: Vec<&str> = versions.iter().map(String::as_str).collect();
            let what = format!(
                "is there in versions {}: make it one, or list all but one in `skip` of deny.toml \
                 with the reason",
                all.join(", ")
            );
            offences.push(Offence::of(name, what));
        }
    }
    for entry in listed {
        let name = entry.split('@').next().unwrap_or(entry);
        if versions.get(name).is_none_or(|versions| versions.len() < 2) {
            let what = format!("{entry} is one version now: remove it");
            offences.push(Offence::of("deny.toml", what));
        }
    }
    assert_kept(
        "Two versions of a crate need a reason in deny.toml.",
        offences,
    );
}
