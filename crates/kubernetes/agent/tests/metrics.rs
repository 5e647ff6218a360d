//! Cost and speed of the agent with a real API server, real cgroups and real processes.
//! Measurements are printed; only values that do not depend on the load of the machine are
//! asserted. `ALBACORE_SOAK=10` runs 50 pods and 5,000 threads; use `--release` for measurements.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // tests fail by panicking

mod rig;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};

use albacore_settings::agent_stream::NodeSnapshot;
use rig::{Pod, Rig, wait};
use serde_json::json;

/// Factor by which runs are prolonged.
fn soak() -> usize {
    let text = std::env::var("ALBACORE_SOAK");
    text.ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// A counter of the agent, from its newest snapshot for albacore-params.
fn counter(feed: &Path, name: &str) -> u64 {
    let lines = BufReader::new(fs::File::open(feed).unwrap()).split(b'\n');
    let name = format!("albacore_agent_{name}_total ");
    for line in lines.map(Result::unwrap).filter(|line| !line.is_empty()) {
        let text = NodeSnapshot::decode(&line).unwrap().snapshot.metrics;
        let value = text.lines().find_map(|line| line.strip_prefix(&name));
        if let Some(value) = value {
            return value.parse().unwrap();
        }
    }
    panic!("the feed ended");
}

fn resident_kib(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

/// Writes of the agent so far, without those that only renew the time of the last verification.
fn changes(rig: &Rig) -> usize {
    // bound: the agent writes once every few seconds, and both reads take less.
    loop {
        let (writes, renewals) = (rig.writes().len(), rig.renewals().len());
        if rig.writes().len() == writes {
            return writes - renewals;
        }
    }
}

/// Waits until the agent has written no change for longer than it delays changed counters. On a
/// busy machine, counters may change some time after all threads are verified.
fn wait_until_quiet(rig: &Rig) {
    let begun = Instant::now();
    let (mut seen, mut since) = (changes(rig), begun);
    while since.elapsed() < Duration::from_secs(40) {
        let is_late = begun.elapsed() > Duration::from_secs(240);
        assert!(!is_late, "the agent goes on to write: {:?}", rig.writes());
        std::thread::sleep(Duration::from_secs(1));
        let now = changes(rig);
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
}

#[test]
fn a_settled_agent_costs_little_and_only_renews_its_report() {
    let rig = Rig::start();
    let (workers, threads) = (4, 25);
    let pods = if soak() > 1 { (5 * soak()).min(50) } else { 2 };
    rig.deploy("fraud", workers, threads, &json!({}));
    let all = usize::from(workers) * usize::from(threads);
    let server = [workers.to_string(), threads.to_string(), "named".to_owned()];
    let server = [&*server[0], &*server[1], &*server[2]];
    let pods: Vec<Pod> = (0..pods)
        .map(|number| rig.pod(&format!("fraud-{number}"), "fraud", &server))
        .collect();
    let feed = rig.folder.path().join("feed");
    let agent = rig.agent(&["--feed", feed.to_str().unwrap()]);
    let start = Instant::now();
    wait("all are verified", || {
        rig.status()["verified"] == pods.len() * all
    });
    let placed_in = start.elapsed();
    let time = Duration::from_secs(if soak() > 1 { 60 } else { 10 });
    wait_until_quiet(&rig);
    let before = (changes(&rig), rig.renewals().len(), counter(&feed, "pins"));
    let cpu = agent.cpu_seconds();
    let begun = Instant::now();
    std::thread::sleep(time);
    let share = (agent.cpu_seconds() - cpu) / begun.elapsed().as_secs_f64();
    let changes = changes(&rig) - before.0;
    let renewals = rig.renewals().len() - before.1;
    let pins = counter(&feed, "pins") - before.2;
    let resident = resident_kib(agent.pid());
    println!(
        "{} threads of {} pods, placed in {placed_in:?}; settled for {time:?}: {:.2} % of a core, {} MiB, \
         {pins} pins, {changes} changes and {renewals} renewals written",
        pods.len() * all,
        pods.len(),
        share * 100.0,
        resident >> 10
    );
    assert_eq!((pins, changes), (0, 0));
    assert!(renewals as u64 <= 1 + time.as_secs() / 30, "{renewals}");
    assert!(resident >> 10 <= 64, "{resident} KiB");
    assert!(agent.stop().success());
    assert!(
        pods.iter()
            .all(|pod| pod.masks().iter().all(|m| m == "0-1"))
    );
}

#[test]
fn an_unexpected_thread_is_placed_by_events_and_by_polling() {
    let rig = Rig::start();
    let births = 20 * soak().min(5);
    // Each worker has its own slot, so that its pin is visible.
    let threads = 2 + births / 2;
    rig.deploy("fraud", 2, threads as u16, &json!({}));
    for events in ["connector", "polling"] {
        let mut pod = rig.pod(&format!("fraud-{events}"), "fraud", &["2", "2", "named"]);
        let agent = rig.agent(&["--events", events]);
        pod.wait_until_pinned(4);
        // A thread that starts together with its process is not counted as unexpected.
        std::thread::sleep(Duration::from_secs(2));
        for birth in 0..births {
            pod.send_command(&format!("thread {}", birth % 2));
            pod.wait_until_pinned(5 + birth);
        }
        let reported = |rig: &Rig| -> i64 {
            let buckets = rig.status()["births"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let counts = buckets
                .iter()
                .map(|bucket| bucket["threads"].as_i64().unwrap());
            counts.sum()
        };
        // Changes of only counters are delayed by half a minute. Threads that start with the right
        // mask are not counted.
        wait("births are reported", || reported(&rig) > 0);
        println!("{births} births, {events}: {}", rig.status()["births"]);
        assert!(agent.stop().success());
        rig.kubectl(&["delete", "pod", &pod.name, "--force", "--grace-period=0"]);
    }
}
