//! Workers are killed and stopped while the requests of both protocols exceed the capacity: each is
//! answered, or refused at admission and counted. `ALBACORE_SOAK` multiplies the duration.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod running;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use albacore_load::{InferRequest, Load, Request, Sample, Shape, WireFormat, drive};
use running::{Connection, Running};
use serde_json::{Value, json};

const LENGTH: Duration = Duration::from_secs(6);

/// Closed-loop clients per protocol.
const CLIENTS: usize = 12;

/// Requests of each type before the first kill, from which the costs of batches are learned.
/// Without known costs the hang timeout is 30 s, and doubled after each death.
const WARM_UP: usize = 16;

/// Interval of kills at which a worker is stopped instead of killed.
const STOP_EVERY: usize = 6;

const FEATURES: usize = 29;

/// Clients that compare every byte, and the number of different requests per client.
const CHECKERS: usize = 2;
const DISTINCT_REQUESTS: usize = 16;

const INFER: &str = "/v2/models/small/infer";

/// Predictions of few rows and contributions of many rows.
fn requests(server: &Running) -> Vec<Request> {
    let values = vec![0.5; 40 * FEATURES];
    let calls = [
        (None, 1),
        (Some("output"), 30),
        (Some("contribs"), 40),
        (Some("leaf"), 3),
    ];
    let both = [
        (WireFormat::Json, server.http),
        (WireFormat::Grpc, server.grpc),
    ];
    let request = |(wire, address)| {
        calls.map(|(output, rows)| {
            let call = InferRequest {
                model: "small",
                input: "input",
                output,
                values: &values[..rows * FEATURES],
                features: FEATURES,
            };
            call.request(wire, address)
        })
    };
    both.into_iter().flat_map(request).collect()
}

/// Number of requests that the server counted with one of these codes.
fn counted(metrics: &str, codes: &[&str]) -> usize {
    let of_code = |line: &&str| {
        let is_one = |code: &&str| line.contains(&format!("code=\"{code}\""));
        line.starts_with("albacore_requests_total{") && codes.iter().any(is_one)
    };
    let value = |line: &str| line.rsplit(' ').next()?.parse::<usize>().ok();
    metrics.lines().filter(of_code).filter_map(value).sum()
}

/// The request of a checker for this round, for values and contributions.
fn checker_request(checker: usize, round: usize) -> Value {
    let rows = round % DISTINCT_REQUESTS + 1;
    let value = |at: usize| (at * 7 + round % DISTINCT_REQUESTS * 13 + checker) as f32 / 40.0 - 2.0;
    let data: Vec<f32> = (0..rows * FEATURES).map(value).collect();
    json!({
        "id": format!("{checker}.{round}"),
        "inputs": [{"name": "input", "shape": [rows, FEATURES], "datatype": "FP32", "data": data}],
        "outputs": [{"name": "output"}, {"name": "contribs"}],
    })
}

/// Sends each type of request until its cost is learned; returns all statuses.
fn warm_up(server: &Running, requests: &[Request]) -> Vec<u16> {
    let count = WARM_UP * requests.len();
    let every = Duration::from_millis(20);
    let load = Load {
        requests: requests.to_vec(),
        shape: Shape::Open((0..count as u32).map(|nth| nth * every).collect()),
        connections: 1,
    };
    let samples = drive(load).unwrap();
    let mut connection = server.connect();
    let mut send = |round| {
        let body = checker_request(0, round).to_string();
        connection.call("POST", INFER, &[], body.as_bytes()).status
    };
    let of_checkers: Vec<u16> = (0..WARM_UP).map(&mut send).collect();
    let statuses = samples.iter().map(|sample| sample.status);
    statuses.chain(of_checkers).collect()
}

/// Repeats the same few requests until `is_over`: each reply has the ID of its request, and replies
/// to the same request are equal. Returns all statuses.
fn check_bytes(mut connection: Connection, checker: usize, is_over: &AtomicBool) -> Vec<u16> {
    let mut known: [Option<Value>; DISTINCT_REQUESTS] = Default::default();
    let mut statuses = Vec::new();
    for round in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let (body, nth) = (checker_request(checker, round), round % DISTINCT_REQUESTS);
        let answer = connection.call("POST", INFER, &[], body.to_string().as_bytes());
        statuses.push(answer.status);
        if answer.status == 200 {
            let reply = answer.json();
            assert_eq!(reply["id"], body["id"]);
            let outputs = known[nth].get_or_insert_with(|| reply["outputs"].clone());
            assert_eq!(*outputs, reply["outputs"], "request {nth}, round {round}");
        }
    }
    statuses
}

/// Starts the clients of both protocols.
fn start_traffic(all: &[Request], length: Duration) -> Vec<JoinHandle<Vec<Sample>>> {
    let start = |requests: &[Request]| {
        let load = Load {
            requests: requests.to_vec(),
            shape: Shape::Closed(length),
            connections: CLIENTS,
        };
        std::thread::spawn(move || drive(load).unwrap())
    };
    all.chunks(all.len() / 2).map(start).collect()
}

/// Kills workers, and sometimes stops one, until `is_over`; returns the number of both.
fn kill_until(server: &mut Running, is_over: impl Fn() -> bool) -> usize {
    let mut pids = server.workers.clone();
    let mut kills = 0;
    while !is_over() {
        kills += 1;
        let signal = if kills % STOP_EVERY == 0 {
            "-STOP"
        } else {
            "-KILL"
        };
        let pid = pids[kills % 2].to_string();
        Command::new("kill").args([signal, &pid]).status().unwrap();
        let died = server.event("worker_died");
        assert_eq!(died["pid"].to_string(), pid);
        let started = server.event("worker_started");
        let worker = started["worker"].as_u64().unwrap() as usize;
        pids[worker] = started["pid"].as_u64().unwrap() as u32;
        std::thread::sleep(Duration::from_millis(kills as u64 * 7 % 40));
    }
    kills
}

#[test]
fn under_kills_and_stops_each_request_is_answered_or_refused_and_counted() {
    let soak: u32 = std::env::var("ALBACORE_SOAK").map_or(1, |n| n.parse().unwrap());
    let models = [("small", "main_small_d6.ubj")];
    let arguments = ["--workers", "2", "--threads", "1", "--slo", "40ms"];
    let mut server = Running::start(&models, &arguments);
    let all = requests(&server);
    let warm_up = warm_up(&server, &all);
    let traffic = start_traffic(&all, LENGTH * soak);
    let is_over = Arc::new(AtomicBool::new(false));
    let checkers: Vec<_> = (0..CHECKERS)
        .map(|checker| {
            let (connection, is_over) = (server.connect(), Arc::clone(&is_over));
            std::thread::spawn(move || check_bytes(connection, checker, &is_over))
        })
        .collect();
    let kills = kill_until(&mut server, || {
        traffic.iter().all(|traffic| traffic.is_finished())
    });
    let samples: Vec<_> = traffic
        .into_iter()
        .flat_map(|traffic| traffic.join().unwrap())
        .collect();
    is_over.store(true, Ordering::Relaxed);
    let checked: Vec<u16> = checkers
        .into_iter()
        .flat_map(|checker| checker.join().unwrap())
        .collect();
    let all_statuses = || {
        samples
            .iter()
            .map(|sample| sample.status)
            .chain(checked.iter().copied())
            .chain(warm_up.iter().copied())
    };
    let metrics = String::from_utf8(server.get("/metrics").body).unwrap();
    let (mut sum, statuses) = (0, [200, 429, 503]);
    for (status, codes) in statuses.into_iter().zip([
        ["200", "Ok"],
        ["429", "ResourceExhausted"],
        ["503", "Unavailable"],
    ]) {
        let received = all_statuses()
            .filter(|&received| received == status)
            .count();
        assert_eq!(counted(&metrics, &codes), received, "{status}: {metrics}");
        sum += received;
    }
    let all = samples.len() + checked.len() + warm_up.len();
    assert_eq!(sum, all, "others than {statuses:?} were among {all}");
    let answered = all_statuses().filter(|&status| status == 200).count();
    let compared = checked.iter().filter(|&&status| status == 200).count();
    assert!(
        compared > DISTINCT_REQUESTS,
        "{compared} answers were compared"
    );
    assert!(
        answered > 50 && kills > 3,
        "{answered} answers, {kills} kills"
    );
    assert!(
        metrics.contains("albacore_failed_total{model=\"small\"} 0"),
        "{metrics}"
    );
    println!(
        "{kills} kills and stops, {all} requests, {answered} answered, {compared} compared byte \
         by byte",
    );
    assert_eq!(server.stop("-TERM"), Some(0));
}
