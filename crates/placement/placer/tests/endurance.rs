//! Endurance tests with mass forks, restarts and kills at random times; `ALBACORE_SOAK` multiplies
//! the number of rounds. Figures are printed. Needs root and two cpus.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // tests fail by panicking

mod prefork;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use albacore_os::{Pid, PidFd, Tid};
use albacore_placer::{SlotState, SubjectConfig, raise_thread_priority};
use albacore_plan::ServerKind;
use albacore_topology::CpuSet;
use albacore_values::XorShift64;
use prefork::group::{Group, two};
use prefork::{DEADLINE, PreforkServer, Run, mask_of, own_cpus, policy, taskset, threads_of};

/// Multiplier of the number of rounds.
fn soak() -> u64 {
    let text = std::env::var("ALBACORE_SOAK");
    text.ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

struct Canaries(Vec<Child>);

impl Canaries {
    fn start(count: usize, masks: &[CpuSet]) -> Self {
        let sleep = || Command::new("sleep").arg("100000").spawn().unwrap();
        let canaries = Self((0..count).map(|_| sleep()).collect());
        for (i, canary) in canaries.0.iter().enumerate() {
            taskset(Tid(canary.id() as i32), &masks[i % masks.len()]);
        }
        canaries
    }

    fn masks(&self) -> Vec<Option<CpuSet>> {
        self.0.iter().map(|c| mask_of(Tid(c.id() as i32))).collect()
    }
}

impl Drop for Canaries {
    fn drop(&mut self) {
        for canary in &mut self.0 {
            let _ = canary.kill();
            let _ = canary.wait();
        }
    }
}

#[test]
fn a_storm_of_forks_changes_no_mask_of_anybody_else() {
    let (low, high, both) = two();
    let canaries = Canaries::start(200, &[low, high, both]);
    let before = canaries.masks();
    let server = PreforkServer::start(2, 2, &["named"]);
    let mut run = Run::on(server.pid(), ServerKind::Named, policy(2, 2));
    run.placer.subscribe_spawn_events().unwrap();
    run.until_placed();
    let forks = 10_000 * soak();
    let storm = format!("n=0; while [ $n -lt {forks} ]; do (:); n=$((n+1)); done");
    let mut storm = Command::new("sh").args(["-c", &storm]).spawn().unwrap();
    let mut killed_at = Instant::now();
    while storm.try_wait().unwrap().is_none() {
        run.step();
        run.reports.clear();
        if killed_at.elapsed() > Duration::from_secs(1) {
            killed_at = Instant::now();
            if let Some(pid) = run.rows()[0].pid.and_then(|pid| PidFd::open(pid).ok()) {
                pid.signal(nix::sys::signal::Signal::SIGKILL).unwrap();
            }
        }
    }
    run.until_placed();
    assert_eq!(canaries.masks(), before);
    let figures = run.placer.counters();
    assert!(figures.spawn_events > 0);
    println!(
        "forks {forks}, heard {}, lost {}, respawned {}, p99 {:?} us",
        figures.spawn_events,
        figures.spawn_events_lost,
        figures.respawns,
        figures.respawn_micros.quantile_bound(0.99)
    );
    assert!(run.restore().errors.is_empty());
    assert_eq!(canaries.masks(), before);
}

#[test]
fn births_that_the_kernel_announces_are_placed() {
    let mut server = PreforkServer::start(2, 2, &["named"]);
    let rounds = 20 * soak().min(5) as u16;
    let mut run = Run::on(server.pid(), ServerKind::Named, policy(2, 2 + rounds));
    // As every thread that drives a placer: at the default priority the figure would depend on the
    // load of the machine.
    raise_thread_priority(&mut |_| {});
    run.placer.subscribe_spawn_events().unwrap();
    run.for_a_while(Duration::from_millis(1_500));
    for round in 0..rounds {
        server.order(&format!("thread {}", round % 2));
        let found = |run: &Run| {
            let rows = run.rows();
            rows.iter()
                .filter(|row| row.state == SlotState::Verified)
                .count()
        };
        let wanted = 4 + usize::from(round) + 1;
        run.until("placed", |run| found(run) >= wanted);
    }
    let times = &run.placer.counters().new_thread_micros;
    println!(
        "announced spawns: {} threads, p50 {:?} us, p99 {:?} us",
        times.count(),
        times.quantile_bound(0.5),
        times.quantile_bound(0.99)
    );
    assert!(times.count() > 0);
}

fn masks(server: &PreforkServer) -> BTreeMap<Tid, CpuSet> {
    let threads = threads_of(server.pid()).into_iter();
    threads
        .filter_map(|tid| Some((tid, mask_of(tid)?)))
        .collect()
}

#[test]
fn a_restart_moves_hardly_any_thread_whatever_happened_before() {
    for (server_kind, more) in [
        (ServerKind::Named, &["named"][..]),
        (ServerKind::PreFork, &[]),
    ] {
        let server = PreforkServer::start(4, 4, more);
        let mut run = Run::on(server.pid(), server_kind, policy(4, 4));
        run.until_placed();
        for round in 0..4 * soak() {
            // A worker in the middle is replaced: by age it is then the last one.
            let victim = run.rows()[4 * (round as usize % 3)].pid.unwrap();
            let pidfd = PidFd::open(victim).unwrap();
            pidfd.signal(nix::sys::signal::Signal::SIGKILL).unwrap();
            run.until("replaced", |run| {
                run.rows().iter().all(|row| row.pid != Some(victim)) && run.is_placed()
            });
            let before = masks(&server);
            // Simulates a kill: no mask is restored.
            run = Run::on(server.pid(), server_kind, policy(4, 4));
            run.until_placed();
            let after = masks(&server);
            let moved = before
                .iter()
                .filter(|(tid, mask)| after.get(tid) != Some(*mask))
                .count();
            assert!(
                moved * 20 <= before.len(),
                "{moved} of {} moved",
                before.len()
            );
        }
        assert!(run.restore().errors.is_empty());
    }
}

/// Reads masks as fast as possible in parallel with the loop, and measures how long any mask was
/// outside the cpuset.
struct MaskWatch {
    ends: Arc<AtomicBool>,
    watch: JoinHandle<(u64, Duration)>,
}

impl MaskWatch {
    fn start(effective: PathBuf, threads: Vec<Tid>) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let is_ended = Arc::clone(&ends);
        let cpuset = move || -> CpuSet {
            let text = std::fs::read_to_string(&effective).unwrap();
            text.parse().unwrap()
        };
        let watch = std::thread::spawn(move || {
            let (mut rounds, mut longest) = (0, Duration::ZERO);
            let mut outside_since: Option<Instant> = None;
            while !is_ended.load(Ordering::Relaxed) {
                rounds += 1;
                let before = cpuset();
                let masks: Vec<CpuSet> = threads.iter().copied().filter_map(mask_of).collect();
                // If the cpuset changed meanwhile, the masks read before and after are
                // inconclusive.
                if cpuset() != before {
                    continue;
                }
                if masks.iter().all(|mask| mask.is_subset(&before)) {
                    outside_since = None;
                } else {
                    let since = *outside_since.get_or_insert_with(Instant::now);
                    longest = longest.max(since.elapsed());
                }
            }
            (rounds, longest)
        });
        Self { ends, watch }
    }

    fn end(self) -> (u64, Duration) {
        self.ends.store(true, Ordering::Relaxed);
        self.watch.join().unwrap()
    }
}

/// 1,000 changes with `ALBACORE_SOAK=25`.
#[test]
fn a_cpuset_that_changes_at_random_is_followed_and_no_mask_stays_outside() {
    let (low, high, both) = two();
    let group = Group::new("rewrites", &both);
    let server = PreforkServer::start_in(&group, 2, 2);
    let mut run = Run::inside(&group, server.pid(), policy(2, 2));
    run.until_placed();
    let effective = ["cpuset.cpus.effective", "cpuset.effective_cpus"];
    let effective = effective.map(|file| group.directory.join(file));
    let effective = effective.into_iter().find(|path| path.exists()).unwrap();
    let watch = MaskWatch::start(effective, threads_of(server.pid()));
    let mut random = XorShift64::new(0x2545_f491_4f6c_dd1d);
    let (mut times, mut cpuset) = (Vec::new(), &both);
    for _ in 0..40 * soak() {
        let others = [&low, &high, &both]
            .into_iter()
            .filter(|&other| other != cpuset);
        cpuset = others.collect::<Vec<_>>()[random.below(2)];
        let start = Instant::now();
        group.set(cpuset);
        // One in four changes is followed by the next before it is repaired.
        if random.below(4) == 0 {
            run.for_a_while(Duration::from_micros(random.draw() % 5_000));
            continue;
        }
        run.until("repaired", |run| {
            let rows = run.rows();
            let is_inside = rows
                .iter()
                .all(|row| row.planned.as_ref().unwrap().is_subset(cpuset));
            let is_spread = cpuset.len() == 1 || rows[0].planned != rows[2].planned;
            is_inside && is_spread && run.is_placed()
        });
        times.push(start.elapsed());
    }
    let (rounds, outside) = watch.end();
    times.sort();
    println!(
        "cpuset followed {} times: p50 {:?}, p99 {:?}, max {:?}; masks read {rounds} times, longest \
         outside {outside:?}",
        times.len(),
        times[times.len() / 2],
        times[times.len() * 99 / 100],
        times[times.len() - 1]
    );
    assert!(rounds > 0);
    assert!(outside <= Duration::from_millis(20), "{outside:?}");
}

#[test]
fn with_few_file_descriptors_every_thread_is_placed() {
    let server = PreforkServer::start(16, 2, &["named"]);
    let place = "ulimit -n 40 && exec \"$@\"";
    let mut command = Command::new("sh");
    command.args([
        "-c",
        place,
        "sh",
        env!("CARGO_BIN_EXE_prefork_server"),
        "place",
    ]);
    let mut placer = PlacerProcess(
        command
            .args([&server.pid().0.to_string(), "16", "2"])
            .spawn()
            .unwrap(),
    );
    let pinned = || {
        let masks = masks(&server).into_values();
        masks.filter(|mask| mask.len() == 1).count()
    };
    let until_pinned = |placer: &mut PlacerProcess| {
        let start = Instant::now();
        while pinned() < 32 {
            assert!(start.elapsed() < DEADLINE, "{} of 32 are pinned", pinned());
            assert!(placer.0.try_wait().unwrap().is_none(), "it ended");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    until_pinned(&mut placer);
    let worker = prefork::tree_of(server.pid())[5];
    let pidfd = PidFd::open(worker).unwrap();
    pidfd.signal(nix::sys::signal::Signal::SIGKILL).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    until_pinned(&mut placer);
    let stop = Command::new("kill").arg(placer.0.id().to_string()).status();
    assert!(stop.unwrap().success() && placer.0.wait().unwrap().success());
    assert_eq!(pinned(), 0);
}

/// 50 servers of 100 threads each with `ALBACORE_SOAK=10`: in the steady state, the loop reads and
/// writes nothing again.
#[test]
fn once_settled_many_threads_cost_little_and_no_mask_is_written() {
    let servers: Vec<PreforkServer> = (0..(5 * soak()).min(50))
        .map(|_| PreforkServer::start(4, 25, &["named"]))
        .collect();
    let mut run = Run::on(servers[0].pid(), ServerKind::Named, policy(4, 25));
    raise_thread_priority(&mut |_| {});
    for server in &servers[1..] {
        let config = SubjectConfig {
            root: server.pid(),
            cgroup: None,
            server_kind: ServerKind::Named,
            policy: policy(4, 25),
        };
        run.placer.add_subject(&config).unwrap();
    }
    let all = servers.len() * 100;
    run.until("placed", |run| {
        run.for_a_while(Duration::from_millis(500));
        let rows = run.rows();
        let verified = rows.iter().filter(|r| r.state == SlotState::Verified);
        verified.count() == all
    });
    run.for_a_while(Duration::from_secs(5));
    let time = Duration::from_secs(if soak() > 1 { 30 } else { 5 });
    let (calls, cpu) = (run.calls(), run.placer.counters().cpu_micros);
    run.for_a_while(time);
    let cpu = run.placer.counters().cpu_micros - cpu;
    println!(
        "{all} threads of {} servers settled for {time:?}: {:.2} % of a core, slowdown {}",
        servers.len(),
        cpu as f64 / time.as_micros() as f64 * 100.0,
        run.placer.counters().slowdown
    );
    assert_eq!(run.calls(), calls);
}

/// A placer in a separate process.
struct PlacerProcess(Child);

impl PlacerProcess {
    fn start(server: Pid) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_prefork_server"));
        command
            .args(["place", &server.0.to_string(), "2", "3"])
            .stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for PlacerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn no_mask_is_left_behind_whenever_a_placer_is_stopped_or_killed() {
    let (_, _, both) = two();
    let server = PreforkServer::start(2, 3, &["named"]);
    let start = Instant::now();
    while threads_of(server.pid()).len() < 2 * 3 + 1 {
        assert!(start.elapsed() < DEADLINE, "the workers do not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(both.is_subset(&own_cpus()));
    let left = |masks: BTreeMap<Tid, CpuSet>| {
        masks
            .into_iter()
            .filter(|(_, mask)| *mask != own_cpus())
            .collect::<Vec<_>>()
    };
    let mut random = XorShift64::new(0x2545_f491_4f6c_dd1d);
    for round in 0..40 * soak() {
        let mut placer = PlacerProcess::start(server.pid());
        std::thread::sleep(Duration::from_micros(random.draw() % 60_000));
        let is_killed = round % 2 == 0;
        let signal = if is_killed { "-KILL" } else { "-TERM" };
        let status = Command::new("kill")
            .args([signal, &placer.0.id().to_string()])
            .status();
        assert!(status.unwrap().success());
        let end = placer.0.wait().unwrap();
        if is_killed || !end.success() {
            // Killed, or terminated by the signal before its handler was installed: a new placer
            // adopts and restores the masks.
            let mut run = Run::on(server.pid(), ServerKind::Named, policy(2, 3));
            run.until_placed();
            assert!(run.restore().errors.is_empty());
        }
        assert_eq!(left(masks(&server)), [], "round {round} with {signal}");
    }
}
