//! Workers are killed and stopped while requests of both protocols come faster than they can be run: each is answered,
//! or refused at the door and counted there. `ALBACORE_SOAK` makes it so many times as long.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod running;

use std::process::Command;
use std::time::Duration;

use albacore_load::{Call, Load, Request, Shape, Wire, drive};
use running::Running;

/// Shortest run.
const LENGTH: Duration = Duration::from_secs(6);

/// Clients of each protocol, each of which waits for its answer.
const CLIENTS: usize = 12;

/// Every so many kills a worker is stopped instead.
const STOP_EVERY: usize = 6;

const FEATURES: usize = 29;

/// Predictions of few rows and contributions of many.
fn requests(server: &Running) -> Vec<Request> {
    let values = vec![0.5; 40 * FEATURES];
    let calls = [
        (None, 1),
        (Some("output"), 30),
        (Some("contribs"), 40),
        (Some("leaf"), 3),
    ];
    let both = [(Wire::Json, server.http), (Wire::Grpc, server.grpc)];
    let request = |(wire, address)| {
        calls.map(|(output, rows)| {
            let call = Call {
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

/// Requests that the server counted with one of these codes.
fn counted(metrics: &str, codes: &[&str]) -> usize {
    let of_code = |line: &&str| {
        let is_one = |code: &&str| line.contains(&format!("code=\"{code}\""));
        line.starts_with("albacore_requests_total{") && codes.iter().any(is_one)
    };
    let value = |line: &str| line.rsplit(' ').next()?.parse::<usize>().ok();
    metrics.lines().filter(of_code).filter_map(value).sum()
}

#[test]
fn under_kills_and_stops_each_request_is_answered_or_honestly_refused_and_counted() {
    let soak: u32 = std::env::var("ALBACORE_SOAK").map_or(1, |n| n.parse().unwrap());
    let models = [("small", "main_small_d6.ubj")];
    let arguments = ["--workers", "2", "--threads", "1", "--slo", "40ms"];
    let mut server = Running::start(&models, &arguments);
    let all = requests(&server);
    let traffic: Vec<_> = all
        .chunks(all.len() / 2)
        .map(|requests| {
            let load = Load {
                requests: requests.to_vec(),
                shape: Shape::Closed(LENGTH * soak),
                connections: CLIENTS,
            };
            std::thread::spawn(move || drive(load).unwrap())
        })
        .collect();
    let mut pids = server.workers.clone();
    let mut kills = 0;
    while !traffic.iter().all(|traffic| traffic.is_finished()) {
        kills += 1;
        // Stops only once the costs of all queues are known: before, the patience is long.
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
    let samples: Vec<_> = traffic
        .into_iter()
        .flat_map(|traffic| traffic.join().unwrap())
        .collect();
    let metrics = String::from_utf8(server.get("/metrics").body).unwrap();
    let (mut sum, statuses) = (0, [200, 429, 503]);
    for (status, codes) in statuses.into_iter().zip([
        ["200", "Ok"],
        ["429", "ResourceExhausted"],
        ["503", "Unavailable"],
    ]) {
        let seen = samples.iter().filter(|s| s.status == status).count();
        assert_eq!(counted(&metrics, &codes), seen, "{status}: {metrics}");
        sum += seen;
    }
    let others = samples.iter().filter(|s| !statuses.contains(&s.status));
    let others: Vec<_> = others.collect();
    assert!(others.is_empty() && sum == samples.len(), "{others:?}");
    let answered = samples.iter().filter(|s| s.status == 200).count();
    assert!(
        answered > 50 && kills > 3,
        "{answered} answers, {kills} kills"
    );
    assert!(
        metrics.contains("albacore_failed_total{model=\"small\"} 0"),
        "{metrics}"
    );
    println!(
        "{kills} kills and stops, {} requests, {answered} answered",
        samples.len()
    );
    assert_eq!(server.stop("-TERM"), Some(0));
}
