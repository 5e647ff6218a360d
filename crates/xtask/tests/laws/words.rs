//! Laws on words: one word for one thing, one spelling.

use crate::tree::{Offence, assert_kept, files, sources, text_of};

/// Names of types and functions that the glossary replaces.
const NEVER: [(&str, &str); 8] = [
    ("Affinity", "mask (of a thread) or cpuset (of a container)"),
    ("Snapshot", "observation"),
    ("Master", "arbiter, front or main thread"),
    ("Slave", "worker or peer"),
    ("Mismatch", "drift"),
    ("Qps", "goodput"),
    ("Numa_node", "numa"),
    ("Hyperthread", "cpu"),
];

/// The same in function names.
const NEVER_IN_FUNCTIONS: [(&str, &str); 5] = [
    ("affinity", "mask"),
    ("snapshot", "observation"),
    ("master", "arbiter or main"),
    ("bind_thread", "pin"),
    ("qps", "goodput"),
];

#[test]
fn the_words_of_the_glossary_are_used() {
    let mut offences = Vec::new();
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
                offences.push(Offence::at(source, index, what));
            }
        }
    }
    assert_kept("One word, one meaning: the glossary is law.", offences);
}

/// British spellings and the American one.
const SPELLINGS: [(&str, &str); 17] = [
    ("colour", "color"),
    ("behaviour", "behavior"),
    ("favour", "favor"),
    ("honour", "honor"),
    ("neighbour", "neighbor"),
    ("licence", "license"),
    ("artefact", "artifact"),
    ("labelled", "labeled"),
    ("modelled", "modeled"),
    ("cancelled", "canceled"),
    ("recognis", "recogniz"),
    ("optimis", "optimiz"),
    ("serialis", "serializ"),
    ("initialis", "initializ"),
    ("normalis", "normaliz"),
    ("minimis", "minimiz"),
    ("maximis", "maximiz"),
];

#[test]
fn spelling_is_american() {
    let is_text = |path: &String| {
        [
            ".rs", ".md", ".toml", ".yaml", ".yml", ".py", ".sh", "Makefile",
        ]
        .iter()
        .any(|end| path.ends_with(end))
    };
    // This file holds the list; gRPC's and tokio's own names are not ours to spell.
    let is_ours = |path: &String| {
        !path.ends_with("laws/words.rs")
            && !path.starts_with("crates/serving/proto/")
            && path != "LICENSE"
    };
    let mut offences = Vec::new();
    for path in files("")
        .into_iter()
        .filter(|path| is_text(path) && is_ours(path))
    {
        let text = text_of(&path, "it was just listed").to_lowercase();
        for (index, line) in text.lines().enumerate() {
            for (british, american) in SPELLINGS {
                // `Cancelled` is a name of tonic's and tokio's, `.maximise(` one of good_lp's.
                let is_theirs = path.ends_with(".rs")
                    && (british == "cancelled" || line.contains(".maximise("));
                if line.contains(british) && !is_theirs {
                    let what = format!("\"{british}\": write \"{american}\"");
                    offences.push(Offence::of(format!("{path}:{}", index + 1), what));
                }
            }
        }
    }
    assert_kept("Spelling is American.", offences);
}
