//! Compares a live server with its simulation: several models, mixed kinds, bursts, one and two
//! workers.
//!
//! The bounds of each comparison: mean batch rows within 15 %, bad rate within 1 percentage point,
//! idle share within 5 percentage points, all in the same run. Other programs on the machine take
//! cpus from a live run in ways that are not simulated, so a comparison is repeated up to [`TRIES`]
//! times and must succeed once; runs in which even the generator was late do not count. To show
//! that the bounds are not met by chance, a deliberately wrong simulation of the run that agrees
//! must violate them.
// Only optimized builds, run by `make e2e`: an unoptimized server has no spare CPU time.
#![cfg(not(debug_assertions))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use albacore_bench::comparison::{Comparison, Fault, heading, table};
use albacore_bench::{Bench, Spec};
use albacore_testbed::product;
use serde_json::Value;

/// Maximum number of live runs of a comparison.
const TRIES: usize = 5;

/// Maximum number of runs in which the generator was behind its schedule.
const BEHIND_MAX: usize = 15;

static ALONE: Mutex<()> = Mutex::new(());

const OBJECTIVE: &str = "25ms";

/// A running server, killed on drop.
struct Server {
    child: Child,
    http: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(workers: usize, policy: &str) -> Self {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/data/models");
        let model = |name: &str| format!("{name}={}/main_{name}_d6.ubj", models.display());
        let mut child = Command::new(product("albacore-server").unwrap())
            .args(["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"])
            .args(["--workers", &workers.to_string(), "--policy", policy])
            .args(["--slo", OBJECTIVE])
            .args(["--model", &model("small"), "--model", &model("medium")])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut http = None;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
            match event["event"].as_str() {
                Some("listening") => http = event["http"].as_str().unwrap().parse().ok(),
                Some("ready") => break,
                _ => {}
            }
        }
        let http = http.expect("the server reports its address");
        Self { child, http }
    }

    fn bench(&self, load: &Load, seed: u64) -> Bench {
        let names = ["small", "medium"];
        Bench::new(Spec {
            url: format!("http://{}", self.http),
            models: names.map(str::to_owned).to_vec(),
            rates: vec![load.rate],
            is_search: false,
            length: Duration::from_secs(3),
            objective: Duration::from_millis(25),
            percentile: 99.0,
            arrivals: load.arrivals.to_owned(),
            mix: load.mix.to_owned(),
            features: None,
            input: None,
            is_binary: false,
            connections: 256,
            seed,
            pids: Vec::new(),
        })
        .unwrap()
    }
}

struct Load {
    workers: usize,
    policy: &'static str,
    mix: &'static str,
    arrivals: &'static str,
    rate: f64,
    /// A wrong simulation that must violate the bounds under this load.
    fault: Option<Fault>,
}

/// Whether the simulation is within the bounds of the live run.
fn is_close(comparison: &Comparison) -> bool {
    let [live, simulated] = comparison.all;
    let [idle, simulated_idle] = comparison.idle_share;
    (simulated.batch_rows / live.batch_rows - 1.0).abs() <= 0.15
        && (simulated.bad_rate - live.bad_rate).abs() <= 0.01
        && (simulated_idle - idle).abs() <= 0.05
}

fn assert_close(load: &Load) {
    // Concurrent runs would compete for cpus.
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let server = Server::start(load.workers, load.policy);
    let mut seen = String::new();
    let (mut has_agreed, mut tries, mut behind) = (false, 0, 0);
    while tries < TRIES && !has_agreed {
        let seed = (tries + behind + 1) as u64;
        let bench = server.bench(load, seed);
        bench.warm().unwrap();
        let schedule = &bench.schedules().unwrap()[0];
        let faults = Vec::from_iter(load.fault);
        let (right, wrong) = bench.compare_with_faults(schedule, &faults).unwrap();
        if right.probe.is_generator_late {
            behind += 1;
            assert!(behind < BEHIND_MAX, "other programs take the cpus");
            continue;
        }
        tries += 1;
        seen += &table(&right);
        for (fault, wrong) in faults.iter().zip(&wrong) {
            seen += &format!("with {fault:?}:\n{}", table(wrong));
        }
        has_agreed = is_close(&right);
        let is_any = wrong.iter().any(is_close);
        assert!(
            !(has_agreed && is_any),
            "a wrong simulation agrees:\n{seen}"
        );
    }
    println!("{}{seen}", heading());
    assert!(has_agreed, "no run agrees with its simulation:\n{seen}");
}

/// Small requests on idle workers: the batch size is determined by gathering in the front end.
#[test]
fn batches_that_the_front_end_gathers_are_simulated() {
    assert_close(&Load {
        workers: 2,
        policy: "eager",
        mix: "small/1=3,medium/1=1",
        arrivals: "gamma:0.3",
        rate: 12_000.0,
        fault: Some(Fault::NoGathering),
    });
}

#[test]
fn bursts_of_mixed_requests_for_two_models_are_simulated() {
    for workers in [1, 2] {
        assert_close(&Load {
            workers,
            policy: "auto",
            mix: "small/1=6,medium/1=3,medium/contribs:10=1",
            arrivals: "gamma:0.3",
            rate: 4_000.0,
            fault: Some(Fault::SlowBatches),
        });
    }
}

#[test]
fn bursts_of_contributions_are_simulated() {
    assert_close(&Load {
        workers: 1,
        policy: "eager",
        mix: "small/contribs:4=2,medium/contribs:10=1",
        arrivals: "gamma:0.1",
        rate: 2_000.0,
        fault: Some(Fault::SlowBatches),
    });
}

#[test]
fn deferred_batches_are_simulated() {
    assert_close(&Load {
        workers: 1,
        policy: "deferred",
        mix: "small/1=6,medium/1=3,medium/contribs:10=1",
        arrivals: "gamma:0.3",
        rate: 2_000.0,
        fault: None,
    });
}
