//! Many deployments at a real API server. Counted, never guessed: requests from its audit log,
//! memory from /proc.
//!
//! `cargo bench -p albacore-controller` runs a small fleet; with arguments:
//! `-- cold 1000` (from nothing to everything applied), `-- settled 500` (writes of 60 s in which
//! nothing changes), `-- fuzz 5000` (strange objects).
#![allow(clippy::panic, clippy::unwrap_used)] // a benchmark fails by panicking

#[path = "../tests/fuzz/mod.rs"]
mod fuzz;
#[path = "../tests/rig/mod.rs"]
mod rig;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use rig::{Controller, Rig, deployment, wait};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Cargo adds `--bench`.
    let mut words = arguments
        .iter()
        .filter(|a| !a.starts_with("--"))
        .map(String::as_str);
    let story = words.next();
    let count = words.next().map(|n| n.parse().unwrap());
    match story {
        None => {
            cold(100);
        }
        Some("cold") => {
            cold(count.unwrap_or(1000));
        }
        Some("settled") => settled(count.unwrap_or(500)),
        Some("fuzz") => fuzz::run(count.unwrap_or(5000)),
        Some(other) => panic!("{other}: say cold, settled or fuzz, and a number"),
    }
}

/// Creates deployments, then starts a controller and waits until all children exist.
fn cold(count: usize) -> (Rig, Controller) {
    let rig = Rig::start(false);
    let objects: Vec<Value> = (0..count)
        .map(|n| deployment(&format!("fleet-{n}"), &json!({})))
        .collect();
    rig.apply(&objects);
    let start = Instant::now();
    let controller = rig.launch(&[]);
    let mut done = 0;
    wait("every deployment is applied and says so", || {
        std::thread::sleep(Duration::from_millis(900));
        let listed = rig.kubectl(&[
            "get",
            "infd",
            "-o",
            "jsonpath={.items[*].status.observedGeneration}",
        ]);
        done = listed.split_whitespace().count();
        done == count
    });
    let seconds = start.elapsed().as_secs_f64();
    let writes = rig.writes().len();
    let resident = controller.resident_mib();
    println!(
        "cold: {count} deployments applied in {seconds:.1} s, {writes} writes, {:.0} a second, \
         {resident} MiB resident, {:.1} s of cpu",
        writes as f64 / seconds,
        controller.cpu_seconds()
    );
    (rig, controller)
}

/// Counts the writes in a minute in which nothing changes.
fn settled(count: usize) {
    let (rig, controller) = cold(count);
    std::thread::sleep(Duration::from_secs(15));
    let (writes, requests) = (rig.writes().len(), rig.requests().len());
    let cpu = controller.cpu_seconds();
    std::thread::sleep(Duration::from_secs(60));
    let (writes, requests) = (rig.writes().len() - writes, rig.requests().len() - requests);
    println!(
        "settled: {count} deployments, {writes} writes and {requests} requests in 60 s, {} MiB \
         resident, {:.1} s of cpu",
        controller.resident_mib(),
        controller.cpu_seconds() - cpu
    );
    assert_eq!(writes, 0);
}
