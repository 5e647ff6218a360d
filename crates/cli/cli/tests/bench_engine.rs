//! Runs `albacore bench engine` and `albacore model show` on a model of the test set.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// `albacore`, with `albacore-lab` built in the same directory.
fn albacore() -> Command {
    albacore_testbed::product_of("albacore-lab-commands", "albacore-lab").unwrap();
    Command::new(env!("CARGO_BIN_EXE_albacore"))
}

const MODEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../tests/data/models/main_small_d6.ubj"
);

/// The worker's output for these commands.
fn answers(more: &[&str], orders: &str) -> Vec<String> {
    let mut worker = albacore()
        .args(["bench", "engine"])
        .args(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = worker.stdin.take().unwrap();
    stdin.write_all(orders.as_bytes()).unwrap();
    drop(stdin);
    let output = worker.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn data(folder: &Path) -> String {
    let path = folder.join("rows.f32");
    let values = (0..1024 * 29).map(|it: u32| (it % 977) as f32 / 100.0 - 4.0);
    let bytes: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn the_worker_loads_checks_and_measures_and_every_kernel_gives_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let rows = data(folder.path());
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (own, reference) = (file("own"), file("reference"));
    let got = answers(
        &[],
        &format!(
            "load {MODEL} {rows} 29 1\ncheck predict 1000 {own}\nrun predict 100 5 3\n\
             run contribs 10 5 3\nrun interactions 1 1 1\n"
        ),
    );
    assert_eq!(got[..2], ["ok", "ok"]);
    assert_eq!(got.len(), 5);
    for line in &got[2..] {
        let json: serde_json::Value = serde_json::from_str(line).unwrap();
        let number = |name: &str| json[name].as_f64().unwrap();
        assert!(
            0.0 < number("min") && number("min") <= number("med"),
            "{line}"
        );
        assert!(number("calls") >= 1.0 && number("mean") > 0.0 && number("cpu") >= 0.0);
    }
    let orders = format!("load {MODEL} {rows} 29 1\ncheck predict 1000 {reference}\n");
    assert_eq!(answers(&["--kernel", "nodes"], &orders), ["ok", "ok"]);
    assert_eq!(
        std::fs::read(own).unwrap(),
        std::fs::read(reference).unwrap()
    );
}

#[test]
fn impossible_measurements_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let rows = data(folder.path());
    let got = answers(
        &[],
        &format!(
            "run predict 1 1 1\nload {MODEL} {rows} 30 1\nload {MODEL} {rows} 29 2\n\
             load {MODEL} {rows} 29 1\nrun leaf 1 1 1\nrun predict 2000 1 1\nfly\n"
        ),
    );
    for (line, reason) in got.iter().zip([
        "error no model is loaded",
        "error COLS 30: the model has 29 features",
        "error THREADS 2: only 1 is supported",
        "ok",
        "error KIND leaf: expected predict, contribs or interactions",
        "error BATCH 2000 is out of range: expected 1 to 1024, the rows of the data",
        "error unknown command: fly; see albacore bench engine --help",
    ]) {
        assert_eq!(line, reason);
    }
    assert_eq!(got.len(), 7);
}

#[test]
fn a_model_is_shown_with_the_kernels_that_were_chosen() {
    let output = albacore().args(["model", "show", MODEL]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for part in [
        "format      XGBoost UBJSON 3.2.0",
        "objective   binary:logistic",
        "trees       100",
        "leaves      2533",
        "depth       6",
        " for 1 rows: ",
        " for 64 rows: ",
        "; reads ",
        "contribs    ",
        " us for 1 row",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_model_is_shown_with_its_iterations_and_columns() {
    let show = |file: &str| {
        let zoo = format!("{}/../../../tests/data/models", env!("CARGO_MANIFEST_DIR"));
        let output = albacore()
            .args(["model", "show", &format!("{zoo}/{file}")])
            .output()
            .unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let stopped = show("xgb_early_stop.json");
    for part in [
        "best        iteration 5",
        "as the Booster that saved the file predicts",
        "set iterations to Best",
    ] {
        assert!(stopped.contains(part), "{part} in {stopped}");
    }
    let plain = show("lgb_cat_onehot.txt");
    for part in [
        "used        iterations 0:",
        "column      0 \"Column_0\" (categorical)",
        "column      9 \"Column_9\" (numerical)",
    ] {
        assert!(plain.contains(part), "{part} in {plain}");
    }
    assert!(!plain.contains("best_iteration"), "{plain}");
}
