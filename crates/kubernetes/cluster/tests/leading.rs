//! Tests of leader election: processes that contend for a lease of a real API server are paused,
//! stopped and crashed, and only the leader writes.
#![allow(clippy::unwrap_used, clippy::panic)] // tests fail by panicking

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use albacore_testbed::{ControlPlane, Options};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// Duration of the lease in seconds.
const LEASE: u64 = 3;

/// Generous because the machine may be busy; only for liveness.
const LONG: Duration = Duration::from_secs(60);

/// Number of pauses of a leader in one test; `make soak` multiplies it.
fn rounds() -> u64 {
    4 * std::env::var("ALBACORE_SOAK").map_or(1, |n| n.parse::<u64>().unwrap())
}

/// A running `contender`.
struct Contender {
    child: Child,
    lines: Receiver<String>,
}

impl Contender {
    /// Starts a contender as a separate user.
    fn of(plane: &ControlPlane, user: &str) -> Self {
        let config = plane.kubeconfig_of(user, Some("system:masters")).unwrap();
        Self::start(&config, user, &[])
    }

    fn start(kubeconfig: &Path, name: &str, more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_contender"));
        command
            .arg(kubeconfig)
            .arg(name)
            .arg(LEASE.to_string())
            .args(more);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = sync_channel(1000);
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// Waits until all `lines` were printed, in any order.
    fn wait_for(&self, lines: &[&str]) -> Instant {
        let start = Instant::now();
        let mut missing = lines.to_vec();
        while !missing.is_empty() {
            let left = LONG.saturating_sub(start.elapsed());
            let next = self.lines.recv_timeout(left);
            let next = next.unwrap_or_else(|error| panic!("no line {missing:?}: {error}"));
            missing.retain(|line| *line != next);
        }
        Instant::now()
    }

    /// Whether `line` is printed within `time`.
    fn prints_within(&self, line: &str, time: Duration) -> bool {
        match self.lines.recv_timeout(time) {
            Ok(next) => next == line || self.prints_within(line, time),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => false,
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([name, &pid]).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A successful write in the audit log.
#[derive(Debug)]
struct Write {
    user: String,
    resource: String,
    received: String,
    answered: String,
}

fn writes(plane: &ControlPlane) -> Vec<Write> {
    let log = plane.audit_log().unwrap();
    let events = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut writes: Vec<Write> = events
        .filter(|event| {
            let verb = event["verb"].as_str().unwrap_or_default();
            let code = event["responseStatus"]["code"].as_u64().unwrap_or_default();
            let is_ours = event["objectRef"]["name"] == "contest";
            is_ours && matches!(verb, "create" | "update" | "patch") && code < 300
        })
        .map(|event| Write {
            user: text(&event["user"]["username"]),
            resource: text(&event["objectRef"]["resource"]),
            received: text(&event["requestReceivedTimestamp"]),
            answered: text(&event["stageTimestamp"]),
        })
        .collect();
    // Timestamps in UTC with microseconds, all of the same length.
    writes.sort_by(|a, b| a.answered.cmp(&b.answered));
    writes
}

/// Writes that arrived after another process had acquired the lease.
fn stale<'a>(writes: &'a [Write], users: [&str; 2]) -> Vec<&'a Write> {
    let takes: Vec<&Write> = writes.iter().filter(|w| w.resource == "leases").collect();
    let is_stale = |write: &&Write| {
        let last = takes.iter().rfind(|take| take.answered < write.received);
        write.resource == "configmaps"
            && users.contains(&write.user.as_str())
            && last.is_some_and(|last| last.user != write.user)
    };
    writes.iter().filter(is_stale).collect()
}

#[test]
fn of_two_candidates_one_leads_and_a_paused_leader_writes_nothing_more() {
    let plane = ControlPlane::start(&Options::default()).unwrap();
    let users = ["alice", "bob"];
    let contender = |user| Contender::of(&plane, user);
    let first = contender("alice");
    first.wait_for(&["leading"]);
    let second = contender("bob");
    let lease = Duration::from_secs(LEASE);
    assert!(
        !second.prints_within("leading", lease * 2),
        "the lease is renewed, so nobody takes it"
    );
    let mut pair = [first, second];
    for round in 0..rounds() {
        let [leader, other] = &pair;
        // The pause begins at a random point of a write.
        std::thread::sleep(Duration::from_millis(900 + 7 * (round % 20)));
        let paused = Instant::now();
        leader.signal("-STOP");
        let taken = other.wait_for(&["leading"]) - paused;
        println!("round {round}: taken over {taken:?} after the pause began");
        assert!(taken < lease + LONG);
        leader.signal("-CONT");
        leader.wait_for(&["lost", "refused"]);
        pair.swap(0, 1);
    }
    let [leader, other] = &mut pair;
    // The lease is deleted while it is held: no other process may acquire it before the holder's
    // time has passed.
    let deleted = plane.kubectl(&["delete", "lease", "contest"]).unwrap();
    assert!(deleted.status.success());
    assert!(
        !other.prints_within("leading", lease * 2),
        "the holder makes it anew"
    );
    leader.signal("-TERM");
    let asked = Instant::now();
    let taken = other.wait_for(&["leading"]) - asked;
    println!("given back: taken over after {taken:?}");
    assert!(leader.child.wait().unwrap().success());
    let writes = writes(&plane);
    for user in users {
        let of_user = |write: &&Write| write.user == user && write.resource == "configmaps";
        assert!(
            writes.iter().filter(of_user).count() > 10,
            "{user} wrote as a leader"
        );
    }
    let stale = stale(&writes, users);
    assert!(stale.is_empty(), "{stale:#?}");
}

/// The candidate that lost the lease has not read it since when it is deleted, and the holder is
/// paused, so it does not create it again.
#[test]
fn a_lease_deleted_under_its_holder_is_not_created_while_that_one_may_write() {
    let plane = ControlPlane::start(&Options::default()).unwrap();
    let contender = |user| Contender::of(&plane, user);
    let first = contender("alice");
    first.wait_for(&["leading"]);
    let second = contender("bob");
    first.signal("-STOP");
    second.wait_for(&["leading"]);
    first.signal("-CONT");
    first.wait_for(&["lost"]);
    second.signal("-STOP");
    let deleted = plane.kubectl(&["delete", "lease", "contest"]).unwrap();
    assert!(deleted.status.success());
    first.wait_for(&["leading"]);
    let writes = writes(&plane);
    let mut of_lease = writes.iter().filter(|write| write.resource == "leases");
    let last = of_lease.clone().rfind(|write| write.user == "bob").unwrap();
    let created = of_lease.rfind(|write| write.user == "alice").unwrap();
    let time = |text: &str| text.parse::<Timestamp>().unwrap();
    let between = time(&created.received).duration_since(time(&last.received));
    println!("created {between:?} after the last renewal");
    // The previous holder may write until then.
    assert!(between.unsigned_abs() >= Duration::from_secs(LEASE) * 2 / 3);
}

#[test]
fn the_crash_switch_ends_the_process_after_exactly_that_write() {
    let plane = ControlPlane::start(&Options::default()).unwrap();
    let config = plane
        .kubeconfig_of("carol", Some("system:masters"))
        .unwrap();
    for after in [1, 3] {
        let before = writes(&plane).len();
        let mut crasher = Contender::start(&config, "carol", &[&after.to_string()]);
        let status = crasher.child.wait().unwrap();
        assert_eq!(status.code(), Some(137), "as if it was killed");
        let writes = writes(&plane);
        let of_carol = writes[before..]
            .iter()
            .filter(|write| write.user == "carol");
        let count = of_carol
            .filter(|write| write.resource == "configmaps")
            .count();
        assert_eq!(count, after);
    }
}
