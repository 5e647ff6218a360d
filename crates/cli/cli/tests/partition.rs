//! `albacore partition` as a process: its results, and rejected input.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod command;

use command::{albacore, assert_refused, data};
use serde_json::Value;

fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("models.yaml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

#[test]
fn the_example_is_partitioned_within_its_limits() {
    let path = data("../../examples/partition.yaml");
    let ran = albacore(&[
        "partition",
        "-f",
        path.to_str().unwrap(),
        "--random",
        "--seconds",
        "1",
    ]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let found: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(found["clusters"].as_array().unwrap().len(), 2);
    let number = |key: &str| found[key].as_f64().unwrap();
    assert!(
        number("change_cost") <= 8.0 && number("gap") < 1e-6,
        "{found}"
    );
    let random = found["random"]["objective"].as_f64().unwrap();
    assert!(number("objective") <= random + 1e-9, "{found}");
}

#[test]
fn what_is_wrong_is_refused_with_file_line_and_key() {
    let good = "clusters: 2\nmodels:\n  - {name: a, rate: 1, memory: 2}\n  - {name: b, rate: 2, \
                memory: 2}\n";
    for (from, to, words) in [
        (
            "clusters: 2",
            "clusters: 0",
            ["models.yaml: line 1", "clusters"],
        ),
        ("rate: 1,", "rate: -1,", ["line 3", "models[0].rate: -1"]),
        ("rate: 1,", "rat: 1,", ["line 3", "rat"]),
        ("name: b", "name: a", ["line 4", "a appears twice"]),
        (
            "models:",
            "weight: heavy\nmodels:",
            ["line 2", "weight: invalid"],
        ),
        (
            "models:",
            "limits: {memory: 1}\nmodels:",
            ["memory 2", "above the limit 1"],
        ),
        (
            "models:",
            "current: {c: 0}\nmodels:",
            ["line 2", "current.c"],
        ),
        (
            "models:",
            "current: {a: 2}\nmodels:",
            ["line 2", "current.a: 2"],
        ),
    ] {
        let (_folder, path) = file(&good.replace(from, to));
        assert_refused(&albacore(&["partition", "-f", &path]), 64, &words);
    }
    assert_refused(
        &albacore(&["partition", "-f", "none.yaml"]),
        64,
        &["none.yaml"],
    );
}
