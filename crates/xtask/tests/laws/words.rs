//! Laws on words: one word for one thing. `make lint` checks the spelling (typos.toml).

use crate::tree::{Violation, assert_kept, sources};

/// Names of types and functions that the glossary replaces.
const NEVER: [(&str, &str); 7] = [
    ("Affinity", "mask (of a thread) or cpuset (of a container)"),
    ("Master", "arbiter, front or main thread"),
    ("Slave", "worker or peer"),
    ("Mismatch", "drift"),
    ("Qps", "goodput"),
    ("Numa_node", "numa"),
    ("Hyperthread", "cpu"),
];

/// The same in function names.
const NEVER_IN_FUNCTIONS: [(&str, &str); 4] = [
    ("affinity", "mask"),
    ("master", "arbiter or main"),
    ("bind_thread", "pin"),
    ("qps", "goodput"),
];

#[test]
fn the_words_of_the_glossary_are_used() {
    let mut violations = Vec::new();
    for source in sources()
        .iter()
        .filter(|s| !s.is_generated && s.krate != "xtask")
    {
        for (index, line) in source.code.iter().enumerate() {
            let item = line
                .trim_start()
                .trim_start_matches("pub(crate) ")
                .trim_start_matches("pub ");
            let mut words = item.split_whitespace();
            let (kind, name) = (
                words.next().unwrap_or_default(),
                words.next().unwrap_or_default(),
            );
            let table: &[(&str, &str)] = match kind {
                "struct" | "enum" | "trait" | "type" => &NEVER,
                "fn" | "mod" | "const" if !source.is_test[index] => &NEVER_IN_FUNCTIONS,
                _ => continue,
            };
            let found = table.iter().find(|(word, _)| name.contains(word));
            if let Some((word, instead)) = found {
                let what = format!("\"{word}\" in {name}: the word is {instead}");
                violations.push(Violation::at(source, index, what));
            }
        }
    }
    assert_kept("One word, one meaning: the glossary is law.", violations);
}
