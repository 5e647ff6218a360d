//! A trial of placements on the server of `albacore run` under load: two windows, and with
//! ALBACORE_SOAK also the verdict, which takes up to a minute.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]
#![allow(dead_code, reason = "other tests use the rest of these modules")]

mod deployment;
mod running;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use albacore_load::{Load, Shape, drive};
use deployment::{Folder, one_row};
use running::{ANY_PORTS, Running};

/// Ends the load on drop, also if the test fails, because the scope waits for it.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// More requests per second than a window of a second needs.
const RATE: u32 = 400;

#[test]
fn a_trial_compares_placements_on_the_running_server() {
    let folder = Folder::new("trial");
    let trial = "  placement: {trial: {window: 1s, windows: 8, arms: [Scatter, None]}}\n";
    let args = [&["--output", "json"], &ANY_PORTS[..]].concat();
    let mut run = Running::start(&folder.fraud(trial), &args);
    let (_, listening) = run.placed_and_listening("tuna");
    let address = listening["http"].as_str().unwrap().parse().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let times = (0..RATE).map(|i| Duration::from_secs(1) * i / RATE);
                let load = Load {
                    requests: vec![one_row(address)],
                    shape: Shape::Open(times.collect()),
                    connections: 8,
                };
                drive(load).unwrap();
            }
        });
        let _stop = StopOnDrop(&stop);
        for policy in ["none", "tuna"] {
            run.placed(policy);
        }
        if std::env::var_os("ALBACORE_SOAK").is_none() {
            return;
        }
        let decided = run.until("a verdict", |e| e["event"] == "trial_decided");
        let text = decided["text"].as_str().unwrap();
        assert!(text.contains("p99 relative to"), "{text}");
        let stays = match decided["outcome"].as_str().unwrap() {
            "kept" => "Scatter",
            "withdrawn" => "None",
            other => panic!("{other}: {decided}"),
        };
        assert_eq!(decided["placement"], stays);
    });
    let notes = run.events_named("note");
    let begun = notes.filter(|e| {
        e["text"]
            .as_str()
            .unwrap()
            .starts_with("a trial of placements")
    });
    assert_eq!(begun.count(), 1);
    folder.fraud("");
    run.placed("tuna").assert_kernel_agrees();
    run.signal("TERM");
    assert!(run.end().success());
}
