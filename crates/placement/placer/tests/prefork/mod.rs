//! A fake server, a placer for it, and an independent reader of masks.

#![allow(dead_code)] // each test file uses its part

pub(crate) mod group;

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use albacore_os::{Pid, Tid, write_mask};
use albacore_placer::{Placer, PlacerConfig, Report, SlotRow, SubjectConfig, SubjectId};
use albacore_plan::{Enforcement, MainThread, PlacementMethod, ServerKind, SubjectPolicy};
use albacore_solver::Mode;
use albacore_topology::{CpuSet, DistanceOverrides};

/// Liveness only: maximum time of any operation on a machine that is busy with other tests.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) fn policy(workers: u16, threads: u16) -> SubjectPolicy {
    SubjectPolicy {
        workers,
        threads,
        mode: Mode::Scatter,
        placement: PlacementMethod::Tuna,
        enforcement: Enforcement::Enforce,
        main_thread: MainThread::Pinned,
        distances: DistanceOverrides::default(),
        is_pool_size_known: true,
    }
}

pub(crate) struct PreforkServer {
    pub(crate) child: Child,
}

impl PreforkServer {
    pub(crate) fn start(workers: u16, threads: u16, more: &[&str]) -> Self {
        Self::start_with(workers, threads, more, |_| {})
    }

    pub(crate) fn start_with(
        workers: u16,
        threads: u16,
        more: &[&str],
        prepare: impl FnOnce(&mut Command),
    ) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_prefork_server"));
        command
            .args([workers.to_string(), threads.to_string()])
            .args(more)
            .stdin(Stdio::piped());
        prepare(&mut command);
        Self {
            child: command.spawn().unwrap(),
        }
    }

    /// In a group from the start, as a container runtime starts a container.
    pub(crate) fn start_in(group: &group::Group, workers: u16, threads: u16) -> Self {
        let mut command = Command::new("sh");
        command
            .args(["-c", "echo $$ >\"$0/cgroup.procs\" && exec \"$@\""])
            .arg(&group.directory)
            .arg(env!("CARGO_BIN_EXE_prefork_server"))
            .args([&workers.to_string(), &threads.to_string(), "named"])
            .stdin(Stdio::piped());
        let child = command.spawn().unwrap();
        let is_inside = || {
            let procs = fs::read_to_string(group.directory.join("cgroup.procs")).unwrap();
            procs.lines().any(|line| line == child.id().to_string())
        };
        let start = Instant::now();
        while !is_inside() {
            assert!(start.elapsed() < DEADLINE, "it is not in its group");
            std::thread::sleep(Duration::from_millis(2));
        }
        Self { child }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid(self.child.id() as i32)
    }

    pub(crate) fn order(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }
}

impl Drop for PreforkServer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A placer with one subject and all its reports.
pub(crate) struct Run {
    pub(crate) placer: Placer,
    pub(crate) subject: SubjectId,
    pub(crate) reports: Vec<Report>,
}

impl Run {
    pub(crate) fn on(root: Pid, server_kind: ServerKind, policy: SubjectPolicy) -> Self {
        Self::with(PlacerConfig::live(), root, server_kind, policy)
    }

    pub(crate) fn with(
        config: PlacerConfig,
        root: Pid,
        server_kind: ServerKind,
        policy: SubjectPolicy,
    ) -> Self {
        let cgroup = None;
        let subject = SubjectConfig {
            root,
            cgroup,
            server_kind,
            policy,
        };
        Self::of(config, &subject)
    }

    pub(crate) fn inside(group: &group::Group, root: Pid, policy: SubjectPolicy) -> Self {
        let subject = SubjectConfig {
            root,
            cgroup: Some(group.cgroup()),
            server_kind: ServerKind::Named,
            policy,
        };
        Self::of(PlacerConfig::live(), &subject)
    }

    fn of(config: PlacerConfig, subject: &SubjectConfig) -> Self {
        let mut placer = Placer::new(config).unwrap();
        let subject = placer.add_subject(subject).unwrap();
        Self {
            placer,
            subject,
            reports: Vec::new(),
        }
    }

    pub(crate) fn step(&mut self) {
        let reports = &mut self.reports;
        self.placer
            .step(Duration::from_millis(20), &mut |r| reports.push(r.clone()))
            .unwrap();
    }

    /// Steps until a condition holds.
    pub(crate) fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            if start.elapsed() > DEADLINE {
                let last: Vec<_> = self.reports.iter().rev().take(30).collect();
                panic!(
                    "{what}: not within {DEADLINE:?}\n{:#?}\n{last:#?}",
                    self.rows()
                );
            }
            self.step();
        }
    }

    pub(crate) fn for_a_while(&mut self, time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            self.step();
        }
    }

    pub(crate) fn rows(&self) -> Vec<SlotRow> {
        self.placer.table().unwrap()
    }

    /// True if every slot has a live thread whose mask, read from /proc, is the planned cpu.
    pub(crate) fn is_placed(&self) -> bool {
        self.rows().iter().all(|row| {
            let (Some(tid), Some(planned)) = (row.tid, &row.planned) else {
                return false;
            };
            row.verified_micros_ago.is_some() && mask_of(tid).as_ref() == Some(planned)
        })
    }

    pub(crate) fn until_placed(&mut self) {
        self.until("placed", |run| run.is_placed());
    }

    pub(crate) fn calls(&self) -> u64 {
        self.placer.counters().setaffinity_calls
    }

    pub(crate) fn restore(&mut self) -> albacore_placer::RestoreSummary {
        let reports = &mut self.reports;
        self.placer.restore(&mut |r| reports.push(r.clone()))
    }
}

/// The mask of a thread from /proc/TID/status, read independently of the crates under test.
pub(crate) fn mask_of(tid: Tid) -> Option<CpuSet> {
    let status = fs::read_to_string(format!("/proc/{}/status", tid.0)).ok()?;
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(list.trim().parse().unwrap())
}

/// All live processes of a tree, the root first.
pub(crate) fn tree_of(root: Pid) -> Vec<Pid> {
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        let tasks = format!("/proc/{}/task", found[next].0);
        next += 1;
        for task in fs::read_dir(tasks).into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(
                children
                    .split_whitespace()
                    .map(|pid| Pid(pid.parse().unwrap())),
            );
        }
    }
    found
}

/// All threads of all processes of a tree.
pub(crate) fn threads_of(root: Pid) -> Vec<Tid> {
    tree_of(root).into_iter().flat_map(tasks_of).collect()
}

pub(crate) fn tasks_of(pid: Pid) -> Vec<Tid> {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.0))
        .into_iter()
        .flatten()
        .flatten();
    tasks
        .map(|task| Tid(task.file_name().to_str().unwrap().parse().unwrap()))
        .collect()
}

/// Sets a mask like another program, as `taskset` does.
pub(crate) fn taskset(tid: Tid, mask: &CpuSet) {
    write_mask(tid, mask).unwrap();
}

pub(crate) fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// The cpus that this test may use.
pub(crate) fn own_cpus() -> CpuSet {
    mask_of(Tid(std::process::id() as i32)).unwrap()
}
