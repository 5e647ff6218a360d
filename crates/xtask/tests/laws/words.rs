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

/// The same for function names.
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

/// Private terms of earlier versions, with the standard term that replaced each.
const PRIVATE: [(&str, &str); 28] = [
    ("abreast", "lanes"),
    ("catch_up", "poll completions"),
    ("desk", "effective configuration"),
    ("farewell", "shutdown"),
    ("gatekeeper", "request middleware"),
    ("greet", "handshake or roll-out"),
    ("homeless", "displaced"),
    ("ills", "degraded reasons"),
    ("keeper", "reconcile loop"),
    ("knock", "early admission"),
    ("knocks", "early admission"),
    ("lots", "bundles"),
    ("nobody's", "unmanaged"),
    ("parcel", "body"),
    ("pursuit", "search"),
    ("seat", "slot or connection"),
    ("seats", "slots or connections"),
    ("strain", "throttling"),
    ("teller", "event recorder"),
    ("the door", "admission"),
    ("the house", "the repository"),
    ("tide", "burst level"),
    ("told", "reported, sent or notified"),
    ("toll", "penalty"),
    ("wander", "simulated annealing"),
    ("wish", "request or desired state"),
    ("wished", "requested or desired"),
    ("wishes", "requests"),
];

/// The private terms in a line, as whole words in any case.
fn private_words(line: &str) -> Vec<(&'static str, &'static str)> {
    let line = line.to_lowercase();
    let is_word = |c: char| c.is_alphanumeric() || c == '\'';
    let stands_alone = |word: &str| {
        line.match_indices(word).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = line[at + word.len()..].chars().next();
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        })
    };
    PRIVATE
        .into_iter()
        .filter(|(word, _)| stands_alone(word))
        .collect()
}

#[test]
fn no_private_term_is_used() {
    let found: Vec<&str> = private_words("the door of a keeper_thread, wished and Seated")
        .into_iter()
        .map(|(word, _)| word)
        .collect();
    assert_eq!(found, ["keeper", "the door", "wished"]);
    let mut violations = Vec::new();
    for source in sources()
        .iter()
        .filter(|s| !s.path.ends_with("laws/words.rs"))
    {
        for (index, line) in source.lines.iter().enumerate() {
            for (word, instead) in private_words(line) {
                let what = format!("\"{word}\": the word is {instead}");
                violations.push(Violation::at(source, index, what));
            }
        }
    }
    assert_kept("Words are those of the field.", violations);
}
