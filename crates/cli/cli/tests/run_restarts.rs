//! `albacore run` with a server that exits: it is restarted at the same addresses and placed again;
//! restarts end if the server cannot be started.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

mod deployment;
mod running;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use deployment::Folder;
use running::{ANY_PORTS, DEADLINE, Running, Threads, kill, tids};
use serde_json::Value;

/// Kills per test; `make soak` multiplies them.
fn kills() -> usize {
    let factor = std::env::var("ALBACORE_SOAK").map_or(1, |n| n.parse().unwrap());
    5 * factor
}

/// A client that sends one request after another, each over its own connection, and counts
/// successful replies.
struct Client {
    answered: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Client {
    fn start(address: SocketAddr) -> Self {
        let (answered, is_over) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (count, stop) = (Arc::clone(&answered), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                match ask(address) {
                    Ok(text) if text.starts_with("HTTP/1.1 200") => {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    // Connection refused: no server is listening.
                    Ok(_) | Err(_) => std::thread::sleep(Duration::from_millis(5)),
                }
            }
        });
        Self {
            answered,
            is_over,
            thread: Some(thread),
        }
    }

    /// Waits for replies to requests that are sent from now on.
    fn until_answered(&self) {
        // One request may have been sent before.
        let wanted = self.answered.load(Ordering::Relaxed) + 2;
        let deadline = Instant::now() + DEADLINE;
        while self.answered.load(Ordering::Relaxed) < wanted {
            assert!(Instant::now() < deadline, "no answer");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(std::thread::JoinHandle::join));
    }
}

fn ask(address: SocketAddr) -> std::io::Result<String> {
    let row = vec!["0.5"; 61].join(",");
    let body = format!(
        r#"{{"inputs":[{{"name":"input","datatype":"FP32","shape":[1,61],"data":[{row}]}}]}}"#
    );
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    write!(
        stream,
        "POST /v2/models/fraud/infer HTTP/1.1\r\nHost: albacore\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn addresses(event: &Value) -> (SocketAddr, SocketAddr) {
    let address = |field: &str| event[field].as_str().unwrap().parse().unwrap();
    (address("http"), address("grpc"))
}

fn event(run: &mut Running, name: &str) -> Value {
    run.until(name, |event| event["event"] == name)
}

/// Number of open files and threads of the run itself.
fn open_resources(run: &Running) -> (usize, usize) {
    let files = fs::read_dir(format!("/proc/{}/fd", run.pid())).unwrap();
    (files.count(), tids(run.pid()).len())
}

/// Waits until the run has no more open files and threads than before.
fn wait_until_released(run: &Running, before: (usize, usize)) {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let now = open_resources(run);
        if now.0 <= before.0 && now.1 <= before.1 {
            return;
        }
        assert!(Instant::now() < deadline, "{before:?} before, {now:?} now");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_there(pid: u64) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_front_that_is_killed_under_load_serves_again_at_its_address_and_is_placed() {
    let folder = Folder::new("restarts");
    // A request that cannot meet its objective would be rejected at admission.
    let text = deployment::fraud_text();
    let text = text.replace("latency: 25ms", "latency: 20s");
    let args = [&["--output", "json"], &ANY_PORTS[..]].concat();
    let mut run = Running::start(&folder.write(&text), &args);
    let (mut threads, listening) = run.placed_and_listening("tuna");
    let at = addresses(&listening);
    let client = Client::start(at.0);
    client.until_answered();
    // A server that never reported ready is not restarted, even if it has replied to requests.
    run.until_reported("ready", |event| event["event"] == "ready");
    let before = open_resources(&run);
    for count in 1..=kills() {
        let front = run.process("albacore-server --");
        let workers = run.process_ids("/proc/self/exe worker");
        assert_eq!(workers.len(), 2);
        kill(front, "KILL");
        let ended = event(&mut run, "server_ended");
        assert_eq!(ended["pid"], front);
        assert!(
            ended["how"].as_str().unwrap().contains("signal: 9"),
            "{ended}"
        );
        let again = event(&mut run, "server_restarted");
        assert_eq!(again["restarts"], count);
        assert_ne!(again["pid"], front);
        let left = workers.iter().find(|&&pid| is_there(u64::from(pid)));
        assert_eq!(left, None, "a worker of the dead front");
        let (now, listening) = run.placed_and_listening("tuna");
        assert_eq!(addresses(&listening), at);
        now.assert_kernel_agrees();
        assert!(now.tids().iter().all(|tid| !threads.tids().contains(tid)));
        threads = now;
        client.until_answered();
    }
    // An edit made while no server is running applies to the next server.
    kill(run.process("albacore-server --"), "KILL");
    event(&mut run, "server_ended");
    folder.write(&format!("{text}  placement: {{policy: RoundRobin}}\n"));
    run.placed("roundrobin").assert_kernel_agrees();
    client.until_answered();
    drop(client);
    wait_until_released(&run, before);
    run.signal("TERM");
    assert_eq!(run.end().code(), Some(0), "{:#?}", run.events);
    assert!(run.processes().is_empty(), "{:?}", run.processes());
    assert_eq!(
        run.events_named("restored").next().unwrap()["errors_total"],
        0
    );
    let summary = run.events_named("summary").next().unwrap();
    assert_eq!(summary["server_restarts"], kills() + 1);
}

/// A server with two workers whose starts fail once a file exists, which the first start creates.
fn starts_once(folder: &Folder) -> PathBuf {
    let prefork = deployment::root().join("tests/servers/prefork.py");
    let flag = folder.path().join("was-started");
    let script = format!(
        "test -e {flag} && exit 7; touch {flag}; exec python3 {prefork}",
        flag = flag.display(),
        prefork = prefork.display(),
    );
    folder.custom_server(&["sh", "-c", &script], &[])
}

/// Kills the only process of the server that is not a worker.
fn kill_master(run: &Running, workers: &Threads) {
    let is_master = |pid: &u32| *pid != run.pid() && !workers.tids().contains(&u64::from(*pid));
    kill(run.processes().into_keys().find(is_master).unwrap(), "KILL");
}

#[test]
fn restarts_of_a_server_that_always_exits_at_startup_are_given_up() {
    let folder = Folder::new("gives-up");
    let file = starts_once(&folder);
    let errors = folder.path().join("errors");
    let launch = format!("exec \"$@\" 2>{}", errors.display());
    let launcher = ["sh", "-c", &launch, "sh"];
    let mut run = Running::start_by(&launcher, &file, &["--output", "json"]);
    let threads = run.placed("tuna");
    kill_master(&run, &threads);
    assert_eq!(run.end().code(), Some(1), "{:#?}", run.events);
    assert!(run.processes().is_empty(), "{:?}", run.processes());
    let pauses: Vec<_> = run.events_named("server_ended").collect();
    let pauses: Vec<_> = pauses.iter().map(|e| e["restart_in_ms"].as_u64()).collect();
    let doubled = [100, 200, 400, 800, 1600, 3200, 5000, 5000].map(Some);
    assert_eq!(pauses, doubled);
    assert_eq!(run.events_named("server_restarted").count(), 8);
    let said = fs::read_to_string(errors).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    for words in ["8 times", "before it was ready", "exit status: 7"] {
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn a_run_may_be_ended_while_its_server_waits_to_be_started() {
    let folder = Folder::new("waits");
    let mut run = Running::start(&starts_once(&folder), &["--output", "json"]);
    let threads = run.placed("tuna");
    kill_master(&run, &threads);
    run.until("a long pause", |e| e["restart_in_ms"] == 5000);
    run.signal("TERM");
    assert_eq!(run.end().code(), Some(0), "{:#?}", run.events);
    assert!(run.processes().is_empty(), "{:?}", run.processes());
}
