//! `albacore run` with a hundred kills of workers and some of fronts: after each one every live
//! worker is placed, which is verified with the kernel's masks.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

mod deployment;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use albacore_live_bench::service::{Placed, Service};
use albacore_load::{Load, Request, Sample, Shape, drive, poisson};
use deployment::Folder;
use serde_json::Value;

/// Kills per test; `make soak` multiplies them.
fn kills() -> usize {
    let factor = std::env::var("ALBACORE_SOAK").map_or(1, |n| n.parse().unwrap());
    100 * factor
}

/// Compares with the masks reported by the kernel, read by code that is independent of the placer.
fn kernel_masks_equal(placed: &Placed, workers: u64, threads: u64) {
    assert_eq!(placed.threads.len() as u64, workers * threads, "{placed:?}");
    for thread in &placed.threads {
        let status = std::fs::read_to_string(format!("/proc/{}/status", thread.tid)).unwrap();
        let mask = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
            .unwrap();
        assert_eq!(
            mask.trim(),
            thread.planned,
            "worker {} rank {}",
            thread.worker,
            thread.rank
        );
    }
    let mut slots: Vec<_> = placed.threads.iter().map(|t| (t.worker, t.rank)).collect();
    slots.sort_unstable();
    slots.dedup();
    assert_eq!(slots.len() as u64, workers * threads, "{placed:?}");
}

/// Sends `requests` at `rate` for `seconds` in the background.
fn load(requests: Vec<Request>, rate: f64, seconds: u64) -> std::thread::JoinHandle<Vec<Sample>> {
    std::thread::spawn(move || {
        let shape = Shape::Open(poisson(rate, Duration::from_secs(seconds), 1));
        drive(Load {
            requests,
            shape,
            connections: 16,
        })
        .unwrap()
    })
}

fn kill_and_check(service: &mut Service, workers: u64, threads: u64) {
    for kill in 0..kills() {
        // Every third kill hits the same worker twice in a row.
        let worker = (kill / 3 + kill % 2) as u64 % workers;
        service
            .kill_worker(worker, Duration::from_secs(20))
            .unwrap();
        kernel_masks_equal(service.last_placed().unwrap(), workers, threads);
    }
}

#[test]
fn the_built_in_server_survives_a_hundred_kills_and_answers_every_request() {
    let folder = Folder::new("kills");
    // An objective that is met even if a worker dies: requests that cannot meet it would be
    // rejected at admission.
    let text = deployment::fraud_text();
    let file = folder.write(&text.replace("latency: 25ms", "latency: 20s"));
    let mut service =
        Service::start(&file, &["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]).unwrap();
    let address = service.listening().unwrap();
    service.ready(Duration::from_secs(30)).unwrap();
    kernel_masks_equal(service.last_placed().unwrap(), 2, 2);
    let seconds = 5 * kills() as u64 / 100;
    let traffic = load(vec![deployment::one_row(address)], 200.0, seconds);
    kill_and_check(&mut service, 2, 2);
    let samples = traffic.join().unwrap();
    let lost: Vec<_> = samples
        .iter()
        .filter(|sample| sample.status != 200)
        .collect();
    assert!(
        lost.is_empty(),
        "{} of {} not answered: {lost:?}",
        lost.len(),
        samples.len()
    );
    assert_eq!(service.stop(Duration::from_secs(30)).unwrap(), Some(0));
}

/// The server's own state; `None` while no front replies.
fn state(address: SocketAddr) -> Option<Value> {
    let mut stream = TcpStream::connect(address).ok()?;
    let request = b"GET /albacore/v1/state HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()
}

/// Waits until the server's state satisfies a condition.
fn until(address: SocketAddr, is_so: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        if let Some(state) = state(address).filter(&is_so) {
            return state;
        }
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{:?}",
            state(address)
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn kills_of_the_front_move_no_thread() {
    let folder = Folder::new("front-kills");
    let file = folder.fraud("");
    let mut service =
        Service::start(&file, &["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]).unwrap();
    let address = service.listening().unwrap();
    service.ready(Duration::from_secs(30)).unwrap();
    let placed = service.last_placed().unwrap().clone();
    let tids = |placed: &Placed| placed.threads.iter().map(|it| it.tid).collect::<Vec<_>>();
    for kill in 1..=kills() / 20 {
        let prepared = until(address, |state| state["front"]["standby_ready"] == true);
        let front = prepared["front"]["pid"].to_string();
        let killed = Command::new("kill").args(["-KILL", &front]).status();
        assert!(killed.unwrap().success());
        until(address, |state| {
            state["front"]["deaths"] == kill && state["workers"]["alive"] == 2
        });
        kernel_masks_equal(&placed, 2, 2);
    }
    assert_eq!(tids(service.last_placed().unwrap()), tids(&placed));
    assert_eq!(service.stop(Duration::from_secs(30)).unwrap(), Some(0));
}

#[test]
fn workers_of_a_replacing_binary_get_the_cpus_of_their_predecessors() {
    let folder = Folder::new("upgrade");
    let file = folder.fraud("");
    let mut service =
        Service::start(&file, &["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]).unwrap();
    let address = service.listening().unwrap();
    service.ready(Duration::from_secs(30)).unwrap();
    let before = service.last_placed().unwrap().clone();
    kernel_masks_equal(&before, 2, 2);
    let front = until(address, |state| state["front"]["pid"].is_u64())["front"]["pid"].clone();
    let stat = std::fs::read_to_string(format!("/proc/{front}/stat")).unwrap();
    let supervisor = stat.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap();
    let requested = Command::new("kill").args(["-USR2", supervisor]).status();
    assert!(requested.unwrap().success());
    until(address, |state| {
        state["front"]["upgrades"] == 1 && state["workers"]["alive"] == 2
    });
    let is_older = |tid: u64| before.threads.iter().any(|thread| thread.tid == tid);
    let has_older = |placed: &Placed| placed.threads.iter().any(|thread| is_older(thread.tid));
    while service.last_placed().is_some_and(has_older) {
        service.placed(Duration::from_secs(30)).unwrap();
    }
    kernel_masks_equal(service.last_placed().unwrap(), 2, 2);
    assert_eq!(service.stop(Duration::from_secs(30)).unwrap(), Some(0));
}

#[test]
fn gunicorn_with_xgboost_survives_a_hundred_kills() {
    let folder = Folder::new("gunicorn-kills");
    let port = deployment::free_port();
    let file = folder.gunicorn(port, &[]);
    let mut service = Service::start(&file, &[]).unwrap();
    service.placed(Duration::from_secs(60)).unwrap();
    kernel_masks_equal(service.last_placed().unwrap(), 2, 2);
    let traffic = load(
        vec![deployment::raw_rows(port)],
        40.0,
        10 * kills() as u64 / 100,
    );
    kill_and_check(&mut service, 2, 2);
    let answered = traffic
        .join()
        .unwrap()
        .iter()
        .filter(|sample| sample.status == 200)
        .count();
    assert!(
        answered > 100,
        "gunicorn answered {answered} requests: there was hardly any load"
    );
    assert_eq!(service.stop(Duration::from_secs(40)).unwrap(), Some(0));
}

#[test]
fn gunicorn_workers_that_retire_by_max_requests_are_placed_again() {
    let folder = Folder::new("gunicorn-retire");
    let port = deployment::free_port();
    let file = folder.gunicorn(port, &["--max-requests", "20"]);
    let mut service = Service::start(&file, &[]).unwrap();
    service.placed(Duration::from_secs(60)).unwrap();
    let before = service.spawns();
    let samples = load(vec![deployment::raw_rows(port)], 60.0, 6)
        .join()
        .unwrap();
    let answered = samples.iter().filter(|sample| sample.status == 200).count();
    assert!(
        answered > 200,
        "gunicorn answered {answered} of {} requests",
        samples.len()
    );
    service.settled(Duration::from_secs(20)).unwrap();
    kernel_masks_equal(service.last_placed().unwrap(), 2, 2);
    let spawns = service.spawns() - before;
    assert!(spawns >= 5, "only {spawns} workers were spawned");
    assert_eq!(service.stop(Duration::from_secs(40)).unwrap(), Some(0));
}

#[test]
fn a_master_that_imports_slowly_is_not_taken_for_a_worker() {
    let folder = Folder::new("gunicorn-imports");
    // Longer than the time after which a server that does not fork is treated as its own worker: a
    // pinned master would pass its single CPU on to its children, and XGBoost would start as many
    // threads as it counts CPUs.
    let file =
        folder.gunicorn_with_import_delay(Duration::from_secs(3), deployment::free_port(), &[]);
    let mut service = Service::start(&file, &[]).unwrap();
    service.placed(Duration::from_secs(60)).unwrap();
    kernel_masks_equal(service.last_placed().unwrap(), 2, 2);
    assert_eq!(service.spawns(), 2, "the master was taken for a worker");
    assert_eq!(service.stop(Duration::from_secs(40)).unwrap(), Some(0));
}
