//! Benchmarks with many deployments on a real API server. All figures are measured: requests from
//! its audit log, memory and CPU time from /proc.
//!
//! `cargo bench -p albacore-controller` runs a small fleet; with arguments: `-- cold 1000`
//! (deployments without pods, from creation until everything is applied), `-- fleet 5000 1000
//! 20000` (deployments, nodes and pods, from the controller's start until every status reports that
//! all pods are ready, placed and have loaded their models; then a minute in which nothing
//! changes), `-- settled 500` (writes of 60 s in which nothing changes), `-- fuzz 5000` (malformed
//! objects).
#![allow(clippy::panic, clippy::unwrap_used)] // a benchmark fails by panicking

#[path = "../tests/fuzz/mod.rs"]
mod fuzz;
#[path = "../tests/rig/mod.rs"]
mod rig;
mod simulation;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use albacore_api::InferenceDeployment;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use rig::{Controller, Rig, cpu_seconds, deployment};
use simulation::{Etcd, Fleet, Roles, Servers};

/// Longest time until a fleet is settled.
const SETTLED_TIME_MAX: Duration = Duration::from_secs(900);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Cargo adds `--bench`.
    let mut words = arguments
        .iter()
        .filter(|a| !a.starts_with("--"))
        .map(String::as_str);
    let story = words.next();
    let counts: Vec<usize> = words.map(|n| n.parse().unwrap()).collect();
    let count = |index: usize, default| counts.get(index).copied().unwrap_or(default);
    match story {
        None => {
            cold(100);
        }
        Some("cold") => {
            cold(count(0, 1000));
        }
        Some("fleet") => fleet(Fleet {
            deployments: count(0, 5000),
            nodes: count(1, 1000),
            pods: count(2, 20_000),
        }),
        Some("settled") => {
            let (rig, controller, roles) = cold(count(0, 500));
            assert_eq!(settled(&rig, &controller), 0);
            drop(roles);
        }
        Some("fuzz") => fuzz::run(count(0, 5000)),
        Some(other) => panic!("{other}: say cold, fleet, settled or fuzz, and numbers"),
    }
}

/// Stores deployments, then starts a controller and waits until all children exist.
fn cold(deployments: usize) -> (Rig, Controller, Roles) {
    let fleet = Fleet {
        deployments,
        nodes: 0,
        pods: 0,
    };
    run("cold", fleet, || {})
}

/// Deployments with pods on many nodes.
fn fleet(fleet: Fleet) {
    let servers = Servers::start();
    let state = servers.state.clone();
    let (rig, controller, roles) = run("fleet", fleet, move || {
        drop(state.set(state_of_servers(fleet)))
    });
    println!(
        "servers: {} answers",
        servers.answered.load(std::sync::atomic::Ordering::Relaxed)
    );
    // By then measurements are stable, and everything was listed and scraped once more.
    std::thread::sleep(Duration::from_secs(45));
    settled(&rig, &controller);
    println!(
        "servers: {} answers",
        servers.answered.load(std::sync::atomic::Ordering::Relaxed)
    );
    drop(roles);
}

/// Runs a controller from its start until the fleet is settled.
fn run(story: &str, fleet: Fleet, before: impl FnOnce()) -> (Rig, Controller, Roles) {
    let rig = Rig::start(false);
    // Lets the API server validate one deployment like those of the fleet.
    rig.apply(&[deployment("checked", &json!({}))]);
    rig.kubectl(&["delete", "infd", "checked"]);
    let etcd = |rig: &Rig| Etcd {
        address: rig.plane.etcd_address(),
    };
    etcd(&rig).put(fleet.objects());
    before();
    let admin = rig.plane.kubeconfig_of("fleet", Some("system:masters"));
    let roles = Roles::start(fleet, &admin.unwrap(), etcd(&rig));
    let others = rig.plane.processes();
    let cpu = || others.map(cpu_seconds);
    let (start, cpu_before) = (Instant::now(), cpu());
    let controller = rig.launch(&[]);
    let mut printed = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let (count, missing) = roles.settled();
        if count >= fleet.deployments {
            break;
        }
        if printed.elapsed() > Duration::from_secs(10) {
            printed = Instant::now();
            println!(
                "{:.0} s: {count} settled; {missing}",
                start.elapsed().as_secs_f64()
            );
        }
        assert!(
            start.elapsed() < SETTLED_TIME_MAX,
            "{count} settled; {missing}"
        );
    }
    let seconds = start.elapsed().as_secs_f64();
    let [etcd_cpu, server_cpu] = [0, 1].map(|index| cpu()[index] - cpu_before[index]);
    let (writes, requests) = (rig.writes().len(), rig.requests());
    println!(
        "{story}: {fleet:?} settled in {seconds:.1} s, {writes} writes, {:.0} a second, {} requests; cpu: \
         {:.1} s controller, {server_cpu:.1} s API server, {etcd_cpu:.1} s etcd; {} MiB resident, {} MiB at most",
        writes as f64 / seconds,
        requests.len(),
        controller.cpu_seconds(),
        controller.resident_mib(),
        controller.memory_mib("VmHWM:"),
    );
    print_kinds(&requests);
    (rig, controller, roles)
}

/// Counts requests by verb, resource and code.
fn print_kinds(requests: &[String]) {
    let mut counts = BTreeMap::<String, usize>::new();
    for request in requests {
        let words: Vec<&str> = request.split(' ').collect();
        let [verb, resource, .., code] = words.as_slice() else {
            continue;
        };
        *counts
            .entry(format!("{verb} {resource} {code}"))
            .or_default() += 1;
    }
    println!("requests: {counts:?}");
}

/// Counts the writes in a minute in which nothing changes.
fn settled(rig: &Rig, controller: &Controller) -> usize {
    std::thread::sleep(Duration::from_secs(15));
    let (writes, requests) = (rig.writes().len(), rig.requests().len());
    let cpu = controller.cpu_seconds();
    std::thread::sleep(Duration::from_secs(60));
    let all = rig.requests();
    let (writes, requests) = (rig.writes().len() - writes, &all[requests..]);
    println!(
        "settled: {writes} writes and {} requests in 60 s, {} MiB resident, {:.1} s of cpu",
        requests.len(),
        controller.resident_mib(),
        controller.cpu_seconds() - cpu
    );
    print_kinds(requests);
    writes
}

/// The state that the server of every pod reports: settings and model of its deployment, and no
/// requests.
fn state_of_servers(fleet: Fleet) -> String {
    let (_, object) = fleet.objects().next().unwrap();
    let deployment: InferenceDeployment = serde_json::from_value(object).unwrap();
    let settings = albacore_controller::validate(&deployment).unwrap().settings;
    let digest: String = Sha256::digest(settings.unwrap())
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let source = deployment.spec.models[0].uri.place.source_in_pod();
    let counts = json!({"good": 600, "late": 0, "shed": 0, "failed": 0});
    let buckets: Vec<[u64; 2]> = (0..24).map(|n| [1000 + 64 * n, 25]).collect();
    let outcomes = json!({"kind": "value", "good": 600, "newest": counts, "latency_us": buckets});
    let fit = json!({"kind": "value", "alpha_us": 1.0, "beta_us": 50.0, "samples": 1000});
    let model = json!({"name": "m", "source": source.to_string(), "state": "loaded", "sha256": "0".repeat(64),
        "latency": [fit], "outcomes": [outcomes]});
    let state = json!({"settings_sha256": digest, "in_force_sha256": digest, "window_seconds": 60.0, "idle_share": 0.5,
        "workers": {"wanted": 2, "alive": 2, "restarts": 0}, "goodput_per_second": 10.0, "latency_p99_ms": 2.5,
        "requests": counts, "requests_newest": counts, "models": [model]});
    state.to_string()
}
