//! A trial on a live pod: alternating windows of several placements, a verdict, and its
//! consequences. The test writes the reports in place of `albacore-params`, so that the verdict
//! does not depend on this machine.
#![allow(clippy::unwrap_used, clippy::panic)] // tests fail by panicking

mod rig;

use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use albacore_settings::agent_stream::LatencyReport;
use rig::{Pod, Rig, SetOnDrop, taskset, wait};
use serde_json::json;

/// Cumulative request counts of a server: within 1 ms, and within 4 ms.
struct Figures {
    fast: u64,
    slow: u64,
}

impl Figures {
    /// Adds the requests answered since the last report and encodes a report.
    fn report(&mut self, pod: &Pod, is_fast: bool) -> String {
        // The side that should win answers 20 times as many requests, so it also wins in CPU time
        // per request.
        match is_fast {
            true => self.fast += 10_000,
            false => self.slow += 500,
        }
        let report = LatencyReport {
            uid: pod.uid.clone(),
            bounds_us: vec![1000, 4000],
            counts: vec![self.fast, self.slow, 0],
        };
        report.encode().unwrap()
    }
}

/// Writes reports of `pod`, with low latency while `is_fast` returns true, until `stop` is set.
fn report(path: &Path, pod: &Pod, is_fast: impl Fn(&Pod) -> bool, stop: &AtomicBool) {
    let mut pipe = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let mut figures = Figures { fast: 0, slow: 0 };
    while !stop.load(Ordering::Relaxed) {
        let line = figures.report(pod, is_fast(pod));
        pipe.write_all(line.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Creates a pod on trial, and an agent that reads reports from the returned pipe.
fn try_plan(rig: &Rig) -> (Pod, rig::Agent, PathBuf) {
    let arms = ["Scatter", "None"];
    let trial = json!({"placement": {"trial": {"window": "1s", "windows": 8, "arms": arms}}});
    rig.deploy("fraud", 2, 1, &trial);
    try_pod(rig, "1")
}

/// Creates a pod of a deployment with two workers of this many threads, and such an agent.
fn try_pod(rig: &Rig, threads: &str) -> (Pod, rig::Agent, PathBuf) {
    let pod = rig.pod("fraud-1", "fraud", &["2", threads, "named"]);
    let path = rig.folder.path().join("reports");
    let agent = rig.agent(&["--reports", path.to_str().unwrap()]);
    wait("the pipe is there", || path.exists());
    (pod, agent, path)
}

fn reason(rig: &Rig, pod: &Pod) -> String {
    let entry = rig.entry(pod);
    entry["reason"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_plan_is_tried_on_the_live_pod_and_judged() {
    let rig = Rig::start();
    let (pod, agent, path) = try_plan(&rig);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| report(&path, &pod, |pod| !pod.is_pinned(2), &stop));
        let _stop = SetOnDrop(&stop);
        let (mut with, mut without) = (false, false);
        wait("it is withdrawn", || {
            with |= pod.is_pinned(2);
            without |= with && pod.masks().iter().all(|mask| mask == "0-1");
            reason(&rig, &pod).contains("the trial shows no gain")
        });
        assert!(
            with && without,
            "windows with ({with}) and without ({without})"
        );
    });
    let verdict = reason(&rig, &pod);
    // 1 ms without the plan, up to 4 ms with the plan.
    assert!(
        verdict.contains("p99 relative to None: Scatter 4."),
        "{verdict}"
    );
    // The verdict persists, and every mask was given back.
    rig.wait_for_event("fraud-1", "PlacementWithdrawn");
    pod.wait_until_free("0-1");
    // Without a trial in the spec, the plan is in force.
    let patch = json!({"spec": {"placement": {"trial": null}}});
    rig.patch("infd", "fraud", &patch);
    pod.wait_until_pinned(2);
    assert!(agent.stop().success());
}

#[test]
fn a_plan_that_helps_stays_in_force() {
    let rig = Rig::start();
    let (pod, agent, path) = try_plan(&rig);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| report(&path, &pod, |pod| pod.is_pinned(2), &stop));
        let _stop = SetOnDrop(&stop);
        wait("it is kept", || {
            agent.log().contains("trial: Scatter stays")
        });
    });
    rig.wait_for_verified(&pod, 2);
    assert!(pod.is_pinned(2));
    rig.wait_for_event("fraud-1", "TrialDecided");
    wait("the verdict is reported", || {
        let text = rig.entry(&pod)["trial"].to_string();
        text.contains("trial: Scatter stays; p99 relative to Scatter: None 4.")
    });
    assert!(
        !rig.events("fraud-1")
            .contains(&"PlacementWithdrawn".to_owned())
    );
    assert!(agent.stop().success());
}

/// On two CPUs, only RoundRobin places the main threads of both workers on the same CPU.
fn is_round_robin(pod: &Pod) -> bool {
    let threads = pod.threads();
    let mask = |main: &str| {
        let thread = threads.values().find(|(name, _)| name == main);
        thread.map(|(_, mask)| mask.as_str())
    };
    mask("albw0.0") == Some("0") && mask("albw1.0") == Some("0")
}

#[test]
fn the_best_of_several_placements_stays() {
    let rig = Rig::start();
    let trial = json!({"placement": {"trial": {"window": "1s"}}});
    rig.deploy("fraud", 2, 2, &trial);
    let (pod, agent, path) = try_pod(&rig, "2");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| report(&path, &pod, is_round_robin, &stop));
        let _stop = SetOnDrop(&stop);
        rig.wait_for_event("fraud-1", "TrialDecided");
    });
    wait("the winner places the pod", || is_round_robin(&pod));
    rig.wait_for_verified(&pod, 4);
    let verdict = rig.entry(&pod)["trial"].to_string();
    let head = "trial: RoundRobin instead of Scatter; p99 relative to RoundRobin: Scatter 4.";
    assert!(verdict.contains(head), "{verdict}");
    let log = agent.log();
    assert!(log.contains("Compact places as Scatter"), "{log}");
    assert!(agent.stop().success());
}

/// A shell with two children that compute: a pre-fork server without latency reports.
const OWN_SERVER: &str = "for i in 1 2; do (while :; do :; done) & done; wait";

#[test]
fn a_trial_of_a_custom_server_uses_the_wait_time_of_its_threads() {
    let rig = Rig::start();
    let template = json!({"spec": {"containers": [
        {"name": "server", "image": "x", "command": ["sh", "-c", OWN_SERVER]}]}});
    let arms = ["Scatter", "None"];
    let trial = json!({"trial": {"window": "1s", "arms": arms}});
    let own = json!({"models": [], "template": template, "placement": trial});
    rig.deploy("own", 2, 1, &own);
    let mut pod = rig.pod("own-1", "own", &["2", "1", "named"]);
    rig.run_program(
        &mut pod,
        Path::new("/bin/sh"),
        &["-c", OWN_SERVER],
        "10.1.0.7",
    );
    let agent = rig.agent(&[]);
    let (mut with, mut without) = (false, false);
    wait("the verdict", || {
        let pinned = pod.masks().iter().filter(|mask| *mask != "0-1").count();
        with |= pinned == 2;
        without |= with && pinned == 0;
        agent.log().contains("a trial ended")
    });
    assert!(
        with && without,
        "windows with ({with}) and without ({without})"
    );
    // Which of the two it is depends on the load of this machine.
    let log = agent.log();
    let figure = "time waited for a cpu (no latency) relative to ";
    assert!(log.contains(figure), "{log}");
    let events = || rig.events("own-1");
    let is_verdict = |event: &String| event == "TrialDecided" || event == "PlacementWithdrawn";
    wait("its event", || events().iter().any(is_verdict));
    assert!(!events().contains(&"TrialWithoutFigures".to_owned()));
    assert!(agent.stop().success());
}

/// The pod's address is that of this machine, where a server sends a byte every half millisecond: a
/// client that reads to the end never returns.
#[test]
fn a_pod_on_trial_is_not_connected_to_and_its_reports_delay_nothing() {
    const ADDRESS: &str = "127.61.7.1";
    let listener = TcpListener::bind((ADDRESS, 8080)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let rig = Rig::start();
    let trial = json!({"placement": {"trial": {"window": "1s", "windows": 8}}});
    rig.deploy("fraud", 2, 1, &trial);
    let mut pod = rig.pod("fraud-1", "fraud", &["2", "1", "named"]);
    let toy = albacore_testbed::product_of("albacore-placer", "prefork_server").unwrap();
    rig.run_program(&mut pod, &toy, &["2", "1", "named"], ADDRESS);
    rig.deploy("other", 2, 1, &json!({}));
    let other = rig.pod("other-1", "other", &["2", "1", "named"]);
    let path = rig.folder.path().join("reports");
    let agent = rig.agent(&["--reports", path.to_str().unwrap()]);
    other.wait_until_pinned(2);
    wait("the trial runs", || reason(&rig, &pod).contains("trial: "));

    // A compromised albacore-params writes as much as the pipe accepts: incomplete lines, long
    // lines, and reports of this pod.
    let stop = AtomicBool::new(false);
    let mut accepted = 0;
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let mut pipe = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            let report = |count: u64| LatencyReport {
                uid: pod.uid.clone(),
                bounds_us: vec![u64::MAX - 1],
                counts: vec![count, u64::MAX],
            };
            let mut written = 0;
            while !stop.load(Ordering::Relaxed) {
                let mut bytes = vec![b'x'; 5000];
                bytes.extend(b"\n\xff{}\n[[[[\n");
                bytes.extend(report(written).encode().unwrap().into_bytes());
                pipe.write_all(&bytes).unwrap();
                written += bytes.len() as u64;
            }
            written
        });
        let _stop = SetOnDrop(&stop);
        // Meanwhile the loop works: drift of another pod is repaired and reported, and the
        // heartbeat is renewed.
        for _ in 0..3 {
            let beat = heartbeat(&agent.heartbeat);
            let thread = *other.threads().keys().next().unwrap();
            let drifts = |rig: &Rig| rig.entry(&other)["drift"]["count"].as_i64().unwrap_or(0);
            let before = drifts(&rig);
            taskset(thread, "0-1");
            other.wait_until_pinned(2);
            wait("the drift is reported", || drifts(&rig) > before);
            wait("the heart beats", || heartbeat(&agent.heartbeat) > beat);
            while let Ok((mut stream, _)) = listener.accept() {
                accepted += 1;
                std::thread::spawn(move || {
                    while stream.write_all(b"x").is_ok() {
                        std::thread::sleep(Duration::from_micros(500));
                    }
                });
            }
        }
        stop.store(true, Ordering::Relaxed);
        wait("the flood ends", || flood.is_finished());
        let written = flood.join().unwrap();
        println!("{written} bytes were written into the pipe");
    });
    assert_eq!(accepted, 0, "the agent connects to pods");
    assert!(agent.stop().success());
}

fn heartbeat(path: &Path) -> SystemTime {
    std::fs::metadata(path).unwrap().modified().unwrap()
}

#[test]
fn a_trial_without_latency_reports_keeps_the_plan_and_reports_it() {
    let rig = Rig::start();
    let (pod, agent, _path) = try_plan(&rig);
    pod.wait_until_pinned(2);
    let start = Instant::now();
    rig.wait_for_event("fraud-1", "TrialWithoutFigures");
    rig.wait_for_reason(&pod, "no latency is reported, so Scatter stays");
    println!("said after {:?}", start.elapsed());
    assert!(pod.is_pinned(2));
    assert!(
        !rig.events("fraud-1")
            .contains(&"PlacementWithdrawn".to_owned())
    );
    assert!(agent.stop().success());
}
