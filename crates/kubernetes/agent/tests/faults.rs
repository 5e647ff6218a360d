//! Fault injection: the API server is unreachable, the agent is killed, permissions or workers are
//! missing.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // tests fail by panicking

mod rig;

use std::fs;
use std::time::{Duration, Instant};

use rig::{NODE, Rig, processes_in, threads_of, wait};
use serde_json::json;

#[test]
fn a_settled_agent_writes_one_small_renewal_in_30_s_and_nothing_while_frozen() {
    let rig = Rig::start();
    rig.deploy("fraud", 2, 2, &json!({}));
    let pod = rig.pod("fraud-1", "fraud", &["2", "2", "named"]);
    let agent = rig.agent(&[]);
    rig.wait_for_verified(&pod, 4);
    let time = || rig.status()["lastVerificationTime"].clone();
    wait("it says when it verified", || !time().is_null());
    // From here on, loads change the report at most every ten minutes.
    wait("loads were measured", || {
        rig.status()["pods"][0]["hotThreads"].is_number()
    });
    let before = rig.renewals().len();
    let renewal = |number: usize| {
        wait("a renewal", || rig.renewals().len() > before + number);
        (rig.renewals()[before + number], rig.status())
    };
    let (first, second) = (renewal(0), renewal(1));
    assert_eq!(
        second.0.0,
        first.0.0 + 1,
        "nothing else: {:?}",
        rig.writes()
    );
    let pause = second.0.1 - first.0.1;
    assert!(pause >= 30.0, "renewed after {pause} s");
    assert_ne!(
        second.1["lastVerificationTime"],
        first.1["lastVerificationTime"]
    );
    let bare = |mut status: serde_json::Value| {
        status["lastVerificationTime"].take();
        status
    };
    assert_eq!(bare(second.1), bare(first.1), "all else stays");

    // A stopped agent verifies nothing, so it must not renew the time for longer than a renewal
    // interval.
    rig::signal(agent.pid(), "STOP");
    // Wait until requests in flight have reached the API server.
    std::thread::sleep(Duration::from_secs(2));
    let before = time();
    std::thread::sleep(Duration::from_secs(40));
    assert_eq!(time(), before);
    rig::signal(agent.pid(), "CONT");
    wait("it goes on", || time() != before);

    // On exit it gives its masks back and reports that at once, with the time of the last
    // verification.
    assert!(agent.stop().success());
    assert_eq!(rig.condition("Enforcing"), "False/Stopped");
    assert_eq!(rig.status()["verified"], 0);
    assert!(!time().is_null());
}

#[test]
fn without_an_api_server_the_agent_places_and_writes_nothing_once_settled() {
    let mut rig = Rig::start();
    rig.deploy("fraud", 2, 2, &json!({}));
    let pod = rig.pod("fraud-1", "fraud", &["2", "2", "named"]);
    let mut agent = rig.agent(&[]);
    pod.wait_until_pinned(4);
    rig.wait_for_verified(&pod, 4);
    let births = |rig: &Rig| rig.status()["births"].to_string();
    // Settled: after the pending writes, only the time is renewed.
    std::thread::sleep(Duration::from_secs(10));
    let other_writes = || rig.writes().len() - rig.renewals().len();
    let (writes, cpu) = (other_writes(), agent.cpu_seconds());
    std::thread::sleep(Duration::from_secs(10));
    let cpu = agent.cpu_seconds() - cpu;
    assert_eq!(other_writes(), writes, "{:?}", rig.writes());
    assert!(cpu < 1.0, "{cpu} s of cpu time in 10 s: a busy loop");

    let before = births(&rig);
    rig.plane.stop_api_server();
    // 15 seconds; with ALBACORE_SOAK=12 three minutes.
    let (away, begun, cpu) = (
        Duration::from_secs(15) * soak(),
        Instant::now(),
        agent.cpu_seconds(),
    );
    while begun.elapsed() < away {
        let killed = pod.worker(1);
        pod.kill(killed);
        wait("the worker is replaced without an API server", || {
            pod.has_replaced(killed, 4)
        });
        std::thread::sleep(Duration::from_secs(3));
    }
    let cpu = agent.cpu_seconds() - cpu;
    let share = cpu / begun.elapsed().as_secs_f64();
    println!("{share:.4} of a cpu while the API server was away for {away:?}");
    assert!(share < 0.2, "a busy loop");
    assert!(!agent.has_ended());
    rig.plane.restart_api_server().unwrap();
    wait("the births meanwhile are reported", || {
        births(&rig) != before
    });
    rig.wait_for_verified(&pod, 4);
    assert!(agent.stop().success());
}

#[test]
fn a_restarted_agent_adopts_masks_and_restore_gives_them_back() {
    let rig = Rig::start();
    rig.deploy("fraud", 3, 2, &json!({}));
    rig.deploy("search", 1, 2, &json!({"mode": "Compact"}));
    let fraud = rig.pod("fraud-1", "fraud", &["3", "2", "named"]);
    let search = rig.pod("search-1", "search", &["1", "2", "named"]);
    let agent = rig.agent(&[]);
    fraud.wait_until_pinned(6);
    search.wait_until_pinned(2);
    rig.wait_for_verified(&search, 2);
    // Planned jointly: 8 threads on 2 CPUs are 4 on each.
    let all = |cpu: &str| {
        let threads = fraud.threads().into_iter().chain(search.threads());
        threads.filter(|(_, (_, mask))| mask == cpu).count()
    };
    wait("the loads are balanced", || (all("0"), all("1")) == (4, 4));
    std::thread::sleep(Duration::from_secs(2));
    let before = (fraud.threads(), search.threads());
    agent.kill();
    assert_eq!(
        (fraud.threads(), search.threads()),
        before,
        "nothing is lost with it"
    );

    let agent = rig.agent(&[]);
    rig.wait_for_verified(&fraud, 6);
    rig.wait_for_verified(&search, 2);
    std::thread::sleep(Duration::from_secs(3));
    let after = (fraud.threads(), search.threads());
    assert_eq!(after, before, "a new life adopts what the old one pinned");
    agent.kill();

    // The change to Observe happened while no agent was running: the next agent gives back the
    // masks that the previous one had written.
    let observe = json!({"spec": {"placement": {"enforcement": "Observe"}}});
    rig.patch("infd", "search", &observe);
    let agent = rig.agent(&[]);
    search.wait_until_free("0-1");
    rig.wait_for_event("search-1", "PlacementRestored");
    wait("it is only looked at", || {
        let entry = rig.entry(&search);
        entry["observed"] == true && entry["planned"] == 2
    });
    fraud.wait_until_pinned(6);
    agent.kill();
    // The masks of a pod that was observed before are never written.
    let thread = search.worker(0);
    rig::taskset(thread, "0");
    let agent = rig.agent(&[]);
    rig.wait_for_verified(&fraud, 6);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(search.threads()[&thread].1, "0");
    rig::taskset(thread, "0-1");
    agent.kill();

    // Without an agent, the `restore` command gives everything back.
    let output = rig.run_command(&["restore"]).unwrap();
    assert!(output.contains("6 of "), "{output}");
    fraud.wait_until_free("0-1");
    search.wait_until_free("0-1");
}

#[test]
fn missing_workers_are_reported_and_the_others_are_placed() {
    let rig = Rig::start();
    rig.deploy("fraud", 4, 1, &json!({}));
    let mut pod = rig.pod("fraud-1", "fraud", &["3", "1", "named"]);
    let agent = rig.agent(&[]);
    rig.wait_for_reason(&pod, "found 3 of 4 workers");
    pod.wait_until_pinned(3);
    rig.wait_for_event("fraud-1", "WorkersMissing");
    // The container is restarted with another container ID and another cgroup.
    rig.run_container(&mut pod, &["4", "1", "named"]);
    pod.wait_until_pinned(4);
    rig.wait_for_verified(&pod, 4);
    assert!(agent.stop().success());
}

/// Observe at any level: pinned masks are given back once, and nothing is written afterwards.
#[test]
fn a_change_to_observe_gives_back_once_and_writes_no_mask_until_it_enforces_again() {
    let rig = Rig::start();
    rig.deploy("fraud", 2, 1, &json!({}));
    let pod = rig.pod("fraud-1", "fraud", &["2", "1", "named"]);
    let agent = rig.agent(&[]);
    let by_object = |enforcement: &str| {
        let patch = json!({"spec": {"placement": {"enforcement": enforcement}}});
        rig.patch("infd", "fraud", &patch);
    };
    let by_node = |enforcement: &str| {
        let annotation = match enforcement {
            "Observe" => "albacore.dev/enforcement=Observe",
            _ => "albacore.dev/enforcement-",
        };
        rig.kubectl(&["annotate", "node", NODE, annotation]);
    };
    for ask in [&by_object as &dyn Fn(&str), &by_node] {
        pod.wait_until_pinned(2);
        rig.wait_for_verified(&pod, 2);
        ask("Observe");
        pod.wait_until_free("0-1");
        rig.wait_for_event("fraud-1", "PlacementRestored");
        wait("it goes on planning", || {
            let entry = rig.entry(&pod);
            entry["planned"] == 2 && entry["workers"] == 2 && entry["verified"] == 0
        });
        // A foreign mask remains, and a new worker is not pinned.
        let (first, second) = (pod.worker(0), pod.worker(1));
        rig::taskset(first, "1");
        pod.kill(second);
        wait("another worker", || {
            let threads = pod.threads();
            threads.len() == 2 && !threads.contains_key(&second)
        });
        std::thread::sleep(Duration::from_secs(3));
        for (tid, (_, mask)) in pod.threads() {
            let expected = if tid == first { "1" } else { "0-1" };
            assert_eq!(mask, expected);
        }
        ask("Enforce");
    }
    pod.wait_until_pinned(2);
    assert!(agent.stop().success());
}

#[test]
fn observe_needs_no_capability_and_the_kill_switch_gives_back() {
    let rig = Rig::start();
    rig.deploy("fraud", 2, 1, &json!({}));
    let pod = rig.pod("fraud-1", "fraud", &["2", "1", "named"]);
    // Like the container of the Observe manifest: another user without capabilities, in its own pid
    // namespace, with the node's /proc mounted elsewhere.
    let proc = rig.folder.path().join("proc");
    fs::create_dir(&proc).unwrap();
    let flags = ["--enforcement", "Observe", "--proc", proc.to_str().unwrap()];
    let agent = rig.agent_in_a_pid_namespace(65532, &proc, &flags);
    wait("it is planned", || rig.entry(&pod)["planned"] == 2);
    let observer = agent.child_named("albacore-agent");
    let status = fs::read_to_string(format!("/proc/{observer}/status")).unwrap();
    assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
    let numbers = status.lines().find(|line| line.starts_with("NSpid:"));
    assert_eq!(numbers.unwrap().split_whitespace().count(), 3, "{status}");
    assert_eq!(rig.condition("Enforcing"), "False/Observe");
    assert_eq!(rig.entry(&pod)["workers"], 2);
    assert!(pod.masks().iter().all(|mask| mask == "0-1"));
    // In Observe mode the agent reports a replaced worker and a foreign mask.
    let killed = pod.worker(1);
    pod.kill(killed);
    wait("the worker is replaced", || {
        let threads = pod.threads();
        threads.len() == 2 && !threads.contains_key(&killed)
    });
    wait("it sees both workers", || {
        let entry = rig.entry(&pod);
        entry["workers"] == 2 && entry["reason"].is_null()
    });
    rig::signal(observer, "TERM");
    drop(agent);

    // With enforcement requested but without the capability, it observes and reports the reason.
    let agent = rig.agent_as(Some(65532), &[]);
    wait("it says why", || {
        rig.condition("Enforcing") == "False/NoSysNice"
    });
    assert_eq!(rig.condition("Degraded"), "True/NoSysNice");
    rig.wait_for_event(NODE, "NoSysNice");
    assert!(pod.masks().iter().all(|mask| mask == "0-1"));
    assert!(agent.stop().success());

    let agent = rig.agent(&[]);
    pod.wait_until_pinned(2);
    let annotate = |value: &str| {
        let annotation = format!("albacore.dev/enforcement={value}");
        rig.kubectl(&["annotate", "--overwrite", "node", NODE, &annotation]);
    };
    annotate("None");
    pod.wait_until_free("0-1");
    wait("it says so", || {
        rig.condition("Enforcing") == "False/KillSwitch"
    });
    rig.wait_for_event("fraud-1", "PlacementRestored");
    annotate("off");
    rig.wait_for_event(NODE, "SwitchNotUnderstood");
    assert!(pod.masks().iter().all(|mask| mask == "0-1"));
    rig.kubectl(&["annotate", "node", NODE, "albacore.dev/enforcement-"]);
    pod.wait_until_pinned(2);
    assert!(agent.stop().success());
}

#[test]
fn pods_that_did_not_opt_in_are_never_touched() {
    let rig = Rig::start();
    rig.deploy("fraud", 2, 1, &json!({}));
    rig.deploy_in("kube-system", "fraud", 2, 1, &json!({}));
    rig.kubectl(&["create", "serviceaccount", "default", "-n", "kube-system"]);
    let server = ["2", "1", "named"];
    let label = |name: &str| json!({"albacore.dev/deployment": name});
    let others = [
        rig.pod_with("default", "plain", &json!({"app": "fraud"}), &server),
        rig.pod_with("default", "orphan", &label("nobody"), &server),
        rig.pod_with("kube-system", "system", &label("fraud"), &server),
    ];
    // A cgroup elsewhere with the name of the opted-in pod, another container of that pod, and a
    // process beside it.
    let pod = rig.pod("fraud-1", "fraud", &server);
    let forged = rig
        .cgroup()
        .join("kubepods/burstable/pod0/x/kubepods")
        .join(format!("pod{}", pod.uid));
    let forged = forged.join(pod.cgroup.file_name().unwrap());
    let sidecar = pod.cgroup.with_file_name("f".repeat(64));
    let mut strangers = Vec::new();
    for cgroup in [&forged, &sidecar] {
        rig::make_cgroup(cgroup, std::path::Path::new("/sys/fs/cgroup/cpuset"));
        strangers.push(rig.spawn_in(cgroup, &server));
    }
    let agent = rig.agent(&[]);
    pod.wait_until_pinned(2);
    rig.wait_for_verified(&pod, 2);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(5) {
        let masks = others.iter().flat_map(|pod| pod.masks());
        let beside = [&forged, &sidecar]
            .into_iter()
            .flat_map(|c| processes_in(c));
        let beside = beside.flat_map(threads_of).map(|(_, (_, mask))| mask);
        let own = threads_of(std::process::id() as i32)
            .into_values()
            .map(|(_, mask)| mask);
        for mask in masks.chain(beside).chain(own) {
            assert_eq!(mask, "0-1");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    rig.wait_for_reason(&others[1], "no InferenceDeployment default/nobody");
    rig.wait_for_reason(&others[2], "never placed");
    assert!(rig.entry(&others[0]).is_null());
    assert_nobody_listens(agent.pid());
    for mut stranger in strangers {
        drop(stranger.stdin.take());
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }
    assert!(agent.stop().success());
}

#[test]
fn without_file_descriptors_it_is_degraded_and_recovers() {
    let rig = Rig::start();
    rig.deploy("fraud", 2, 1, &json!({}));
    let pod = rig.pod("fraud-1", "fraud", &["2", "1", "named"]);
    let mut agent = rig.agent(&[]);
    pod.wait_until_pinned(2);
    rig.wait_for_verified(&pod, 2);
    let limit = |files: &str| {
        let pid = agent.pid().to_string();
        let status = std::process::Command::new("prlimit")
            .args(["--pid", &pid, &format!("--nofile={files}")])
            .status();
        assert!(status.unwrap().success());
    };
    limit("4:");
    wait("it says so", || {
        rig.condition("Degraded") == "True/FilesExhausted"
    });
    let cpu = agent.cpu_seconds();
    std::thread::sleep(Duration::from_secs(5));
    let cpu = agent.cpu_seconds() - cpu;
    assert!(cpu < 1.0, "{cpu} s of cpu time in 5 s: a busy loop");
    let killed = pod.worker(1);
    pod.kill(killed);
    std::thread::sleep(Duration::from_secs(1));
    limit("1024:");
    wait("it places again", || pod.has_replaced(killed, 2));
    wait("it is well again", || rig.condition("Degraded").is_empty());
    assert!(!agent.has_ended());
    assert!(agent.stop().success());
}

#[test]
fn a_deleted_report_is_written_again() {
    let rig = Rig::start();
    rig.deploy("fraud", 2, 1, &json!({}));
    let pod = rig.pod("fraud-1", "fraud", &["2", "1", "named"]);
    let agent = rig.agent(&[]);
    rig.wait_for_verified(&pod, 2);
    let uid = || {
        let uid = rig.node_placement()["metadata"]["uid"].clone();
        uid.as_str().unwrap_or_default().to_owned()
    };
    let first = uid();
    for _ in 0..2 {
        let before = uid();
        rig.kubectl(&["delete", "npl", NODE]);
        wait("there is another", || !uid().is_empty() && uid() != before);
        rig.wait_for_verified(&pod, 2);
    }
    assert_ne!(uid(), first);
    assert!(agent.stop().success());
}

/// Factor by which runs are prolonged.
fn soak() -> u32 {
    let text = std::env::var("ALBACORE_SOAK");
    text.ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Asserts that every socket of a process is one end of an established connection.
fn assert_nobody_listens(pid: i32) {
    let fds = fs::read_dir(format!("/proc/{}/fd", pid)).unwrap().flatten();
    let links = fds.filter_map(|fd| fs::read_link(fd.path()).ok());
    let inodes: Vec<String> = links
        .filter_map(|l| {
            Some(
                l.to_str()?
                    .strip_prefix("socket:[")?
                    .strip_suffix(']')?
                    .to_owned(),
            )
        })
        .collect();
    assert!(!inodes.is_empty(), "it talks to the API server");
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        let text = fs::read_to_string(format!("/proc/{}/net/{table}", pid)).unwrap_or_default();
        let listens = text
            .lines()
            .skip(1)
            .map(|l| l.split_whitespace().collect::<Vec<_>>());
        let ours = listens.filter(|l| inodes.iter().any(|inode| inode == l[9]));
        for socket in ours {
            assert_eq!(socket[3], "01", "established, and nothing else: {socket:?}");
        }
    }
}
