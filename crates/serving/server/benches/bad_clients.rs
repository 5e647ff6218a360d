//! Effect of misbehaving clients on good ones: `cargo bench -p albacore-server --bench
//! bad_clients`. Rounds with and without bad clients alternate. Prints the median of the p99 of the
//! rounds, and its ratio to that of the rounds without bad clients; the target is a ratio of at
//! most 1.1. Bad clients run on the same CPUs, so the CPU time of their senders is also taken from
//! the server.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[path = "../tests/bad_clients/frames.rs"]
mod frames;
#[path = "../tests/running/mod.rs"]
mod running;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use albacore_load::{InferRequest, Load, Shape, WireFormat, drive, poisson, summarize};
use running::Running;

/// Good requests per second: a tenth of the capacity of one worker.
const RATE: f64 = 1_000.0;

/// Length of a round.
const ROUND: Duration = Duration::from_secs(3);

/// Warm-up time of bad clients, after which they are connected and their replies are computed.
const WARM_UP: Duration = Duration::from_millis(2_500);

/// Rounds per kind of client.
const ROUNDS: usize = 5;

const FEATURES: usize = 29;
const INFER: &str = "/v2/models/small/infer";

/// A misbehaving client, which repeats its behavior until the flag is set.
type Bad = fn(SocketAddr, &AtomicBool, &AtomicUsize);

const KINDS: [(&str, Bad); 6] = [
    ("nobody else", |_, _, _| {}),
    ("10,000 half-open connections", half_open),
    ("200 senders of a byte a second", slow_senders),
    ("20 readers of nothing", slow_readers),
    ("resets in the middle, 500/s", resets),
    ("rapid reset, 50 connections/s", rapid_resets),
];

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        return; // `cargo test` builds and runs benchmarks, too
    }
    let arguments = ["--workers", "1", "--threads", "1"];
    let server = Running::start(&[("small", "main_small_d6.ubj")], &arguments);
    let mut p99s = KINDS.map(|_| Vec::new());
    let mut done = KINDS.map(|_| 0);
    good_round(&server, 0); // warm
    for round in 0..ROUNDS {
        for (index, (_, bad)) in KINDS.into_iter().enumerate() {
            let is_over = Arc::<AtomicBool>::default();
            let count = Arc::<AtomicUsize>::default();
            let (address, stop, counter) = (server.http, Arc::clone(&is_over), Arc::clone(&count));
            let thread = std::thread::spawn(move || bad(address, &stop, &counter));
            std::thread::sleep(WARM_UP);
            p99s[index].push(good_round(&server, round));
            is_over.store(true, Ordering::Relaxed);
            thread.join().unwrap();
            done[index] += count.load(Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(300));
        }
    }
    let p99s = p99s.map(median);
    println!("p99 of {RATE} requests/s of one row, medians of {ROUNDS} rounds of {ROUND:?}");
    for (index, (name, _)) in KINDS.into_iter().enumerate() {
        let (p99, quiet) = (p99s[index].as_secs_f64(), p99s[0].as_secs_f64());
        let times = done[index];
        let (us, ratio) = (p99 * 1e6, p99 / quiet);
        println!("{name:<32} p99 {us:8.1} us   ratio {ratio:5.2}   ({times} times)");
    }
    let metrics = String::from_utf8(server.get("/metrics").body).unwrap();
    let bounds = metrics
        .lines()
        .filter(|line| line.starts_with("albacore_bounds_reached_total"));
    bounds
        .filter(|line| !line.ends_with(" 0"))
        .for_each(|line| println!("{line}"));
}

/// The p99 of good requests; none may fail.
fn good_round(server: &Running, seed: usize) -> Duration {
    let values = [0.5; FEATURES];
    let call = InferRequest {
        model: "small",
        input: "input",
        output: None,
        values: &values,
        features: FEATURES,
    };
    let times = poisson(RATE, ROUND, seed as u64);
    let samples = drive(Load {
        requests: vec![call.request(WireFormat::Json, server.http)],
        shape: Shape::Open(times),
        connections: 16,
    });
    let summary = summarize(&samples.unwrap(), ROUND, ROUND);
    assert_eq!(summary.ok, summary.sent, "good requests are answered");
    summary.p99
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn wait_until(is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn half_open(address: SocketAddr, is_over: &AtomicBool, count: &AtomicUsize) {
    let open: Vec<_> = (0..10_000)
        .filter_map(|index| {
            let mut stream = TcpStream::connect(address).ok()?;
            if index % 2 == 0 {
                let _ = stream.write_all(b"POST /v2/models/small/infer HTTP/1.1\r\nX: ");
            }
            Some(stream)
        })
        .collect();
    count.fetch_add(open.len(), Ordering::Relaxed);
    wait_until(is_over);
}

fn slow_senders(address: SocketAddr, is_over: &AtomicBool, count: &AtomicUsize) {
    let head = format!("POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n");
    let mut open: Vec<_> = (0..200)
        .filter_map(|index| {
            let mut stream = TcpStream::connect(address).ok()?;
            let half = if index % 2 == 0 { head.len() } else { 20 };
            stream.write_all(&head.as_bytes()[..half]).ok()?;
            Some(stream)
        })
        .collect();
    while !is_over.load(Ordering::Relaxed) {
        for stream in &mut open {
            count.fetch_add(
                usize::from(stream.write_all(b"1").is_ok()),
                Ordering::Relaxed,
            );
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Replies of 6 MB each, which fill the socket buffer in part.
fn slow_readers(address: SocketAddr, is_over: &AtomicBool, count: &AtomicUsize) {
    let rows = 15_000;
    let bytes = rows * FEATURES * 4;
    let json = format!(
        r#"{{"inputs":[{{"name":"input","shape":[{rows},{FEATURES}],"datatype":"FP32","parameters":{{"binary_data_size":{bytes}}}}}],"outputs":[{{"name":"leaf","parameters":{{"binary_data":true}}}}]}}"#
    );
    let head = format!(
        "POST {INFER} HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: {}\r\n\
         Content-Length: {}\r\n\r\n",
        json.len(),
        json.len() + bytes
    );
    let message = [head.as_bytes(), json.as_bytes(), &vec![0; bytes]].concat();
    let open: Vec<_> = (0..20)
        .filter_map(|_| {
            let mut stream = TcpStream::connect(address).ok()?;
            stream.write_all(&message).ok()?;
            Some(stream)
        })
        .collect();
    count.fetch_add(open.len(), Ordering::Relaxed);
    wait_until(is_over);
}

fn resets(address: SocketAddr, is_over: &AtomicBool, count: &AtomicUsize) {
    let head = format!("POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n{{");
    while !is_over.load(Ordering::Relaxed) {
        if let Ok(mut stream) = TcpStream::connect(address) {
            let _ = stream.write_all(head.as_bytes());
            count.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn rapid_resets(address: SocketAddr, is_over: &AtomicBool, count: &AtomicUsize) {
    let mut words = frames::opening();
    for call in 0..1_000 {
        let (call, fields) = (2 * call + 1, frames::request("POST", INFER));
        words.extend(frames::headers(call, &fields, (true, false)));
        words.extend(frames::reset(call));
    }
    while !is_over.load(Ordering::Relaxed) {
        if let Ok(mut stream) = TcpStream::connect(address) {
            let _ = stream.set_read_timeout(Some(Duration::from_millis(100)));
            let _ = stream.write_all(&words);
            let _ = stream.read(&mut [0; 4096]);
            count.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
