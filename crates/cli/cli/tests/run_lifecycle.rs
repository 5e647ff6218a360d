//! Lifecycle of `albacore run`: edits, foreign masks, cpusets, signals, a terminal. Masks are read
//! from the kernel by code that is independent of the placer.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

mod deployment;
mod running;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use albacore_os::{Cgroup, CgroupVersion, HostRoot, Pid, find_cgroup};
use deployment::Folder;
use running::{ANY_PORTS, DEADLINE, Running, Threads, kill, mask, tids};

fn json_args() -> Vec<&'static str> {
    [&["--output", "json"], &ANY_PORTS[..]].concat()
}

/// The CPUs of this test, which are the whole cpuset of its child processes.
fn full_mask() -> String {
    mask(u64::from(std::process::id())).unwrap()
}

fn placement(folder: &Folder, fields: &str) -> PathBuf {
    folder.fraud(&format!("  placement: {{{fields}}}\n"))
}

/// Reads the masks of all threads of a process, except its placed event loops, repeatedly until it
/// is stopped; returns the masks seen.
struct Watcher {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<BTreeSet<String>>,
}

impl Watcher {
    fn of(pid: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut seen = BTreeSet::new();
            while !is_over.load(Ordering::Relaxed) {
                let threads = tids(pid).into_iter().filter(|&tid| !is_event_loop(tid));
                seen.extend(threads.filter_map(mask));
                std::thread::sleep(Duration::from_millis(2));
            }
            seen
        });
        Self { stop, thread }
    }

    fn into_masks(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap().into_iter().collect()
    }
}

fn is_event_loop(tid: u64) -> bool {
    let name = fs::read_to_string(format!("/proc/{tid}/comm"));
    name.is_ok_and(|name| name.starts_with("albf.io"))
}

/// Ends the run like a user, and checks the conditions that hold at every exit.
fn stop_and_check(mut run: Running, signal: &str) -> Running {
    run.signal(signal);
    assert_eq!(run.end().code(), Some(0), "{:#?}", run.events);
    assert!(run.processes().is_empty(), "{:?}", run.processes());
    let restored = run.events_named("restored").next().unwrap();
    assert_eq!(restored["errors_total"], 0, "{restored}");
    assert!(run.events_named("summary").next().is_some());
    run
}

#[test]
fn an_edit_of_the_placement_moves_masks_and_no_process() {
    let folder = Folder::new("edits");
    let mut run = Running::start(&placement(&folder, "policy: None"), &json_args());
    let none = run.placed("none");
    none.assert_kernel_agrees();
    assert!(
        none.0.values().all(|(_, mask)| *mask == full_mask()),
        "{none:?}"
    );
    let front = Watcher::of(run.process("front first"));
    placement(&folder, "policy: Tuna");
    let tuna = run.placed("tuna");
    tuna.assert_kernel_agrees();
    assert!(tuna.0.values().all(|(_, mask)| mask.parse::<u32>().is_ok()));
    placement(&folder, "policy: RoundRobin");
    let round_robin = run.placed("roundrobin");
    round_robin.assert_kernel_agrees();
    placement(&folder, "policy: None");
    let last = run.placed("none");
    last.assert_kernel_agrees();
    assert!(
        last.0.values().all(|(_, mask)| *mask == full_mask()),
        "{last:?}"
    );
    for now in [&tuna, &round_robin, &last] {
        assert_eq!(now.tids(), none.tids(), "the same threads");
    }
    assert_eq!(run.events_named("worker_born").count(), 2);
    assert_eq!(run.events_named("policy_changed").count(), 3);
    assert_eq!(
        front.into_masks(),
        [full_mask()],
        "the rest of the front keeps the whole cpuset"
    );
    stop_and_check(run, "TERM");
}

#[test]
fn an_edit_that_is_wrong_or_needs_a_restart_is_reported_and_changes_nothing() {
    let folder = Folder::new("wrong-edits");
    let mut run = Running::start(&folder.fraud(""), &json_args());
    let before = run.placed("tuna");
    let note = |run: &mut Running, words: &str| {
        let is_it = |e: &serde_json::Value| {
            e["event"] == "note" && e["text"].as_str().unwrap().contains(words)
        };
        run.until(words, is_it)
    };
    placement(&folder, "policy: Tunna");
    let text = note(&mut run, "was not applied")["text"].to_string();
    assert!(
        text.contains("spec.placement.policy") && text.contains("Tunna"),
        "{text}"
    );
    let text = deployment::fraud_text();
    folder.write(&text.replace("workers: 2", "workers: 3"));
    note(&mut run, "started again");
    folder.fraud("  replicas: 3\n");
    note(&mut run, "spec.replicas is 3");
    run.listen_for(Duration::from_millis(500));
    before.assert_kernel_agrees();
    assert_eq!(run.events_named("placed").count(), 1);
    assert_eq!(run.events_named("worker_born").count(), 2);
    stop_and_check(run, "TERM");
}

#[test]
fn observe_mode_plans_and_reports_and_writes_nothing() {
    let folder = Folder::new("observe");
    let file = placement(&folder, "enforcement: Observe");
    let mut run = Running::start(&file, &json_args());
    run.until("planned", |e| e["event"] == "planned");
    let mut drifted = BTreeSet::new();
    while drifted.len() < 4 {
        let drift = run.until("drift", |e| e["event"] == "drift" && !e["rank"].is_null());
        assert_eq!(drift["actual"], full_mask());
        drifted.insert(drift["tid"].as_u64().unwrap());
    }
    run.listen_for(Duration::from_secs(1));
    for tid in drifted {
        assert_eq!(mask(tid), Some(full_mask()));
    }
    let run = stop_and_check(run, "TERM");
    assert_eq!(run.events_named("pinned").count(), 0);
    assert_eq!(
        run.events_named("summary").next().unwrap()["setaffinity_calls"],
        0
    );
}

#[test]
fn an_edit_to_observe_gives_masks_back_once_and_writes_nothing_more() {
    let folder = Folder::new("released");
    let mut run = Running::start(&placement(&folder, "policy: Tuna"), &json_args());
    let pinned = run.placed("tuna");
    placement(&folder, "enforcement: Observe");
    let restored = run.until("restored", |e| e["event"] == "restored");
    assert_eq!(
        (&restored["threads"], &restored["errors_total"]),
        (&4.into(), &0.into())
    );
    run.listen_for(Duration::from_secs(1));
    for tid in pinned.tids() {
        assert_eq!(mask(tid), Some(full_mask()));
    }
    assert_eq!(run.events_named("restored").count(), 1);
    placement(&folder, "policy: Tuna");
    run.placed("tuna").assert_kernel_agrees();
    stop_and_check(run, "TERM");
}

#[test]
fn a_main_thread_may_have_the_cpus_of_its_worker() {
    let folder = Folder::new("mains");
    let mut run = Running::start(&folder.fraud(""), &json_args());
    let pinned = run.placed("tuna");
    placement(&folder, "mainThread: WorkerSet");
    let sets = run.placed("tuna");
    sets.assert_kernel_agrees();
    for worker in 0..2 {
        let mut cpus: Vec<u16> = [pinned.planned(worker, 0), pinned.planned(worker, 1)]
            .map(|cpu| cpu.parse().unwrap())
            .into();
        cpus.sort_unstable();
        cpus.dedup();
        let set: albacore_topology::CpuSet =
            cpus.into_iter().map(albacore_topology::CpuId).collect();
        assert_eq!(
            sets.planned(worker, 0),
            set.to_string(),
            "{pinned:?} {sets:?}"
        );
        assert_eq!(sets.planned(worker, 1), pinned.planned(worker, 1));
    }
    stop_and_check(run, "TERM");
}

#[test]
fn a_mask_that_taskset_wrote_is_repaired_and_reported() {
    let folder = Folder::new("taskset");
    let mut run = Running::start(&folder.fraud(""), &json_args());
    let placed = run.placed("tuna");
    let (tid, planned) = placed.0[&(1, 1)].clone();
    let other = if planned == "0" { "1" } else { "0" };
    let status = Command::new("taskset")
        .args(["-pc", other, &tid.to_string()])
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success());
    let drift = run.until("drift", |e| e["event"] == "drift" && e["tid"] == tid);
    assert_eq!(drift["cause"], "foreign", "{drift}");
    assert_eq!(
        (&drift["planned"], &drift["actual"]),
        (&planned.into(), &other.into())
    );
    assert_eq!(run.placed("tuna"), placed);
    placed.assert_kernel_agrees();
    stop_and_check(run, "TERM");
}

#[test]
fn a_thread_that_pins_itself_is_left_alone() {
    let folder = Folder::new("self-pin");
    let file = folder.custom_server(&["python3", &prefork()], &[("SELF_PIN", "1")]);
    let mut run = Running::start(&file, &["--output", "json"]);
    let mut alone = BTreeSet::new();
    while alone.len() < 2 {
        let event = run.until("self_pinned", |e| e["event"] == "self_pinned");
        assert_eq!(event["rank"], 1, "{event}");
        assert_eq!(
            (&event["changes"], &event["retry_seconds"]),
            (&4.into(), &60.into())
        );
        alone.insert(event["tid"].as_u64().unwrap());
    }
    run.listen_for(Duration::from_millis(500));
    let homes: Vec<_> = alone.iter().map(|tid| mask(*tid).unwrap()).collect();
    let pinned_before = run.events_named("pinned").count();
    run.listen_for(Duration::from_secs(1));
    assert_eq!(
        run.events_named("pinned").count(),
        pinned_before,
        "nobody pins any more"
    );
    for (tid, home) in alone.iter().zip(&homes) {
        assert_eq!(mask(*tid).as_ref(), Some(home), "its own choice stays");
    }
    let drifts = run.events_named("drift").filter(|e| e["rank"] == 1);
    let causes: BTreeSet<_> = drifts.map(|e| e["cause"].as_str().unwrap()).collect();
    assert!(
        causes.contains("foreign") && !causes.contains("self_pin"),
        "{causes:?}"
    );
    run.signal("TERM");
    assert_eq!(run.end().code(), Some(0), "{:#?}", run.events);
    assert!(run.processes().is_empty());
}

fn prefork() -> String {
    let path = deployment::root().join("tests/servers/prefork.py");
    path.display().to_string()
}

#[test]
fn masks_are_the_whole_cpuset_before_the_processes_end() {
    let folder = Folder::new("restored");
    for signal in ["INT", "TERM"] {
        let file = folder.custom_server(&["python3", &prefork()], &[("LINGER", "5")]);
        let mut run = Running::start(&file, &["--output", "json"]);
        let placed = run.placed("tuna");
        // Either event may be first.
        run.until_reported("its line", |e| e["text"] == "serving nothing");
        placed.assert_kernel_agrees();
        run.signal(signal);
        let restored = run.until("restored", |e| e["event"] == "restored");
        assert_eq!(restored["threads"], 4, "{restored}");
        for tid in placed.tids() {
            assert_eq!(mask(tid), Some(full_mask()), "{signal}");
        }
        assert_eq!(run.end().code(), Some(0), "{:#?}", run.events);
        assert!(run.processes().is_empty(), "{:?}", run.processes());
    }
}

#[test]
fn the_built_in_server_drains_after_masks_were_given_back() {
    let folder = Folder::new("drains");
    for signal in ["INT", "TERM"] {
        let mut run = Running::start(&folder.fraud(""), &json_args());
        run.placed("tuna");
        let run = stop_and_check(run, signal);
        let at = |name: &str| run.events.iter().position(|e| e["event"] == name).unwrap();
        assert!(at("restored") < at("draining") && at("draining") < at("stopped"));
    }
}

/// Waits until no process of the run is left.
fn until_empty(run: &Running) {
    let deadline = Instant::now() + DEADLINE;
    while !run.processes().is_empty() {
        assert!(Instant::now() < deadline, "left: {:?}", run.processes());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn nothing_outlives_a_run_that_is_killed() {
    let folder = Folder::new("killed");
    let own = |folder: &Folder| folder.custom_server(&["python3", &prefork()], &[]);
    for is_built_in in [true, false] {
        let (file, args) = match is_built_in {
            true => (folder.fraud(""), json_args()),
            false => (own(&folder), vec!["--output", "json"]),
        };
        let mut run = Running::start(&file, &args);
        run.placed("tuna");
        if !is_built_in {
            // From then on it ends its workers, which may be placed earlier.
            run.until_reported("its line", |e| e["text"] == "serving nothing");
        }
        // The run, the server and its workers; with the built-in server also albacore-params, its
        // front and, soon, a standby.
        let counts = match is_built_in {
            true => 6..=7,
            false => 4..=4,
        };
        let count = run.processes().len();
        assert!(counts.contains(&count), "{:?}", run.processes());
        run.signal("KILL");
        run.end();
        until_empty(&run);
    }
}

#[test]
fn workers_of_a_master_that_was_killed_are_ended() {
    let folder = Folder::new("masterless");
    let file = folder.custom_server(&["python3", &prefork()], &[]);
    let mut run = Running::start(&file, &["--output", "json"]);
    let workers = run.placed("tuna").tids();
    let is_master = |pid: &u32| *pid != run.pid() && !workers.contains(&u64::from(*pid));
    let master = run.processes().into_keys().find(is_master).unwrap();
    kill(master, "KILL");
    run.until("another master", |e| e["event"] == "server_restarted");
    assert!(workers.iter().all(|tid| mask(*tid).is_none()));
    run.placed("tuna").assert_kernel_agrees();
    stop_and_check(run, "TERM");
}

#[test]
fn a_server_that_ignores_sigterm_is_killed_at_the_second_signal() {
    let folder = Folder::new("stubborn");
    let file = folder.custom_server(&["python3", &prefork()], &[("STUBBORN", "1")]);
    let mut run = Running::start(&file, &["--output", "json"]);
    run.placed("tuna");
    run.signal("TERM");
    run.until("restored", |e| e["event"] == "restored");
    run.signal("INT");
    assert_eq!(run.end().code(), Some(1), "{:#?}", run.events);
    assert!(run.processes().is_empty(), "{:?}", run.processes());
}

#[test]
fn a_run_may_be_ended_before_its_server_has_workers() {
    let folder = Folder::new("early");
    let file = folder.custom_server(&["sleep", "1000"], &[]);
    let mut run = Running::start(&file, &["--output", "json"]);
    run.until("planned", |e| e["event"] == "planned");
    stop_and_check(run, "TERM");
}

/// A cgroup with a cpuset, below the root, which is removed on drop.
struct Group {
    directory: PathBuf,
    own: Cgroup,
}

impl Group {
    fn new(cpus: &str) -> Self {
        let own = find_cgroup(&HostRoot::live(), Pid(std::process::id() as i32)).unwrap();
        if own.version == CgroupVersion::V2 {
            fs::write(own.mount.join("cgroup.subtree_control"), "+cpuset").unwrap();
        }
        let name = format!("albacore-run-{}", std::process::id());
        let directory = own.mount.join(name);
        fs::create_dir(&directory).unwrap();
        let group = Self { directory, own };
        if group.own.version == CgroupVersion::V1 {
            let mems = fs::read(group.own.mount.join("cpuset.effective_mems")).unwrap();
            fs::write(group.directory.join("cpuset.mems"), mems).unwrap();
        }
        group.set(cpus);
        group
    }

    fn set(&self, cpus: &str) {
        fs::write(self.directory.join("cpuset.cpus"), cpus).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..200 {
            let left = fs::read_to_string(self.directory.join("cgroup.procs")).unwrap_or_default();
            for pid in left.lines() {
                drop(fs::write(self.own.mount.join("cgroup.procs"), pid));
            }
            if fs::remove_dir(&self.directory).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_cpuset_that_shrinks_and_grows_is_followed() {
    let folder = Folder::new("cpuset");
    let both = full_mask();
    let ids: albacore_topology::CpuSet = both.parse().unwrap();
    let low = ids.first().unwrap().0.to_string();
    let group = Group::new(&both);
    let procs = group.directory.join("cgroup.procs");
    let enter = format!("echo $$ > {}; exec \"$@\"", procs.display());
    let file = folder.fraud("");
    let mut run = Running::start_by(&["sh", "-c", &enter, "enter"], &file, &json_args());
    let wide = run.placed("tuna");
    wide.assert_kernel_agrees();
    for _ in 0..3 {
        group.set(&low);
        let narrow = until_placed(&mut run, |t| t.0.values().all(|(_, mask)| *mask == low));
        narrow.assert_kernel_agrees();
        let all = run.processes().into_keys().flat_map(tids).filter_map(mask);
        assert!(all.into_iter().all(|mask| mask == low));
        group.set(&both);
        until_placed(&mut run, |threads| *threads == wide).assert_kernel_agrees();
        let front = tids(run.process("front first"))
            .into_iter()
            .filter_map(mask);
        assert!(front.into_iter().all(|mask| mask == both));
    }
    assert!(run.events_named("cpuset_changed").count() >= 6);
    let blamed = |e: &&serde_json::Value| e["cause"] == "foreign";
    assert_eq!(
        run.events_named("drift").find(blamed),
        None,
        "nobody is blamed"
    );
    let run = stop_and_check(run, "TERM");
    drop(run);
    drop(group);
}

/// Asserts that all threads of all processes of a run have this mask.
fn assert_confined(threads: &Threads, run: &Running, cpu: &str) {
    threads.assert_kernel_agrees();
    let all = run.processes().into_keys().flat_map(tids);
    let masks: BTreeSet<String> = all.filter_map(mask).collect();
    assert_eq!(masks, BTreeSet::from([cpu.to_owned()]), "{threads:?}");
}

#[test]
fn a_run_stays_on_the_cpus_of_its_option_or_mask_whatever_happens() {
    let folder = Folder::new("cpus");
    let last = full_mask().parse::<albacore_topology::CpuSet>().unwrap();
    let last = last.iter().last().unwrap().to_string();
    let by_mask = ["taskset", "-c", &last];
    let by_option = ["--cpus", &last];
    for (launcher, more) in [(&by_mask[..], &[][..]), (&[], &by_option)] {
        let args = [&json_args()[..], more].concat();
        let file = placement(&folder, "policy: None");
        let mut run = Running::start_by(launcher, &file, &args);
        assert_confined(&run.placed("none"), &run, &last);
        placement(&folder, "policy: Tuna");
        let placed = run.placed("tuna");
        run.until_reported("the server is ready", |e| e["event"] == "ready");
        assert_confined(&placed, &run, &last);
        let front = &run.processes()[&run.process("front first")];
        assert!(front.contains("--cpus-max 1"), "{front}");
        let born = run.events_named("worker_born").last().unwrap();
        kill(born["pid"].as_u64().unwrap() as u32, "KILL");
        run.until("another worker", |e| e["event"] == "worker_born");
        assert_confined(&run.placed("tuna"), &run, &last);
        kill(run.process("albacore-server --workers"), "KILL");
        run.until("another server", |e| e["event"] == "server_restarted");
        assert_confined(&run.placed("tuna"), &run, &last);
        stop_and_check(run, "TERM");
        let own = folder.custom_server(&["python3", &prefork()], &[("LINGER", "5")]);
        let args = [&["--output", "json"], more].concat();
        let mut run = Running::start_by(launcher, &own, &args);
        let placed = run.placed("tuna");
        assert_confined(&placed, &run, &last);
        run.signal("TERM");
        run.until("restored", |e| e["event"] == "restored");
        assert_confined(&placed, &run, &last);
        assert_eq!(run.end().code(), Some(0), "{:#?}", run.events);
    }
}

/// Waits for a `placed` event that satisfies a condition.
fn until_placed(run: &mut Running, is_it: impl Fn(&Threads) -> bool) -> Threads {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let threads = run.placed("tuna");
        if is_it(&threads) {
            return threads;
        }
        assert!(Instant::now() < deadline, "{threads:?}");
    }
}

#[test]
fn a_terminal_shows_a_live_table() {
    let folder = Folder::new("terminal");
    let file = folder.fraud("");
    let run = format!(
        "stty rows 24 cols 80; exec {} run -f {} {}",
        env!("CARGO_BIN_EXE_albacore"),
        file.display(),
        ANY_PORTS.join(" ")
    );
    let mut script = Command::new("script")
        .args(["--quiet", "--return", "--command", &run, "/dev/null"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = script.stdout.take().unwrap();
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut shown = Vec::new();
    let mut until = |accept: &dyn Fn(&str) -> bool| {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = lines.recv_timeout(left);
            let line = line.unwrap_or_else(|e| panic!("{e}: {shown:#?}"));
            shown.push(line.clone());
            if accept(&line) {
                return;
            }
        }
    };
    let columns = [
        "worker", "rank", "tid", "planned", "actual", "verified", "respawns",
    ];
    until(&|line| columns.iter().all(|column| line.contains(column)));
    until(&|line| line.contains("4 of 4 threads verified"));
    until(&|line| line.trim_end().ends_with(" ms  -            0"));
    let children = format!("/proc/{0}/task/{0}/children", script.id());
    let children = fs::read_to_string(children).unwrap();
    kill(children.trim().parse().unwrap(), "INT");
    until(&|line| line.contains("4 masks restored"));
    assert!(script.wait().unwrap().success());
}
