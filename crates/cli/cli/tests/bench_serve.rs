//! `albacore bench serve` against a real server, over HTTP and gRPC, and rejected options.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

mod command;
mod deployment;

use std::time::Duration;

use albacore_live_bench::service::Service;
use command::{CommandOutput, albacore_words, assert_refused};
use deployment::Folder;
use serde_json::Value;

/// The runs in the output of a command that may fail only because this machine was too busy to keep
/// the schedule.
fn runs(ran: &CommandOutput) -> Vec<Value> {
    let said: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"));
    let runs = said["runs"].as_array().unwrap().clone();
    let is_behind = runs.iter().any(|run| run["is_behind"] == true);
    assert_eq!(ran.code, i32::from(is_behind), "{ran:?}");
    assert_eq!(
        ran.err.contains("behind its schedule"),
        is_behind,
        "{ran:?}"
    );
    runs
}

/// The example with an objective that is met even if the machine stalls for a while.
fn relaxed_objective(folder: &Folder) -> std::path::PathBuf {
    let file = folder.fraud("");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("latency: 25ms"));
    std::fs::write(&file, text.replace("latency: 25ms", "latency: 20s")).unwrap();
    file
}

fn count(run: &Value, name: &str) -> u64 {
    run[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name}: {run}"))
}

#[test]
fn a_live_server_is_compared_with_the_simulator() {
    let folder = Folder::new("bench-serve-against");
    let file = relaxed_objective(&folder);
    let addresses = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];
    let mut service = Service::start(&file, &addresses).unwrap();
    let http = service.listening().unwrap();
    service.ready(Duration::from_secs(30)).unwrap();
    let model = "--model fraud --length 1s --objective 20s -o json";
    let ran = albacore_words(&format!(
        "bench serve http://{http} {model} --rate 100 --mix output:1=3,fraud/contribs:2 \
         --against-simulation"
    ));
    let beside = runs(&ran);
    assert_eq!(beside.len(), 1, "one rate");
    for run in beside {
        let contribs = &run["classes"][1];
        assert_eq!(contribs["class"], "contribs:2", "{run}");
        for side in ["live", "simulated"] {
            let number = |of: &Value, key: &str| of[side][key].as_f64().unwrap();
            // A batch has at least one request, and no request takes as long as 20 s.
            assert!(number(&run, "batch_rows") >= 1.0, "{run}");
            assert!(number(contribs, "batch_rows") >= 2.0, "{run}");
            assert!(number(&run, "p50_ms") > 0.0, "{run}");
            assert_eq!(number(&run, "bad_rate"), 0.0, "{run}");
            let idle = number(&run, "idle_share");
            assert!((0.0..1.0).contains(&idle), "{run}");
        }
    }
    let asked_wrongly =
        format!("bench serve http://{http} {model} --rate 100 --against-simulation");
    let ran = albacore_words(&format!("{asked_wrongly} --mix nobody/contribs:2"));
    assert_refused(&ran, 64, &["--mix", "nobody"]);
    assert_eq!(service.stop(Duration::from_secs(30)).unwrap(), Some(0));
}

#[test]
fn a_load_is_sent_as_drawn_and_every_request_is_accounted_for() {
    let folder = Folder::new("bench-serve");
    let grpc = format!("127.0.0.1:{}", deployment::free_port());
    let file = relaxed_objective(&folder);
    let mut service = Service::start(&file, &["--http", "127.0.0.1:0", "--grpc", &grpc]).unwrap();
    let http = service.listening().unwrap();
    service.ready(Duration::from_secs(30)).unwrap();
    let model = "--model fraud --length 1s --objective 20s -o json";

    let ran = albacore_words(&format!(
        "bench serve http://{http} {model} --rate 100,200 --mix output:1=3,contribs:2=1 --pid {}",
        std::process::id()
    ));
    for run in runs(&ran) {
        let classes = run["classes"].as_array().unwrap();
        let of_classes: u64 = classes.iter().map(|class| count(class, "sent")).sum();
        let sent = count(&run, "sent");
        assert_eq!(of_classes, sent, "{run}");
        assert!(sent > 50 && count(&run, "good") == sent, "{run}");
        assert!(
            run["cpu_seconds_per_1000_rows"].as_f64().unwrap() > 0.0,
            "{run}"
        );
    }
    let over_grpc = format!("bench serve grpc://{grpc} {model} --rate 100 --arrivals gamma:0.5");
    let requested: Value = {
        let (status, body) = albacore_load::get(http, "/v2/models/fraud").unwrap();
        assert_eq!(status, 200);
        serde_json::from_slice(&body).unwrap()
    };
    let known = requested["inputs"][0]["shape"][1].as_u64().unwrap();
    let run = &runs(&albacore_words(&format!("{over_grpc} --features {known}")))[0];
    assert_eq!(count(run, "good"), count(run, "sent"), "{run}");

    let trace = folder.path().join("trace.txt");
    std::fs::write(&trace, "0.1\n0.2\n0.2\n0.5\n").unwrap();
    let picture = folder.path().join("load.svg");
    let ran = albacore_words(&format!(
        "bench serve http://{http} {model} --form binary --arrivals {} --picture {}",
        trace.display(),
        picture.display()
    ));
    assert_eq!(count(&runs(&ran)[0], "good"), 4);
    assert!(
        std::fs::read_to_string(&picture)
            .unwrap()
            .starts_with("<svg")
    );

    // Invalid requests fail early with a clear message.
    let none = albacore_words(&format!(
        "bench serve http://{http} --model nobody --rate 5"
    ));
    assert_refused(&none, 1, &["nobody", "404", "--features"]);
    let wrong = format!("bench serve http://{http} --model fraud --rate 5 --features 3");
    assert_refused(&albacore_words(&wrong), 1, &["400"]);
    assert_eq!(service.stop(Duration::from_secs(30)).unwrap(), Some(0));
}

#[test]
fn invalid_loads_are_refused() {
    let base = "bench serve http://127.0.0.1:1 --model m --features 3";
    for (arguments, word) in [
        ("", "--rate"),
        ("--rate 0", "--rate"),
        ("--rate 5 --length 5", "--length"),
        ("--rate 5 --mix x", "--mix"),
        ("--rate 5 --arrivals gamma:0", "shape"),
        ("--rate 5 --pid 4294967295", "--pid"),
        ("--rate 5 --search", "--search"),
    ] {
        let ran = albacore_words(&format!("{base} {arguments}"));
        assert!(ran.code != 0 && ran.out.is_empty(), "{arguments}: {ran:?}");
        let expected = if word == "--pid" {
            "no request was answered"
        } else {
            word
        };
        assert!(ran.err.contains(expected), "{arguments}: {}", ran.err);
    }
    let ran = albacore_words("bench serve ftp://x --model m --rate 5 --features 3");
    assert_refused(&ran, 64, &["ftp://x", "grpc://"]);
    let ran = albacore_words("bench serve grpc://127.0.0.1:1 --model m --rate 5");
    assert_refused(&ran, 64, &["--features"]);
}
