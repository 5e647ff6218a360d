//! Benchmark of the placer on this machine: `cargo run --release -p albacore-placer --example bench
//! [-- SECONDS [steady|pods]]`.
//!
//! Prints one JSON line per figure: latency from spawn to verified mask for respawned workers and
//! for unexpected threads, and the steady-state cost of 2,000 and 5,000 managed threads. Spawns are
//! timed from the last moment at which the thread certainly did not exist, so every figure is an
//! upper bound.
// infallible: no, but a benchmark may panic on any error.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use albacore_os::{Pid, PidFd};
use albacore_placer::{MicrosHistogram, Placer, PlacerConfig, SubjectConfig};
use albacore_plan::{Enforcement, MainThread, PlacementMethod, ServerKind, SubjectPolicy};
use albacore_solver::Mode;

struct Server {
    child: Child,
}

impl Server {
    fn start(workers: u16, threads: u16) -> Self {
        let bench = std::env::current_exe().unwrap();
        let program = bench
            .parent()
            .unwrap()
            .parent()
            .unwrap()
            .join("prefork_server");
        let mut command = Command::new(&program);
        command.args([workers.to_string(), threads.to_string(), "named".into()]);
        Self {
            child: command.stdin(Stdio::piped()).spawn().unwrap(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // It exits when its stdin is closed.
        let _ = self.child.wait();
    }
}

fn placer(server: &Server, workers: u16, threads: u16) -> Placer {
    let mut placer = Placer::new(PlacerConfig::live()).unwrap();
    let subject = subject(server, policy(workers, threads));
    placer.add_subject(&subject).unwrap();
    placer
}

fn policy(workers: u16, threads: u16) -> SubjectPolicy {
    SubjectPolicy {
        workers,
        threads,
        mode: Mode::Scatter,
        placement: PlacementMethod::Tuna,
        enforcement: Enforcement::Enforce,
        main_thread: MainThread::Pinned,
        distances: Default::default(),
        is_pool_size_known: true,
    }
}

fn subject(server: &Server, policy: SubjectPolicy) -> SubjectConfig {
    SubjectConfig {
        root: Pid(server.child.id() as i32),
        cgroup: None,
        server_kind: ServerKind::Named,
        policy,
    }
}

fn run(placer: &mut Placer, time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        placer
            .step(Duration::from_millis(100), &mut |_| {})
            .unwrap();
    }
}

fn run_until_verified(placer: &mut Placer) {
    let start = Instant::now();
    while !placer
        .table()
        .unwrap()
        .iter()
        .all(|row| row.verified_micros_ago.is_some())
    {
        assert!(
            start.elapsed() < Duration::from_secs(120),
            "not placed in two minutes"
        );
        run(placer, Duration::from_millis(50));
    }
}

fn tell(what: &str, micros: &MicrosHistogram) {
    let (p50, p99) = (
        micros.quantile_bound(0.5).unwrap_or(0),
        micros.quantile_bound(0.99).unwrap_or(0),
    );
    let (max, count) = (micros.max(), micros.count());
    println!(
        r#"{{"figure":"{what}","count":{count},"p50_us":{p50},"p99_us":{p99},"max_us":{max}}}"#
    );
}

fn spawns(rounds: usize) {
    let mut server = Server::start(2, 2);
    let mut placer = placer(&server, 2, 2);
    run_until_verified(&mut placer);
    // Threads spawned within a second of their process count as respawns.
    run(&mut placer, Duration::from_millis(1200));
    for round in 0..rounds {
        let victim = placer.table().unwrap()[round % 2 * 2].pid;
        if let Some(process) = victim.and_then(|pid| PidFd::open(pid).ok()) {
            process.signal(nix::sys::signal::Signal::SIGKILL).unwrap();
        }
        run(&mut placer, Duration::from_millis(60 + round as u64 % 7));
        run_until_verified(&mut placer);
    }
    tell(
        "birth_to_verified_respawn",
        &placer.counters().respawn_micros,
    );
    drop(placer);
    let threads = 4 + rounds as u16;
    let mut placer = self::placer(&server, 2, threads.min(64));
    run(&mut placer, Duration::from_millis(1500));
    for round in 0..rounds.min(56) {
        let stdin = server.child.stdin.as_mut().unwrap();
        writeln!(stdin, "thread {}", round % 2).unwrap();
        run(&mut placer, Duration::from_millis(40 + round as u64 % 13));
    }
    tell(
        "birth_to_verified_new_thread",
        &placer.counters().new_thread_micros,
    );
}

/// User and system time of this process so far, and its resident memory in KiB.
fn cost() -> (Duration, u64) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    let kib = resident.trim().trim_end_matches(" kB").parse().unwrap();
    (Duration::from_millis(ticks * 10), kib)
}

fn steady(seconds: u64) {
    for (workers, threads) in [(32, 62), (250, 8), (250, 20)] {
        let server = Server::start(workers, threads);
        let mut placer = placer(&server, workers, threads);
        run_until_verified(&mut placer);
        measure(&mut placer, seconds, "steady", workers, threads);
    }
}

fn measure(placer: &mut Placer, seconds: u64, figure: &str, workers: u16, threads: u16) {
    run(placer, Duration::from_secs(12));
    let slowdown = placer.counters().slowdown;
    let (before, calls) = (cost().0, placer.counters().setaffinity_calls);
    run(placer, Duration::from_secs(seconds));
    let (after, kib) = cost();
    let share = (after - before).as_secs_f64() / seconds as f64 * 100.0;
    let calls = placer.counters().setaffinity_calls - calls;
    println!(
        r#"{{"figure":"{figure}","workers":{workers},"threads":{threads},"core_percent":{share:.2},"resident_kib":{kib},"setaffinity_calls":{calls},"slowdown":{slowdown}}}"#
    );
}

/// As `steady`, with as many servers as a node has pods. Uses round robin, because the limits of
/// the solver are not being measured.
fn steady_pods(seconds: u64) {
    let (pods, workers, threads) = (50, 5, 20);
    let servers: Vec<Server> = (0..pods).map(|_| Server::start(workers, threads)).collect();
    let mut placer = Placer::new(PlacerConfig::live()).unwrap();
    for server in &servers {
        let policy = SubjectPolicy {
            placement: PlacementMethod::RoundRobin,
            ..policy(workers, threads)
        };
        placer.add_subject(&subject(server, policy)).unwrap();
    }
    run_until_verified(&mut placer);
    measure(
        &mut placer,
        seconds,
        &format!("steady, {pods} servers"),
        workers,
        threads,
    );
}

fn main() {
    let seconds = std::env::args()
        .nth(1)
        .and_then(|s| s.parse().ok())
        .unwrap_or(10);
    let only = std::env::args().nth(2);
    if only.is_none() {
        spawns(100);
    }
    if only.as_deref() != Some("pods") {
        steady(seconds);
    }
    steady_pods(seconds);
}
