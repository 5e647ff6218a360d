//! The law on names of types: a name of the product means one thing, so that a reader who knows a
//! type knows every use of its name.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::{Source, Violation, assert_kept, sources};

/// Wings that are not part of the product: they may use any name.
const UNSHIPPED: [&str; 2] = ["lab", "xtask"];

/// Names that are declared in several files, each with its reason.
const EXCEPTIONS: [(&str, &str); 2] = [
    (
        "Args",
        "the command line of a program; each program has one",
    ),
    (
        "Command",
        "the subcommands of a program; each program has one",
    ),
];

/// Whether the file is code of the product. Generated messages are exempt: they are the wire form
/// of other types, and their names are part of the protocol.
fn is_product(source: &Source) -> bool {
    let parts: Vec<&str> = source.path.split('/').collect();
    let is_shipped = parts.get(1).is_some_and(|wing| !UNSHIPPED.contains(wing));
    is_shipped && parts.get(3) == Some(&"src") && !source.is_generated
}

/// The name of the type or trait that a line of code declares at module level.
fn declared(line: &str) -> Option<&str> {
    let item = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1,
        Some(rest) => rest,
        None if line.starts_with(' ') => return None,
        None => line,
    };
    let item = item.trim_start();
    let item = item.strip_prefix("unsafe ").unwrap_or(item);
    let (keyword, rest) = item.split_once(' ')?;
    let is_type = matches!(keyword, "struct" | "enum" | "trait" | "type" | "union");
    let is_end = |c: char| !c.is_alphanumeric() && c != '_';
    is_type
        .then(|| rest.split(is_end).next())
        .flatten()
        .filter(|name| !name.is_empty())
}

fn shared_names(sources: &[Source]) -> Vec<Violation> {
    let mut places = BTreeMap::<&str, Vec<(&Source, usize)>>::new();
    for source in sources.iter().filter(|source| is_product(source)) {
        for (index, line) in source.code.iter().enumerate() {
            if let Some(name) = declared(line).filter(|_| !source.is_test[index]) {
                places.entry(name).or_default().push((source, index));
            }
        }
    }
    let files = |places: &[(&Source, usize)]| {
        let paths: BTreeSet<&str> = places.iter().map(|(s, _)| s.path.as_str()).collect();
        paths.len()
    };
    places.retain(|_, places| files(places) > 1);
    let mut violations = Vec::new();
    for (name, places) in &places {
        if EXCEPTIONS.iter().all(|(exception, _)| exception != name) {
            violations.extend(places.iter().map(|&(source, index)| {
                let what = format!("`{name}` is declared in another file, too: rename one of them");
                Violation::at(source, index, what)
            }));
        }
    }
    violations
}

/// A file of the product with this text.
fn sample(path: &str, text: &str) -> Source {
    Source::parse(path.to_owned(), text)
}

const PLAN: &str = "crates/placement/plan/src/x.rs";
const OS: &str = "crates/ground/os/src/y.rs";

#[test]
fn a_name_of_a_type_means_one_thing() {
    let found = |a: (&str, &str), b: (&str, &str)| {
        let samples = [sample(a.0, a.1), sample(b.0, b.1)];
        shared_names(&samples).len()
    };
    for (first, second) in [
        ("struct Slot;", "pub struct Slot(u32);"),
        ("pub(crate) enum Slot {", "trait Slot {"),
        ("type Slot<'a> = &'a str;", "pub unsafe trait Slot<T> {"),
    ] {
        assert_eq!(found((PLAN, first), (OS, second)), 2, "{first} {second}");
    }
    for (path, text) in [
        (OS, "struct Slots;"),
        (OS, "    type Slot = u32;"),
        (OS, "// struct Slot;\nlet text = \"struct Slot;\";"),
        (OS, "#[cfg(test)]\nmod tests {\n    struct Slot;\n}\n"),
        (OS, "#[cfg(test)]\nstruct Slot;\n"),
        (OS, "// @generated\nstruct Slot;"),
        ("crates/ground/os/tests/y.rs", "struct Slot;"),
        ("crates/lab/load/src/y.rs", "struct Slot;"),
        ("crates/xtask/src/y.rs", "struct Slot;"),
    ] {
        assert_eq!(found((PLAN, "struct Slot;"), (path, text)), 0, "{text}");
    }
    assert_eq!(found((PLAN, "struct Args {"), (OS, "struct Args {")), 0);
    assert_kept(
        "No type name is used for two things.",
        shared_names(&sources()),
    );
}

#[test]
fn every_exception_is_a_name_that_is_shared() {
    let sources = sources();
    let is_declared = |source: &&Source, name: &str| {
        let mut lines = source.code.iter();
        is_product(source) && lines.any(|line| declared(line) == Some(name))
    };
    let unused = EXCEPTIONS.iter().filter(|(name, _)| {
        let files = sources.iter().filter(|source| is_declared(source, name));
        files.count() < 2
    });
    let violations = unused.map(|(name, _)| {
        let what = format!("`{name}` is declared in one file: remove the exception");
        Violation::of("crates/xtask/tests/laws/types.rs", what)
    });
    assert_kept("Every exception is needed.", violations);
}
