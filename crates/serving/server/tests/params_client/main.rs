//! A real server that receives parameters while it runs: from a fake params service, which also
//! sends invalid ones, and from `albacore-params` itself.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod fake;
mod fake_params;
mod real;
#[path = "../running/mod.rs"]
mod running;
#[path = "../config_watcher/volume.rs"]
mod volume;

use std::time::{Duration, Instant};

use albacore_proto::params as proto;
use running::{PATIENCE, Running};
use serde_json::{Value, json};

/// Starts a server with `--params endpoint`.
pub(crate) fn start(arguments: &[&str], endpoint: &str) -> Running {
    let arguments: Vec<String> = arguments
        .iter()
        .chain(&["--params", endpoint])
        .map(|&argument| argument.to_owned())
        .collect();
    let mut server = Running::spawn(&arguments);
    server.wait_until_ready();
    server
}

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
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The value of a metric without labels.
pub(crate) fn metric(server: &Running, name: &str) -> f64 {
    let text = String::from_utf8(server.get("/metrics").body).unwrap();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value
        .unwrap_or_else(|| panic!("{name} is not in\n{text}"))
        .parse()
        .unwrap()
}

/// Status of an infer call of `rows` rows of ten features.
pub(crate) fn infer(server: &Running, rows: usize) -> u16 {
    let data: Vec<f64> = (0..rows * 10).map(|at| at as f64 / 7.0).collect();
    let input = json!({"name": "input", "shape": [rows, 10], "datatype": "FP32", "data": data});
    let body = json!({ "inputs": [input] }).to_string().into_bytes();
    server.post("/v2/models/m/infer", &[], &body).status
}

/// Policy timeout with `rows` rows per batch, with generation `rows`.
pub(crate) fn message(rows: u32) -> proto::Parameters {
    proto::Parameters {
        batching: Some(proto::Batching {
            policy: proto::Policy::Timeout.into(),
            max_rows: rows,
            max_delay_us: Some(1500),
            prefer: None,
            window_us: None,
        }),
        queue: Some(proto::Queue { max_rows: 65_536 }),
        slo: Vec::new(),
        generation: u64::from(rows),
        report_us: None,
        models: Vec::new(),
    }
}
