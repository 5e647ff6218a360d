//! Runs `albacore run` as a child process whose descendants can all be found, because they inherit
//! an environment variable with a unique value.
#![allow(dead_code, reason = "each test program uses its part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

/// For liveness only: time limit on a machine that is busy with other tests.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Lets the built-in server listen on any free ports.
pub(crate) const ANY_PORTS: [&str; 4] = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];

const MARK: &str = "ALBACORE_TEST_RUN";

/// A run and its events so far.
pub(crate) struct Running {
    child: Child,
    mark: Mark,
    receiver: Receiver<Value>,
    pub(crate) events: Vec<Value>,
}

impl Running {
    /// Starts `albacore run -f file args`.
    pub(crate) fn start(file: &Path, args: &[&str]) -> Self {
        Self::start_by(&[], file, args)
    }

    /// The same, started by a launcher that execs its last arguments.
    pub(crate) fn start_by(launcher: &[&str], file: &Path, args: &[&str]) -> Self {
        let mark = Mark::new();
        let mut child = command(launcher, file, args, &mark)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let event = serde_json::from_str(&line)
                    .unwrap_or_else(|e| panic!("no JSON on stdout: {line:?}: {e}"));
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            mark,
            receiver,
            events: Vec::new(),
        }
    }

    /// Waits for an event that arrives from now on.
    pub(crate) fn until(&mut self, what: &str, accept: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(event) = self.receiver.recv_timeout(left) else {
                panic!("waiting for {what}; events: {:#?}", self.events);
            };
            self.events.push(event.clone());
            if accept(&event) {
                return event;
            }
        }
    }

    /// Waits for an event that may have arrived already.
    pub(crate) fn until_reported(&mut self, what: &str, accept: impl Fn(&Value) -> bool) {
        if !self.events.iter().any(&accept) {
            self.until(what, accept);
        }
    }

    /// Waits until every thread is placed under `policy`.
    pub(crate) fn placed(&mut self, policy: &str) -> Threads {
        let event = self.until(policy, |e| e["event"] == "placed" && e["policy"] == policy);
        Threads::of(&event)
    }

    /// Waits until every thread is placed under `policy` and the server listens, in either order,
    /// because the placer and the server are two processes.
    pub(crate) fn placed_and_listening(&mut self, policy: &str) -> (Threads, Value) {
        let is_placed = |e: &Value| e["event"] == "placed" && e["policy"] == policy;
        let (mut threads, mut listening) = (None, None);
        loop {
            if let (Some(threads), Some(listening)) = (&threads, &listening) {
                return (Threads::of(threads), Value::clone(listening));
            }
            let event = self.until("placed and listening", |e| {
                is_placed(e) || e["event"] == "listening"
            });
            match is_placed(&event) {
                true => threads = Some(event),
                false => listening = Some(event),
            }
        }
    }

    /// Receives events for this long.
    pub(crate) fn listen_for(&mut self, time: Duration) {
        let deadline = Instant::now() + time;
        while let Ok(event) = self
            .receiver
            .recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            self.events.push(event);
        }
    }

    pub(crate) fn events_named(&self, name: &str) -> impl Iterator<Item = &Value> {
        self.events.iter().filter(move |e| e["event"] == name)
    }

    /// Sends a signal only to `albacore run`.
    pub(crate) fn signal(&self, signal: &str) {
        kill(self.child.id(), signal);
    }

    /// Waits until the run and all its child processes have exited and all events were received.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let deadline = Instant::now() + DEADLINE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                Instant::now() < deadline,
                "no end; events: {:#?}",
                self.events
            );
            self.listen_for(Duration::from_millis(20));
        };
        self.listen_for(Duration::from_millis(100));
        status
    }

    /// Processes of this run, command line by pid.
    pub(crate) fn processes(&self) -> BTreeMap<u32, String> {
        self.mark.processes()
    }

    /// The only process of this run whose command line contains this word.
    pub(crate) fn process(&self, word: &str) -> u32 {
        let found = self.processes();
        let mut pids = found.iter().filter(|(_, line)| line.contains(word));
        let first = pids.next().unwrap_or_else(|| panic!("{word}: {found:?}"));
        assert!(pids.next().is_none(), "{word}: {found:?}");
        *first.0
    }

    /// Processes of this run whose command line contains this word.
    pub(crate) fn process_ids(&self, word: &str) -> Vec<u32> {
        let found = self.processes().into_iter();
        let is_it = |(_, line): &(u32, String)| line.contains(word);
        found.filter(is_it).map(|(pid, _)| pid).collect()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        self.mark.kill_all();
    }
}

/// Result of a run that ends on its own.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
    /// Processes that were left afterwards.
    pub(crate) left: BTreeMap<u32, String>,
}

/// Runs `albacore run -f file args` to its end.
pub(crate) fn refused(launcher: &[&str], file: &Path, args: &[&str]) -> Refused {
    let mark = Mark::new();
    let mut child = command(launcher, file, args, &mark)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The output before a failure fits in the pipe buffers.
    let deadline = Instant::now() + DEADLINE;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() > deadline => {
                drop(child.kill());
                mark.kill_all();
                panic!("{} was not refused", file.display());
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let left = mark.processes();
    mark.kill_all();
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout.unwrap().read_to_string(&mut out).unwrap();
    child.stderr.unwrap().read_to_string(&mut err).unwrap();
    Refused {
        code: status.code().unwrap(),
        out,
        err,
        left,
    }
}

fn command(launcher: &[&str], file: &Path, args: &[&str], mark: &Mark) -> Command {
    let mut words: Vec<&str> = launcher.to_vec();
    words.push(env!("CARGO_BIN_EXE_albacore"));
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .args(["run", "-f"])
        .arg(file)
        .args(args)
        .env(MARK, &mark.0)
        .stdin(Stdio::null());
    command
}

/// The unique value that identifies the processes of one run.
struct Mark(String);

impl Mark {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self(format!("{}-{count}", std::process::id()))
    }

    fn processes(&self) -> BTreeMap<u32, String> {
        let mark = format!("{MARK}={}", self.0);
        let is_marked = |pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == mark.as_bytes())
        };
        let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let name = entry.ok()?.file_name();
            name.to_str()?.parse().ok()
        });
        pids.filter(is_marked)
            .map(|pid| {
                let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                (pid, String::from_utf8_lossy(&line).replace('\0', " "))
            })
            .collect()
    }

    fn kill_all(&self) {
        for _ in 0..10 {
            for pid in self.processes().keys() {
                kill(*pid, "KILL");
            }
        }
    }
}

/// Sends a signal to a process that may have exited.
pub(crate) fn kill(pid: u32, signal: &str) {
    let target = pid.to_string();
    let kill = ["-s", signal, &target];
    drop(
        Command::new("kill")
            .args(kill)
            .stderr(Stdio::null())
            .status(),
    );
}

/// The threads of a `placed` event: planned cpus and tid by (worker, rank).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Threads(pub(crate) BTreeMap<(u64, u64), (u64, String)>);

impl Threads {
    fn of(event: &Value) -> Self {
        let threads = event["threads"].as_array().unwrap().iter().map(|thread| {
            let number = |name: &str| thread[name].as_u64().unwrap();
            let planned = thread["planned"].as_str().unwrap().to_owned();
            ((number("worker"), number("rank")), (number("tid"), planned))
        });
        Self(threads.collect())
    }

    /// Asserts that the kernel's masks are the planned ones.
    pub(crate) fn assert_kernel_agrees(&self) {
        for (slot, (tid, planned)) in &self.0 {
            assert_eq!(mask(*tid).as_ref(), Some(planned), "{slot:?} of {self:?}");
        }
    }

    pub(crate) fn tids(&self) -> Vec<u64> {
        self.0.values().map(|(tid, _)| *tid).collect()
    }

    pub(crate) fn planned(&self, worker: u64, rank: u64) -> &str {
        &self.0[&(worker, rank)].1
    }
}

/// The mask of a thread as printed by the kernel; `None` if the thread has exited.
pub(crate) fn mask(tid: u64) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map(|list| list.trim().to_owned())
}

/// Threads of a process.
pub(crate) fn tids(pid: u32) -> Vec<u64> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    tasks
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}
