//! Models and batching change under load: no request fails, and each reply is from one revision.

use std::collections::HashSet;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use albacore_settings::{Policy, Slo};
use serde_json::Value;

use super::running::{Connection, Running};
use super::volume::digest;
use super::{
    FILES, Volume, infer, infer_body, model, settings, start, state, until, until_in_force,
};

const SWAPS: usize = 24;

/// The output of each revision for a call.
fn answers(body: &[u8]) -> Vec<Value> {
    let answer = |file: &&str| {
        let volume = Volume::new(&settings(vec![model(file)], Policy::Eager, 1024));
        let mut server = start(&volume, &[]);
        server.wait_until_ready();
        let answer = infer(&server, "m", body);
        assert_eq!(answer.status, 200);
        let output = answer.json()["outputs"][0].clone();
        assert_eq!(server.stop("-TERM"), Some(0));
        output
    };
    FILES.iter().map(answer).collect()
}

/// Sends calls until `is_over`; every reply must be one of `known`. Returns the number of calls,
/// and adds the indexes of the replies to `given`.
fn load(
    server: &Running,
    body: &[u8],
    known: &[Value],
    is_over: &AtomicBool,
    given: &Mutex<HashSet<usize>>,
) -> usize {
    let mut connection = Connection::to(server.http);
    let mut calls = 0;
    while !is_over.load(Ordering::Relaxed) {
        let answer = connection.call("POST", "/v2/models/m/infer", &[], body);
        let text = String::from_utf8_lossy(&answer.body);
        assert_eq!(answer.status, 200, "after {calls} calls: {text}");
        let output = &answer.json()["outputs"][0];
        let which = known.iter().position(|known| known == output);
        given
            .lock()
            .unwrap()
            .insert(which.expect("one revision's answer"));
        calls += 1;
    }
    calls
}

/// Swaps models and batching while four clients send calls of `rows` rows and `meanwhile` runs.
fn swap_under_load(rows: usize, meanwhile: impl Fn(&Running, &AtomicBool) + Sync) {
    let body = infer_body(rows);
    let known = answers(&body);
    let volume = Volume::new(&settings(vec![model(FILES[0])], Policy::default(), 1024));
    let mut server = start(&volume, &[]);
    server.wait_until_ready();
    let is_over = AtomicBool::new(false);
    let (given, calls) = (Mutex::new(HashSet::new()), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let sent = load(&server, &body, &known, &is_over, &given);
                calls.fetch_add(sent, Ordering::Relaxed);
            });
        }
        scope.spawn(|| meanwhile(&server, &is_over));
        for swap in 1..=SWAPS {
            let policy = match swap % 3 {
                0 => Policy::default(),
                1 => Policy::Eager,
                _ => Policy::Timeout {
                    delay: Duration::from_millis(1),
                },
            };
            let which = swap % FILES.len();
            let mut model = model(FILES[which]);
            model.sha256 = Some(digest(FILES[which]));
            volume.update(&settings(vec![model], policy, [16, 1024, 100][swap % 3]));
            until_in_force(&server, &volume);
            let output = &infer(&server, "m", &body).json()["outputs"][0];
            assert_eq!(*output, known[which], "swap {swap} is over");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(given.into_inner().unwrap().len(), FILES.len());
    assert!(calls.into_inner() >= SWAPS, "there was load");
    // All old images are unmapped: workers have only one revision open.
    for pid in server.live_workers() {
        let images = || {
            let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
            maps.lines()
                .filter(|line| line.contains("albacore-model"))
                .count()
        };
        until(&server, "old images are closed", |_| images() <= 1);
    }
    let metrics = server.get("/metrics").body;
    let metrics = String::from_utf8(metrics).unwrap();
    assert!(
        metrics.contains("albacore_failed_total{model=\"m\"} 0"),
        "{metrics}"
    );
    assert_eq!(server.stop("-TERM"), Some(0));
}

#[test]
fn no_request_fails_or_is_answered_by_two_versions_over_many_swaps() {
    // Larger than some batches, so that the parts of a request run separately.
    swap_under_load(40, |_, _| {});
}

#[test]
fn workers_killed_during_swaps_lose_no_request() {
    swap_under_load(40, |server, is_over| {
        let mut kills = 0;
        while !is_over.load(Ordering::Relaxed) {
            let workers = server.live_workers();
            if let Some(pid) = workers.get(kills % workers.len().max(1)) {
                let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
                kills += usize::from(killed.unwrap().success());
            }
            std::thread::sleep(Duration::from_millis(150));
        }
        assert!(kills >= 5, "{kills} workers were killed");
    });
}

#[test]
fn objectives_and_bounds_change_without_loading_anything() {
    let mut slow = model(FILES[0]);
    let volume = Volume::new(&settings(vec![slow.clone()], Policy::default(), 1024));
    let mut server = start(&volume, &[]);
    server.wait_until_ready();
    let body = infer_body(5);
    assert_eq!(infer(&server, "m", &body).status, 200);
    let before = until_in_force(&server, &volume);
    assert_eq!(
        (&before["requests"]["good"], &before["bad_rate"]),
        (&1.into(), &0.0.into())
    );
    until(&server, "the workers were idle for a while", |state| {
        state["load_factor"].as_f64().unwrap() < 1.0
    });
    // Shorter than the latency of any reply.
    slow.slo = Some(Slo::uniform(Duration::from_micros(1), 99.0));
    let text = settings(vec![slow], Policy::default(), 4);
    volume.update(&text.replace("max_rows: 65536", "max_rows: 4"));
    let after = until_in_force(&server, &volume);
    let (old, new) = (&before["models"][0], &after["models"][0]);
    assert_eq!(
        old["loaded_at_unix_ms"], new["loaded_at_unix_ms"],
        "nothing was loaded"
    );
    assert_eq!(infer(&server, "m", &infer_body(4)).status, 200);
    let refused = infer(&server, "m", &body);
    assert_eq!(refused.status, 413, "5 rows, and 4 may wait");
    let state = state(&server);
    assert_eq!(state["requests"]["late"], 1, "{state:#}");
    assert_eq!(state["load_factor"], 2.0, "one of two was bad");
    let kernels = state["models"][0]["kernels"].as_array().unwrap();
    let last = kernels.last().unwrap();
    assert!(
        last["rows_max"].is_null() && last["kernel"].is_string(),
        "{kernels:?}"
    );
    let latency = &state["models"][0]["latency"][0];
    assert_eq!(
        (&latency["kind"], &latency["samples"]),
        (&"value".into(), &2.into())
    );
    assert!(state["latency_p99_ms"].as_f64().unwrap() > 0.0);
    let metrics = String::from_utf8(server.get("/metrics").body).unwrap();
    assert!(metrics.contains("albacore_load_factor 2.0"), "{metrics}");
}

#[test]
fn models_are_added_and_removed_while_others_serve() {
    let named = |name: &str, file: &str| {
        let mut model = model(file);
        model.name = name.to_owned();
        model
    };
    let only = |models| settings(models, Policy::default(), 1024);
    let volume = Volume::new(&only(vec![named("a", FILES[0])]));
    let mut server = start(&volume, &[]);
    server.wait_until_ready();
    let body = infer_body(3);
    for round in 0..5 {
        let name = format!("b{round}");
        assert_eq!(infer(&server, &name, &body).status, 404);
        volume.update(&only(vec![named("a", FILES[0]), named(&name, FILES[1])]));
        until_in_force(&server, &volume);
        assert_eq!(infer(&server, &name, &body).status, 200);
        assert_eq!(infer(&server, "a", &body).status, 200);
        volume.update(&only(vec![named("a", FILES[0])]));
        until_in_force(&server, &volume);
        assert_eq!(infer(&server, &name, &body).status, 404);
    }
    let metrics = String::from_utf8(server.get("/metrics").body).unwrap();
    assert!(
        !metrics.contains("albacore_batches_total{model=\"b"),
        "{metrics}"
    );
    // A new worker has the served models only.
    server.signal_workers("-KILL");
    until(&server, "the workers are back", |state| {
        state["workers"]["alive"] == 2
    });
    assert_eq!(infer(&server, "a", &body).status, 200);
}

#[test]
fn a_model_file_that_is_replaced_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.ubj");
    let put = |file: &str| {
        let new = folder.path().join("new");
        std::fs::copy(super::running::zoo(file), &new).unwrap();
        std::fs::rename(&new, &path).unwrap();
    };
    put(FILES[0]);
    let mut model = model(FILES[0]);
    model.source = albacore_settings::Source::Path(path.display().to_string());
    let volume = Volume::new(&settings(vec![model], Policy::default(), 1024));
    let mut server = start(&volume, &[]);
    server.wait_until_ready();
    let body = infer_body(3);
    let first = infer(&server, "m", &body).json();
    put(FILES[1]);
    until(&server, "the new file is loaded", |state| {
        state["models"][0]["sha256"] == digest(FILES[1]).to_string()
    });
    let second = infer(&server, "m", &body).json();
    assert_ne!(first["outputs"], second["outputs"]);
    let event = server.event("model_loaded");
    assert_eq!(event["model"], "m");
}

#[test]
fn a_model_file_that_is_written_anew_in_a_folder_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, file: &str| {
        std::fs::copy(super::running::zoo(file), folder.path().join(name)).unwrap();
    };
    write("model.bst", FILES[0]);
    let mut model = model(FILES[0]);
    model.source = albacore_settings::Source::Path(folder.path().display().to_string());
    let volume = Volume::new(&settings(vec![model], Policy::default(), 1024));
    let mut server = start(&volume, &[]);
    server.wait_until_ready();
    write("model.bst", FILES[1]);
    let is_second = |state: &Value| state["models"][0]["sha256"] == digest(FILES[1]).to_string();
    until(&server, "the new content is loaded", is_second);
    write("other.bst", FILES[0]);
    until(&server, "two files are refused", |state| {
        let error = state["models"][0]["error"].as_str();
        error.is_some_and(|text| text.contains("model.bst and other.bst")) && is_second(state)
    });
    assert_eq!(infer(&server, "m", &infer_body(3)).status, 200);
}
