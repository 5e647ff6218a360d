//! `albacore run` applies edits of batching, objectives, queue and models while the server runs,
//! through the settings file and `albacore-params`; models are given by checksum or fetched over
//! the network.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

mod deployment;
mod running;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use deployment::{Folder, root};
use running::{ANY_PORTS, DEADLINE, Running, kill, refused};
use serde_json::Value;

fn start(file: &std::path::Path) -> (Running, String) {
    let mut run = Running::start(file, &[&["--output", "json"], &ANY_PORTS[..]].concat());
    let listening = run.until("listening", |e| e["event"] == "listening");
    let http = listening["http"].as_str().unwrap().to_owned();
    run.until("ready", |e| e["event"] == "ready");
    (run, http)
}

fn state(http: &str) -> Value {
    let mut stream = TcpStream::connect(http).unwrap();
    let head = "GET /albacore/v1/state HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// Waits until the server's state satisfies a condition; returns the elapsed time.
fn until(http: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Duration {
    let start = Instant::now();
    loop {
        let state = state(http);
        if is_so(&state) {
            return start.elapsed();
        }
        assert!(start.elapsed() < DEADLINE, "never: {what}: {state:#}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Edits the maximum rows of a batch and the batching policy of the deployment.
fn batching(folder: &Folder, rows: u32, policy: &str) -> PathBuf {
    let text = deployment::fraud_text();
    let text = text.replace("maxRows: 1024", &format!("maxRows: {rows}"));
    folder.write(&text.replace("policy: Auto", &format!("policy: {policy}")))
}

fn checksum(file: &std::path::Path) -> String {
    let said = Command::new("sha256sum").arg(file).output().unwrap().stdout;
    String::from_utf8(said).unwrap()[..64].to_owned()
}

/// The private directory of a run.
fn private_folder(run: &Running) -> PathBuf {
    let line = &run.processes()[&run.process("albacore-params")];
    let socket = line.split(' ').find(|word| word.ends_with("params.sock"));
    PathBuf::from(socket.unwrap())
        .parent()
        .unwrap()
        .to_path_buf()
}

#[test]
fn an_edit_of_batching_reaches_the_running_server_even_after_params_is_killed() {
    let folder = Folder::new("batching");
    let (mut run, http) = start(&folder.fraud(""));
    until(&http, "the first parameters are in force", |state| {
        state["params"]["generation"] == 1
    });
    let server = run.process("albacore-server --workers");
    let private = private_folder(&run);
    let mut times = Vec::new();
    for edit in 2..12_u32 {
        let edited = Instant::now();
        let policy = ["Eager", "Deferred"][edit as usize % 2];
        batching(&folder, 1000 + edit, policy);
        until(&http, "the edit", |state| {
            state["batching"]["max_rows"] == 1000 + edit
                && state["batching"]["policy"] == policy.to_lowercase()
        });
        times.push(edited.elapsed());
    }
    times.sort();
    eprintln!(
        "edit of the file to rules in force: median {:?}, worst {:?}",
        times[5], times[9]
    );
    until(&http, "the edit is in force", |state| {
        state["params"]["generation"] == 11
    });
    // Killed: nothing changes, it is restarted, and the next edit is delivered through it.
    kill(run.process("albacore-params"), "KILL");
    let note = run.until("the note", |e| {
        e["text"].as_str().is_some_and(|t| t.contains("params"))
    });
    assert!(
        note["text"].as_str().unwrap().contains("is started again"),
        "{note}"
    );
    until(&http, "connected again", |state| {
        state["params"]["connected"] == true
    });
    assert_eq!(state(&http)["batching"]["max_rows"], 1011);
    batching(&folder, 77, "Eager");
    until(&http, "the next", |state| {
        state["params"]["generation"] == 12
    });
    assert_eq!(state(&http)["batching"]["max_rows"], 77);
    assert_eq!(
        run.process("albacore-server --workers"),
        server,
        "no restart"
    );
    // Edits of sizes take effect at a restart and are reported.
    let text = fs::read_to_string(folder.path().join("deployment.yaml")).unwrap();
    folder.write(&text.replace("workers: 2", "workers: 1"));
    run.until("the note", |e| {
        e["text"]
            .as_str()
            .is_some_and(|t| t.contains("takes effect when"))
    });
    assert!(private.exists());
    run.signal("TERM");
    assert_eq!(run.end().code(), Some(0), "{:#?}", run.events);
    assert!(run.processes().is_empty(), "{:?}", run.processes());
    assert!(!private.exists(), "its folder is gone");
}

#[test]
fn an_edit_of_one_model_reaches_the_running_server() {
    let folder = Folder::new("model");
    let (mut run, http) = start(&folder.fraud(""));
    until(&http, "the first parameters are in force", |state| {
        state["params"]["generation"] == 1
    });
    let server = run.process("albacore-server --workers");
    let text = fs::read_to_string(folder.path().join("deployment.yaml")).unwrap();
    let slo = "slo: {latency: 25ms, percentile: 99}";
    let own = "batching: {policy: Deferred, window: 3ms}";
    let edited = format!("{slo}\n    weight: 250\n    threads: 1\n    {own}");
    folder.write(&text.replace(slo, &edited));
    until(&http, "the edit", |state| {
        let model = &state["models"][0];
        let params = &model["batching_params"];
        state["params"]["generation"] == 2
            && (&model["weight"], &model["threads"]) == (&250.into(), &1.into())
            && (&params["policy"], &params["window_us"]) == (&"deferred".into(), &3000.into())
            && params["max_rows"] == 1024
            && state["batching"]["policy"] == "auto"
    });
    assert_eq!(run.process("albacore-server --workers"), server);
    // An edit of the front end's threads takes effect at a restart and is reported.
    folder.write(&text.replace("  batching:", "  front: {threads: 1}\n  batching:"));
    run.until("the note", |e| {
        e["text"]
            .as_str()
            .is_some_and(|t| t.contains("threads, front,") && t.contains("takes effect when"))
    });
    run.signal("TERM");
    assert_eq!(run.end().code(), Some(0), "{:#?}", run.events);
}

#[test]
fn leftovers_of_a_killed_run_are_removed_by_the_next_run() {
    let folder = Folder::new("killed");
    let (run, _) = start(&folder.fraud(""));
    let private = private_folder(&run);
    run.signal("KILL");
    let start_of_end = Instant::now();
    while !run.processes().is_empty() {
        assert!(start_of_end.elapsed() < DEADLINE, "{:?}", run.processes());
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(run);
    assert!(private.exists());
    let (_next, _) = start(&folder.fraud(""));
    assert!(!private.exists());
}

/// Serves these bytes for every request.
fn serve(bytes: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let length = bytes.len();
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
            let _ = stream
                .write_all(head.as_bytes())
                .and_then(|()| stream.write_all(&bytes));
        }
    });
    format!("http://{address}/fraud.ubj")
}

#[test]
fn models_come_with_checksums_and_from_the_network_and_are_swapped_live() {
    let folder = Folder::new("models");
    let model = root().join("examples/fraud.ubj");
    let sum = checksum(&model);
    let text = deployment::fraud_text();
    let uri = format!("file://{}", model.display());
    let url = serve(fs::read(&model).unwrap());
    let wrong = folder.write(&text.replace(&uri, &format!("{uri}#sha256={}", "0".repeat(64))));
    let end = refused(&[], &wrong, &ANY_PORTS);
    assert_eq!(end.code, 1, "{end:?}");
    assert!(
        end.err.contains("model \"fraud\"") && end.err.contains(&sum),
        "{end:?}"
    );
    assert!(end.left.is_empty(), "{end:?}");
    let right = folder.write(&text.replace(&uri, &format!("{uri}#sha256={sum}")));
    let (mut run, http) = start(&right);
    assert_eq!(state(&http)["models"][0]["sha256"], *sum);
    folder.write(&text.replace(&uri, &format!("{url}#sha256={sum}")));
    until(&http, "from the network", |state| {
        state["models"][0]["source"] == url && state["models"][0]["state"] == "loaded"
    });
    let other = root().join("tests/data/models/xgb_exact.ubj");
    folder.write(&text.replace(&uri, &format!("file://{}", other.display())));
    let loaded = run.until("another model", |e| {
        e["event"] == "model_loaded" && e["sha256"] == *checksum(&other)
    });
    assert_eq!(loaded["model"], "fraud");
    run.signal("INT");
    assert_eq!(run.end().code(), Some(0), "{:#?}", run.events);
}
