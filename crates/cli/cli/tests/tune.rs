//! Runs `albacore tune` with a short time: its results, and rejected input.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use albacore_os::{HostRoot, Pid};
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// `albacore tune`, with the programs that it starts built in the same directory.
fn command(file: &Path, results: &Path, options: &[&str]) -> Command {
    albacore_testbed::product_of("albacore-lab-commands", "albacore-lab").unwrap();
    for program in ["albacore-server", "albacore-params"] {
        albacore_testbed::product(program).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_albacore"));
    command.args(["tune", "-f"]).arg(file);
    command.arg("--output").arg(results).args(options);
    command
}

fn tune(file: &Path, results: &Path, options: &[&str]) -> Output {
    command(file, results, options).output().unwrap()
}

fn outcome(results: &Path) -> Value {
    let text = std::fs::read(results.join("tune.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Writes a deployment with comments, next to its model.
fn write_deployment(folder: &Path) -> PathBuf {
    std::fs::copy(root().join("examples/fraud.ubj"), folder.join("fraud.ubj")).unwrap();
    let example = std::fs::read_to_string(root().join("examples/fraud.yaml")).unwrap();
    let file = folder.join("deployment.yaml");
    let own = "replicas: 999\n  workers: 2 # of mine\n";
    let commented = example.replacen("workers: 2\n", own, 1);
    assert_ne!(commented, example);
    std::fs::write(&file, commented).unwrap();
    file
}

#[test]
fn a_configuration_is_found_and_applied() {
    let folder = tempfile::tempdir().unwrap();
    let file = write_deployment(folder.path());
    let results = folder.path().join("results");
    let options = ["--time", "10s", "--latency", "400ms", "--rate", "200"];
    let done = tune(&file, &results, &[&options[..], &["--apply"]].concat());
    let said = text(&done.stderr);
    assert!(done.status.success(), "{said}");
    for step in ["one process of one thread: 1 x 1", "candidates ranked"] {
        assert!(said.contains(step), "{said}");
    }
    let patched = std::fs::read_to_string(results.join("fraud.yaml")).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), patched);
    assert!(patched.contains("# of mine"), "{patched}");
    let found = outcome(&results);
    let chosen = &found["chosen"];
    for (field, value) in [
        ("workers", &chosen["workers"]),
        ("threads", &chosen["threads"]),
    ] {
        assert!(patched.contains(&format!("{field}: {value}")), "{patched}");
    }
    let replicas = format!("replicas: {}", found["pods"]["pods"]);
    assert!(patched.contains(&replicas), "{replicas}: {patched}");
    assert!(found["rankingSeconds"].as_f64().unwrap() > 0.0);
    assert!(found["measured"].as_array().unwrap().len() >= 2);
    let report = std::fs::read_to_string(results.join("report.html")).unwrap();
    assert!(report.contains("p99 by goodput") && !report.contains("<script"));
    assert!(text(&done.stdout).contains("requests/s at 400 ms: "));
}

/// The mask of a thread as printed by the kernel.
fn mask(tid: i32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.unwrap_or_default().trim().to_owned()
}

/// Asserts that the servers started by `tune` are on CPU 0 and its load generator is on the other
/// CPUs, as printed.
fn assert_apart(tune: u32, said: &str) {
    let tune = i32::try_from(tune).unwrap();
    let servers = albacore_os::read_children(&HostRoot::live(), Pid(tune)).unwrap();
    assert!(servers.len() >= 2, "{servers:?}");
    assert!(
        servers.iter().all(|server| mask(server.0) == "0"),
        "{servers:?}"
    );
    let own = mask(tune);
    assert_ne!(own, "0");
    let words = format!("servers on cpus 0, load generator on cpus {own}");
    assert!(said.contains(&words), "{said}");
}

#[test]
fn what_was_measured_before_an_interrupt_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = write_deployment(folder.path());
    let before = std::fs::read_to_string(&file).unwrap();
    let results = folder.path().join("results");
    let options = ["--time", "10s", "--latency", "400ms", "--rate", "200"];
    let options = [&options[..], &["--apply", "--cpus", "0"]].concat();
    let mut command = command(&file, &results, &options);
    let mut run = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(run.stderr.take().unwrap());
    let mut lines = String::new();
    while !lines.contains("a first round of ") {
        assert_ne!(said.read_line(&mut lines).unwrap(), 0, "{lines}");
    }
    assert_apart(run.id(), &lines);
    let signal = ["-INT", &run.id().to_string()];
    assert!(
        Command::new("kill")
            .args(signal)
            .status()
            .unwrap()
            .success()
    );
    said.read_to_string(&mut lines).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(1), "{lines}");
    assert!(
        lines.contains("ended early: interrupted; nothing was changed"),
        "{lines}"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
    assert!(!results.join("fraud.yaml").exists());
    let found = outcome(&results);
    assert_eq!(found["endedEarly"], "interrupted");
    assert_eq!(found["cpus"], 1);
    assert!(
        lines.contains(found["machine"].as_str().unwrap()),
        "{lines}"
    );
    assert!(
        !found["measured"][0]["windows"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    let report = std::fs::read_to_string(results.join("report.html")).unwrap();
    assert!(report.contains("Ended early, in round "), "{report}");
}

#[test]
fn an_objective_that_nothing_meets_is_refused_with_one_that_can_be_met() {
    let folder = tempfile::tempdir().unwrap();
    let file = write_deployment(folder.path());
    let before = std::fs::read_to_string(&file).unwrap();
    let options = ["--latency", "5us", "--apply"];
    let done = tune(&file, &folder.path().join("results"), &options);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
    let said = text(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(
        said.contains("no configuration meets an objective of 0.005 ms"),
        "{said}"
    );
    // with an objective that can be met, or without one if the server rejected all requests
    assert!(said.contains("a request alone"), "{said}");
}

#[test]
fn the_benchmark_of_tune_takes_cpus() {
    let folder = tempfile::tempdir().unwrap();
    let file = write_deployment(folder.path());
    albacore_testbed::product_of("albacore-lab-commands", "albacore-lab").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_albacore"));
    command.args(["bench", "tune", "--cpus", "8191", "-f"]);
    let done = command.arg(&file).output().unwrap();
    let said = text(&done.stderr);
    assert_eq!(done.status.code(), Some(64), "{said}");
    assert!(said.contains("--cpus 8191: "), "{said}");
}

#[test]
fn bad_input_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = write_deployment(folder.path());
    let results = folder.path().join("results");
    let refused = |file: &Path, options: &[&str], what: &str| {
        let done = tune(file, &results, options);
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(64), "{said}");
        assert!(said.contains(what), "{said}");
    };
    refused(&file, &["--rate", "0"], "--rate");
    refused(&file, &["--cpus", "8191"], "--cpus 8191: ");
    refused(&file, &["--cpus", ""], "--cpus is empty");
    refused(&file, &["--mix", "nobody/1"], "\"nobody\"");
    refused(&file, &["--watch", "http://127.0.0.1:1"], "--apply");
    let nowhere = ["--apply", "--watch", "127.0.0.1:8080"];
    refused(
        &file,
        &nowhere,
        "--watch: 127.0.0.1:8080: expected http://HOST:PORT",
    );
    let own = root().join("examples/gunicorn.yaml");
    refused(&own, &[], "albacore experiment");
    let without = folder.path().join("without.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let text = text.replace("    slo: {latency: 25ms, percentile: 99}\n", "");
    std::fs::write(&without, text).unwrap();
    refused(&without, &[], "--latency");
    let other = folder.path().join("other.yaml");
    for (own, what) in [
        (
            "slo: {latency: 25ms, contribs: 90ms}",
            "spec.models[0].slo: one objective",
        ),
        (
            "batching: {maxRows: 64}\n    slo: {latency: 25ms}",
            "spec.models[0].batching: ",
        ),
    ] {
        let text = std::fs::read_to_string(&file).unwrap();
        let edited = text.replace("slo: {latency: 25ms, percentile: 99}", own);
        assert_ne!(edited, text);
        std::fs::write(&other, edited).unwrap();
        refused(&other, &[], what);
    }
}
