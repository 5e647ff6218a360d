//! The checker shares no code with what it judges: it may use the nouns and the limits alone.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

/// Modules of this crate that solve or explain.
const SOLVING: [&str; 7] = [
    "crate::single",
    "crate::joint",
    "crate::explain",
    "crate::labeling",
    "crate::levels",
    "crate::rule_limits",
    "crate::solve",
];

/// What the root of the crate offers of them.
const OFFERED: [&str; 3] = ["RuleLimits", "full_mains", "validate"];

fn check_sources(folder: &Path, look: &mut dyn FnMut(&Path, &str)) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            check_sources(&path, look);
        } else {
            look(&path, &std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn the_checker_names_no_module_that_solves() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = 0;
    let mut look = |path: &Path, text: &str| {
        files += 1;
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            let named = SOLVING
                .iter()
                .chain(&OFFERED)
                .find(|name| line.contains(**name));
            assert_eq!(named, None, "{}: {line}", path.display());
        }
    };
    look(
        &root,
        &std::fs::read_to_string(root.join("check.rs")).unwrap(),
    );
    check_sources(&root.join("check"), &mut look);
    assert!(files > 7, "{files} files");
}
