//! A real server with a settings file as mounted by Kubernetes: a directory with an atomically
//! replaced `..data` symlink.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod categories;
mod errors;
mod iterations;
mod model_batching;
mod naming;
mod object_store;
mod objectives;
#[path = "../running/mod.rs"]
mod running;
#[path = "../../../storage/tests/stores/seaweed.rs"]
mod seaweed;
#[path = "../../../storage/tests/stores/servers.rs"]
mod servers;
mod swaps;
mod volume;
mod weights;

use std::time::{Duration, Instant};

use running::{Answer, PATIENCE, Running};
use serde_json::{Value, json};

pub(crate) use volume::{Volume, model, settings};

/// Models with ten features and different results; the last one returns three values per row.
pub(crate) const FILES: [&str; 3] = ["xgb_exact.ubj", "xgb_stump.ubj", "xgb_multi_target.ubj"];

/// Starts a server with the settings of a volume.
pub(crate) fn start(volume: &Volume, further: &[&str]) -> Running {
    let file = volume.settings().display().to_string();
    let arguments = ["--settings", &file, "--workers", "2", "--threads", "2"];
    let arguments: Vec<String> = arguments
        .iter()
        .chain(further)
        .map(|&argument| argument.to_owned())
        .collect();
    Running::spawn(&arguments)
}

/// An infer call of `rows` rows of ten features.
pub(crate) fn infer_body(rows: usize) -> Vec<u8> {
    let value = |at: usize| (at * 7919 % 1000) as f64 / 250.0 - 2.0;
    let data: Vec<f64> = (0..rows * 10).map(value).collect();
    let input = json!({"name": "input", "shape": [rows, 10], "datatype": "FP32", "data": data});
    json!({ "inputs": [input] }).to_string().into_bytes()
}

pub(crate) fn infer(server: &Running, name: &str, body: &[u8]) -> Answer {
    server.post(&format!("/v2/models/{name}/infer"), &[], body)
}

/// Returns the state reported by the server.
pub(crate) fn state(server: &Running) -> Value {
    server.get("/albacore/v1/state").json()
}

/// Waits until the state satisfies `is_so`.
pub(crate) fn until(server: &Running, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let state = state(server);
        if is_so(&state) {
            return state;
        }
        assert!(start.elapsed() < PATIENCE, "never: {what}: {state:#}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the settings of the volume are in force and all their models are loaded.
pub(crate) fn until_in_force(server: &Running, volume: &Volume) -> Value {
    let expected = volume.sha256();
    until(server, "the settings are in force", |state| {
        let models = state["models"].as_array().unwrap();
        state["settings_sha256"] == *expected && models.iter().all(|m| m["state"] == "loaded")
    })
}
