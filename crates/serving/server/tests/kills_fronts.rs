//! Fronts are killed under load: the sockets stay open, a standby takes over the workers and
//! models, and every reply is correct. `ALBACORE_SOAK` multiplies the kills.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod running;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use albacore_os::{Pid, PidFd};
use running::{PATIENCE, Running, kill, zoo};
use serde_json::{Value, json};

/// Kills of fronts without a soak.
const KILLS: u32 = 20;

/// Interval of kills at which the next standby need not be prepared.
const UNPREPARED_EVERY: u32 = 5;

/// Clients during kills, and the number of different requests per client.
const CLIENTS: usize = 4;
const DISTINCT_REQUESTS: usize = 8;

const FEATURES: usize = 29;

const MODELS: [(&str, &str); 1] = [("small", "main_small_d6.ubj")];

fn infer(model: &str, rows: usize, seed: usize, outputs: &[&str]) -> Vec<u8> {
    let value = |at: usize| (at * 7 + seed * 13) as f32 / 40.0 - 2.0;
    let data: Vec<f32> = (0..rows * FEATURES).map(value).collect();
    let outputs: Vec<Value> = outputs.iter().map(|name| json!({"name": name})).collect();
    let input =
        json!({"name": "input", "shape": [rows, FEATURES], "datatype": "FP32", "data": data});
    let body = json!({"inputs": [input], "outputs": outputs}).to_string();
    let head = format!(
        "POST /v2/models/{model}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head, body].concat().into_bytes()
}

/// Stops a process. Each thread stops when it handles the signal, which on a busy machine is
/// milliseconds after `kill` has returned.
fn stop(pid: u32) {
    assert!(kill("-STOP", pid));
    let is_stopped = || {
        let mut threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        threads.all(|thread| {
            // A thread that has just ended is not listed the next time.
            let stat = std::fs::read_to_string(thread.unwrap().path().join("stat"));
            stat.is_ok_and(|stat| stat.contains(") T "))
        })
    };
    let start = Instant::now();
    while !is_stopped() {
        assert!(start.elapsed() < PATIENCE, "process {pid} does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends a request; returns status and body. A reset connection is an error.
fn send_request(stream: &mut TcpStream, request: &[u8]) -> std::io::Result<(u16, Vec<u8>)> {
    let (status, body, _) = exchange(stream, request)?;
    Ok((status, body))
}

/// Like [`send_request`]; also returns whether the reply has `Connection: close`.
fn exchange(stream: &mut TcpStream, request: &[u8]) -> std::io::Result<(u16, Vec<u8>, bool)> {
    stream.write_all(request)?;
    let mut answer = Vec::new();
    loop {
        let mut bytes = [0; 16 << 10];
        let count = stream.read(&mut bytes)?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        answer.extend_from_slice(&bytes[..count]);
        let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).unwrap();
        let length: usize = length.lines().next().unwrap().trim().parse().unwrap();
        if answer.len() >= end + 4 + length {
            let status = head.split(' ').nth(1).unwrap().parse().unwrap();
            let is_last = head.contains("connection: close");
            return Ok((status, answer.split_off(end + 4), is_last));
        }
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the socket stays open");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Observations of the clients.
#[derive(Default)]
struct ClientStats {
    is_over: AtomicBool,
    answered: AtomicU32,
    /// Connections that were reset.
    resets: AtomicU32,
}

/// Repeats the same few requests until `is_over` and reconnects after each reset; replies to the
/// same request are equal.
fn check_bytes(address: SocketAddr, client: usize, stats: &ClientStats) {
    let requests: Vec<_> = (0..DISTINCT_REQUESTS)
        .map(|at| {
            infer(
                "small",
                at * 5 + 1,
                client * DISTINCT_REQUESTS + at,
                &["output", "contribs"],
            )
        })
        .collect();
    let mut known: Vec<Option<Value>> = vec![None; DISTINCT_REQUESTS];
    let mut stream = connect(address);
    for round in 0.. {
        if stats.is_over.load(Ordering::Relaxed) {
            return;
        }
        let index = round % DISTINCT_REQUESTS;
        match send_request(&mut stream, &requests[index]) {
            Ok((status, body)) => {
                let body: Value = serde_json::from_slice(&body).unwrap();
                // Requests may be refused during a takeover.
                if status == 200 {
                    let known = known[index].get_or_insert_with(|| body["outputs"].clone());
                    assert_eq!(*known, body["outputs"], "client {client}, round {round}");
                    stats.answered.fetch_add(1, Ordering::Relaxed);
                } else {
                    assert!([429, 503].contains(&status), "{status}: {body}");
                }
            }
            Err(_) => {
                stats.resets.fetch_add(1, Ordering::Relaxed);
                stream = connect(address);
            }
        }
    }
}

fn state(server: &Running) -> Value {
    server.get("/albacore/v1/state").json()
}

fn until(server: &Running, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let state = state(server);
        if is_so(&state) {
            return state;
        }
        assert!(start.elapsed() < PATIENCE, "never: {what}: {state:#}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn until_prepared(server: &Running) -> Value {
    until(server, "a standby is ready", |state| {
        state["front"]["standby_ready"] == true
    })
}

/// Time from the kill of the front to the first reply on a new connection.
fn kill_front(server: &Running) -> Duration {
    let request = infer("small", 1, 0, &["output"]);
    let front = PidFd::open(Pid(server.front().cast_signed())).unwrap();
    // Reduces the scheduling delay of this thread on busy CPUs, which is not time of the server.
    albacore_os::shorten_time_slice();
    let start = Instant::now();
    front.kill().unwrap();
    loop {
        // The connection may have been accepted by the dying front.
        if let Ok((200, _)) = send_request(&mut connect(server.http), &request) {
            return start.elapsed();
        }
        assert!(start.elapsed() < PATIENCE, "nothing is answered");
    }
}

/// Formats statistics of the times from a kill to the first reply.
fn summary(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |share: f64| {
        let index = (times.len() as f64 * share).ceil() as usize;
        times
            .get(index.saturating_sub(1))
            .copied()
            .unwrap_or_default()
    };
    let is_late = |time: &&Duration| **time > Duration::from_millis(50);
    format!(
        "{} fronts killed: first answer after {:.1?} (median), {:.1?} (p99), {:.1?} (max), {} later \
         than 50 ms",
        times.len(),
        at(0.5),
        at(0.99),
        at(1.0),
        times.iter().filter(is_late).count()
    )
}

#[test]
fn workers_and_models_survive_kills_of_the_front_and_every_answer_is_correct() {
    let soak: u32 = std::env::var("ALBACORE_SOAK").map_or(1, |n| n.parse().unwrap());
    let kills = KILLS * soak;
    let mut server = Running::start(&MODELS, &["--workers", "2", "--threads", "2"]);
    let (workers, before) = (server.live_workers(), state(&server));
    let stats = Arc::new(ClientStats::default());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (stats, address) = (Arc::clone(&stats), server.http);
            std::thread::spawn(move || check_bytes(address, client, &stats))
        })
        .collect();
    let (mut with_standby, mut without, mut reset) = (Vec::new(), Vec::new(), 0);
    for round in 0..kills {
        if round % UNPREPARED_EVERY != 0 {
            until_prepared(&server);
        }
        let times = match state(&server)["front"]["standby_ready"] == true {
            true => &mut with_standby,
            false => &mut without,
        };
        let front = server.front();
        times.push(kill_front(&server));
        let died = server.event("front_died");
        assert_eq!(died["pid"], front);
        assert_eq!(died["cause"], "signal 9");
        reset += died["connections"].as_u64().unwrap();
        assert_eq!(server.live_workers(), workers, "workers are not restarted");
        // Waits until every client can have received replies on its new connection.
        let answered = stats.answered.load(Ordering::Relaxed);
        let start = Instant::now();
        while stats.answered.load(Ordering::Relaxed) < answered + 20 {
            assert!(start.elapsed() < PATIENCE, "clients are not answered");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    stats.is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().unwrap();
    }
    let after = until_prepared(&server);
    let front = &after["front"];
    assert_eq!(
        (&front["deaths"], &front["takeovers"]),
        (&kills.into(), &kills.into())
    );
    assert_eq!(front["connections_reset"], reset);
    let resets = stats.resets.load(Ordering::Relaxed);
    assert!(reset >= u64::from(resets), "{reset} counted, {resets} seen");
    assert_eq!(after["workers"]["restarts"], 0);
    for field in ["loaded_at_unix_ms", "sha256", "source", "state"] {
        assert_eq!(
            after["models"][0][field], before["models"][0][field],
            "{field}"
        );
    }
    let metrics = String::from_utf8(server.get("/metrics").body).unwrap();
    for line in [
        format!("albacore_front_deaths_total {kills}"),
        format!("albacore_front_takeovers_total {kills}"),
        format!("albacore_front_connections_reset_total {reset}"),
        "albacore_standby_ready 1".to_owned(),
    ] {
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    println!("with a standby: {}", summary(with_standby));
    println!("before it was prepared: {}", summary(without));
    println!("{resets} resets seen, {reset} counted");
    assert_eq!(server.stop("-TERM"), Some(0));
}

#[test]
fn the_connections_of_a_dead_front_are_counted_and_the_others_wait() {
    let mut server = Running::start(&MODELS, &["--front-threads", "2"]);
    let request = infer("small", 1, 0, &["output"]);
    let mut open: Vec<_> = (0..7).map(|_| connect(server.http)).collect();
    for stream in &mut open {
        assert_eq!(send_request(stream, &request).unwrap().0, 200);
    }
    until_prepared(&server);
    let front = server.front();
    // A stopped front accepts nothing: these connections are in the accept queues.
    stop(front);
    let mut waiting: Vec<_> = (0..5).map(|_| connect(server.http)).collect();
    for stream in &mut waiting {
        stream.write_all(&request).unwrap();
    }
    assert!(kill("-KILL", front));
    for stream in &mut waiting {
        assert_eq!(
            send_request(stream, b"").unwrap().0,
            200,
            "they are not reset"
        );
    }
    let died = server.event("front_died");
    let counted = died["connections"].as_u64().unwrap();
    // The connection of the state request may still be open.
    assert!((7..=8).contains(&counted), "{died}");
    for stream in &mut open {
        assert!(send_request(stream, &request).is_err());
    }
}

#[test]
fn a_batch_of_a_dead_front_is_finished_and_not_computed_again() {
    let server = Running::start(&MODELS, &["--workers", "1", "--threads", "2"]);
    let workers = server.live_workers();
    until_prepared(&server);
    // The worker computes nothing for a while.
    stop(workers[0]);
    let mut stream = connect(server.http);
    let request = infer("small", 400, 0, &["output", "contribs"]);
    stream.write_all(&request).unwrap();
    let busy = || {
        let metrics = String::from_utf8(server.get("/metrics").body).unwrap();
        metrics.contains("albacore_workers_busy 1")
    };
    let start = Instant::now();
    while !busy() {
        assert!(start.elapsed() < PATIENCE, "nothing is handed over");
    }
    assert!(kill("-KILL", server.front()));
    let end = stream.read(&mut [0]);
    assert!(matches!(end, Ok(0) | Err(_)), "its client knows: {end:?}");
    until(
        &server,
        "a worker that is not attached serves nothing",
        |state| state["front"]["deaths"] == 1 && state["workers"]["alive"] == 0,
    );
    assert!(kill("-CONT", workers[0]));
    until(&server, "the worker is attached", |state| {
        state["workers"]["alive"] == 1
    });
    assert_eq!(server.live_workers(), workers);
    let metrics = String::from_utf8(server.get("/metrics").body).unwrap();
    for line in [
        "albacore_replayed_batches_total 0",
        "albacore_batches_total{model=\"small\"} 0",
        "albacore_worker_restarts_total{worker=\"0\"} 0",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    assert_eq!(
        send_request(&mut connect(server.http), &request).unwrap().0,
        200
    );
    assert_eq!(server.stop("-TERM"), Some(0));
}

#[test]
fn a_front_without_a_standby_and_a_worker_beside_it_are_replaced() {
    let mut server = Running::start(&MODELS, &["--workers", "2"]);
    for _ in 0..3 {
        let workers = server.live_workers();
        until_prepared(&server);
        for (pid, _) in server.processes("front") {
            assert!(kill("-KILL", pid));
        }
        assert!(kill("-KILL", workers[0]));
        server.event("front_died");
        until(&server, "both workers are up", |state| {
            state["workers"]["alive"] == 2
        });
        let now = server.live_workers();
        assert!(
            now.contains(&workers[1]) && !now.contains(&workers[0]),
            "{now:?}"
        );
    }
    assert_eq!(server.stop("-TERM"), Some(0));
}

#[test]
fn a_signal_while_no_front_lives_ends_the_server() {
    let server = Running::start(&MODELS, &["--workers", "2"]);
    let workers = server.live_workers();
    until_prepared(&server);
    // A stopped supervisor does not see the exits before its own signal.
    stop(server.pid());
    let fronts: Vec<u32> = server.processes("front").iter().map(|it| it.0).collect();
    for &pid in &fronts {
        assert!(kill("-KILL", pid));
    }
    // Zombies: dead, but not yet reaped by their parent.
    let is_dead = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.contains(") Z ")
    };
    let start = Instant::now();
    while !fronts.iter().all(is_dead) {
        assert!(start.elapsed() < PATIENCE, "a front survives");
    }
    assert!(kill("-TERM", server.pid()));
    assert_eq!(server.stop("-CONT"), Some(0), "nobody drained");
    for pid in workers {
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}

#[test]
fn fronts_that_die_before_they_are_ready_end_the_server_with_code_70() {
    // The server never becomes ready, because its model does not exist.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("settings.yaml");
    std::fs::write(&file, settings("no-such-model")).unwrap();
    let arguments = ["--settings".to_owned(), file.display().to_string()];
    let mut server = Running::spawn(&arguments);
    server.event("model_failed");
    let start = Instant::now();
    let code = loop {
        for (pid, _) in server.processes("front") {
            kill("-KILL", pid);
        }
        if let Some(code) = server.try_exit() {
            break code;
        }
        assert!(start.elapsed() < PATIENCE, "it goes on for ever");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(code, Some(70));
}

#[test]
fn a_standby_that_cannot_start_is_reported_and_the_server_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let roots = folder.path().join("roots.pem");
    // The certificate is not used; the file only has to exist.
    let certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    std::fs::write(&roots, certificate).unwrap();
    let file = roots.display().to_string();
    let server = Running::start(&MODELS, &["--ca-file", &file]);
    until_prepared(&server);
    std::fs::remove_file(&roots).unwrap();
    let standby = server.processes("front").pop().unwrap().0;
    assert!(kill("-KILL", standby));
    let state = until(&server, "no standby can start", |state| {
        let error = state["front"]["standby_error"].as_str();
        error.is_some_and(|error| error.contains(&file))
    });
    assert_eq!(state["front"]["standby_ready"], false);
    let request = infer("small", 1, 0, &["output"]);
    assert_eq!(
        send_request(&mut connect(server.http), &request).unwrap().0,
        200
    );
    std::fs::write(&roots, certificate).unwrap();
    let state = until_prepared(&server);
    assert_eq!(state["front"].get("standby_error"), None);
    assert_eq!(server.stop("-TERM"), Some(0));
}

/// The settings of one model of the zoo.
fn settings(file: &str) -> String {
    let path = zoo(file);
    format!("models: [{{name: small, path: {}}}]\n", path.display())
}

#[test]
fn settings_in_force_and_reloads_under_way_survive_the_front() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("settings.yaml");
    std::fs::write(&file, settings("main_small_d6.ubj")).unwrap();
    let path = file.display().to_string();
    let arguments = ["--settings", &path, "--workers", "2"].map(str::to_owned);
    let mut server = Running::spawn(&arguments);
    server.wait_until_ready();
    let workers = server.live_workers();
    let before = until_prepared(&server);
    let digest = |state: &Value| state["models"][0]["sha256"].clone();
    // An invalid file changes nothing, also for the next front.
    std::fs::write(&file, "models: []\n").unwrap();
    server.event("settings_refused");
    kill_front(&server);
    let now = until(&server, "the file is refused again", |state| {
        state["settings_error"].is_string()
    });
    for field in ["settings_sha256", "models"] {
        let without_costs = |state: &Value| match field {
            "models" => state["models"][0]["loaded_at_unix_ms"].clone(),
            _ => state[field].clone(),
        };
        assert_eq!(without_costs(&now), without_costs(&before), "{field}");
    }
    assert_eq!(digest(&now), digest(&before));
    // A reload is in progress when the front dies: the next front completes it.
    for (round, model) in ["main_medium_d6.ubj", "main_small_d6.ubj"]
        .into_iter()
        .enumerate()
    {
        until_prepared(&server);
        let before = digest(&state(&server));
        std::fs::write(&file, settings(model)).unwrap();
        server.event("settings_applied");
        std::thread::sleep(Duration::from_millis(round as u64 * 30));
        kill_front(&server);
        until(&server, "the new version is loaded", |state| {
            state["models"][0]["state"] == "loaded" && digest(state) != before
        });
        assert_eq!(server.live_workers(), workers);
    }
    assert_eq!(server.stop("-TERM"), Some(0));
}

/// Sends sequential requests until `is_over`; none may fail. Returns the number of requests.
fn send_without_failure(address: SocketAddr, stats: &ClientStats) -> u32 {
    let request = infer("small", 2, 0, &["output"]);
    let mut answered = 0;
    let mut stream = connect(address);
    while !stats.is_over.load(Ordering::Relaxed) {
        match exchange(&mut stream, &request) {
            Ok((status, body, is_last)) => {
                assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
                answered += 1;
                // The front is draining.
                if is_last {
                    stream = connect(address);
                }
            }
            Err(error) => panic!("after {answered} answers: {error}"),
        }
    }
    answered
}

#[test]
fn the_binary_is_replaced_without_losing_a_request() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("albacore-server");
    let replace = |bytes: &[u8]| {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::Permissions::from_mode(0o755);
        let new = folder.path().join("new");
        std::fs::write(&new, bytes).unwrap();
        std::fs::set_permissions(&new, mode).unwrap();
        std::fs::rename(&new, &program).unwrap();
    };
    let binary = std::fs::read(env!("CARGO_BIN_EXE_albacore-server")).unwrap();
    replace(&binary);
    let file = zoo("main_small_d6.ubj").display().to_string();
    let arguments = ["--model", &format!("small={file}"), "--workers", "2"].map(str::to_owned);
    let mut server = Running::spawn_program(&program, &arguments);
    server.wait_until_ready();
    let stats = Arc::new(ClientStats::default());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (stats, address) = (Arc::clone(&stats), server.http);
            std::thread::spawn(move || send_without_failure(address, &stats))
        })
        .collect();
    // The new file is not a server: nothing changes.
    let (front, workers) = (server.front(), server.live_workers());
    replace(b"#!/bin/false\n");
    assert!(kill("-USR2", server.pid()));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(
        (server.front(), server.live_workers()),
        (front, workers.clone())
    );
    for upgrade in 1..=2 {
        replace(&binary);
        let front = server.front();
        assert!(kill("-USR2", server.pid()));
        server.event("upgraded");
        until(&server, "the newer front serves alone", |state| {
            let is_gone = server
                .processes("front")
                .iter()
                .all(|&(pid, _)| pid != front);
            state["front"]["upgrades"] == upgrade && is_gone
        });
    }
    assert!(
        server
            .live_workers()
            .iter()
            .all(|pid| !workers.contains(pid))
    );
    // The standby of the new front takes over as before.
    until_prepared(&server);
    stats.is_over.store(true, Ordering::Relaxed);
    let answered: u32 = clients.into_iter().map(|it| it.join().unwrap()).sum();
    assert!(answered > 100, "{answered}");
    let workers = server.live_workers();
    kill_front(&server);
    assert_eq!(server.live_workers(), workers);
    assert_eq!(server.stop("-TERM"), Some(0));
}
