//! Subjects of containers: threads that are never modified, and the effect of a quota. Real cgroups
//! and processes; needs root and two cpus.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // tests fail by panicking

mod prefork;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use albacore_os::{Cgroup, CgroupVersion, HostRoot, Pid, Tid, read_stat};
use albacore_placer::limits::CONTAINER_CHECK_PERIOD;
use albacore_placer::{Placer, PlacerConfig, PlacerError, SlotState, SubjectConfig, SubjectState};
use albacore_plan::{PlacementWarning, ServerKind};
use albacore_values::XorShift64;
use prefork::group::{Group, two};
use prefork::{PreforkServer, Run, mask_of, policy, tasks_of, taskset, threads_of};

/// An unmanaged process.
struct UnmanagedProcess(Child);

impl UnmanagedProcess {
    fn in_group(directory: &Path) -> Self {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        fs::write(directory.join("cgroup.procs"), child.id().to_string()).unwrap();
        Self(child)
    }

    fn pid(&self) -> Pid {
        Pid(self.0.id() as i32)
    }
}

impl Drop for UnmanagedProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn state(run: &Run) -> SubjectState {
    run.placer.states().remove(0)
}

#[test]
fn a_process_that_left_the_cgroup_is_never_touched_again() {
    let (low, high, both) = two();
    let (own, other) = (Group::new("own", &both), Group::new("other", &both));
    let server = PreforkServer::start_in(&own, 2, 2);
    let mut run = Run::inside(&own, server.pid(), policy(2, 2));
    run.until_placed();
    let worker = run.rows()[2].pid.unwrap();
    fs::write(other.directory.join("cgroup.procs"), worker.0.to_string()).unwrap();
    let threads = tasks_of(worker);
    for &tid in &threads {
        let is_low = mask_of(tid) == Some(low.clone());
        taskset(tid, if is_low { &high } else { &low });
    }
    let masks: Vec<_> = threads.iter().map(|&tid| mask_of(tid)).collect();
    run.until("given up", |run| {
        run.rows()[2].state == SlotState::Missing && run.rows()[0].state == SlotState::Verified
    });
    run.for_a_while(Duration::from_millis(300));
    let restored = run.restore();
    assert!(restored.errors.is_empty(), "{restored:?}");
    let after: Vec<_> = threads.iter().map(|&tid| mask_of(tid)).collect();
    assert_eq!(after, masks, "what left is not even given back");
    let staying = threads_of(server.pid());
    for tid in staying.into_iter().filter(|tid| !threads.contains(tid)) {
        assert_eq!(mask_of(tid), Some(both.clone()));
    }
}

#[test]
fn of_ten_thousand_wrong_targets_none_is_accepted_and_no_mask_is_touched() {
    let (_, _, both) = two();
    let (own, other) = (Group::new("right", &both), Group::new("wrong", &both));
    let server = PreforkServer::start_in(&own, 1, 1);
    let unmanaged: Vec<UnmanagedProcess> = (0..4)
        .map(|_| UnmanagedProcess::in_group(&other.directory))
        .collect();
    let host = HostRoot::live();
    let numbers = fs::read_dir("/proc").unwrap().flatten();
    let all: Vec<Pid> = numbers
        .filter_map(|entry| Some(Pid(entry.file_name().to_str()?.parse().ok()?)))
        .collect();
    let of_kernel = |pid: &&Pid| read_stat(&host, **pid).is_ok_and(|stat| stat.is_kernel);
    let kernel: Vec<Pid> = all.iter().filter(of_kernel).copied().collect();
    let nested = own.directory.join("kubepods");
    fs::create_dir(&nested).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let link = scratch.path().join("pod");
    symlink(&other.directory, &link).unwrap();
    let masks: Vec<_> = unmanaged.iter().map(|s| mask_of(Tid(s.pid().0))).collect();
    let own_tree = prefork::tree_of(server.pid());
    let outside: Vec<Pid> = all
        .into_iter()
        .filter(|pid| !own_tree.contains(pid))
        .collect();

    let mut placer = Placer::new(PlacerConfig::live()).unwrap();
    let mut random = XorShift64::new(0x5eed);
    let right = own.cgroup();
    let at = |directory: PathBuf, mount: PathBuf| Cgroup {
        version: right.version,
        mount,
        directory,
    };
    for _ in 0..10_000 {
        let unmanaged = unmanaged[random.below(unmanaged.len())].pid();
        let (root, cgroup) = match random.below(8) {
            0 => (Pid(1), random.below(2).eq(&0).then(|| right.clone())),
            1 if !kernel.is_empty() => (kernel[random.below(kernel.len())], None),
            2 => (unmanaged, Some(right.clone())),
            3 => (server.pid(), Some(at(nested.clone(), right.mount.clone()))),
            4 => (unmanaged, Some(at(link.clone(), scratch.path().to_owned()))),
            5 => (outside[random.below(outside.len())], Some(right.clone())),
            6 => (Pid(-(random.below(9) as i32)), None),
            _ => (server.pid(), Some(other.cgroup())),
        };
        let (server_kind, policy) = (ServerKind::Named, policy(1, 1));
        let error = placer
            .add_subject(&SubjectConfig {
                root,
                server_kind,
                policy,
                cgroup,
            })
            .unwrap_err();
        let is_right = matches!(
            error,
            PlacerError::OutsideCgroup { .. }
                | PlacerError::Forbidden { .. }
                | PlacerError::RootGone { .. }
        );
        assert!(is_right, "{root:?}: {error}");
    }
    placer.step(Duration::ZERO, &mut |_| {}).unwrap();
    assert_eq!(placer.counters().setaffinity_calls, 0);
    let after: Vec<_> = unmanaged.iter().map(|s| mask_of(Tid(s.pid().0))).collect();
    assert_eq!(after, masks);
    fs::remove_dir(nested).unwrap();
}

#[test]
fn a_process_that_enters_a_container_is_counted_and_not_placed() {
    let (_, _, both) = two();
    let own = Group::new("entered", &both);
    let server = PreforkServer::start_in(&own, 1, 2);
    let unmanaged = UnmanagedProcess::in_group(&own.directory);
    let mut run = Run::inside(&own, server.pid(), policy(1, 2));
    run.until_placed();
    run.until("counted", |run| state(run).foreign_processes == 1);
    assert!(
        state(&run)
            .warnings
            .contains(&PlacementWarning::ForeignProcesses { count: 1 })
    );
    assert_eq!(mask_of(Tid(unmanaged.pid().0)), Some(both));
}

/// CPU quota of a group, removed on drop.
struct Quota {
    /// The directory with the quota, which is removed if it was created here.
    directory: PathBuf,
    is_own: bool,
}

impl Quota {
    fn of(group: &Group, micros: u32) -> Self {
        let cgroup = group.cgroup();
        if cgroup.version == CgroupVersion::V2 {
            fs::write(cgroup.mount.join("cgroup.subtree_control"), "+cpu").unwrap();
            let quota = Self {
                directory: group.directory.clone(),
                is_own: false,
            };
            quota.set(micros);
            return quota;
        }
        let name = group.directory.file_name().unwrap();
        let directory = Path::new("/sys/fs/cgroup/cpu").join(name);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("cpu.cfs_period_us"), "100000").unwrap();
        let quota = Self {
            directory,
            is_own: true,
        };
        quota.set(micros);
        quota
    }

    fn set(&self, micros: u32) {
        let (name, text) = match self.is_own {
            true => ("cpu.cfs_quota_us", micros.to_string()),
            false => ("cpu.max", format!("{micros} 100000")),
        };
        fs::write(self.directory.join(name), text).unwrap();
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        if self.is_own {
            let _ = fs::remove_dir(&self.directory);
        }
    }
}

#[test]
fn a_quota_below_the_requested_threads_places_as_many_as_may_run_at_once() {
    let (_, _, both) = two();
    let own = Group::new("quota", &both);
    let quota = Quota::of(&own, 130_000);
    let server = PreforkServer::start_in(&own, 1, 2);
    let mut run = Run::inside(&own, server.pid(), policy(1, 2));
    run.until("placed within the quota", |run| {
        state(run).policy.threads == 1 && run.rows().len() == 1 && run.is_placed()
    });
    let state = state(&run);
    assert_eq!(
        (state.threads_requested, state.quota.millicpus),
        (2, Some(1300))
    );
    let warning = PlacementWarning::LimitedByQuota {
        millicpus: 1300,
        threads: 1,
        requested: 2,
    };
    assert!(state.warnings.contains(&warning), "{:?}", state.warnings);
    // All threads of the worker are on the cpus of the placed threads: one.
    run.until("all on one cpu", |run| {
        let worker = run.rows()[0].pid.unwrap();
        tasks_of(worker)
            .into_iter()
            .all(|tid| mask_of(tid).is_some_and(|mask| mask.len() == 1))
    });
    // Each write is noticed immediately, long before the quota would be polled.
    let start = std::time::Instant::now();
    for round in 0u16..10 {
        let threads = 1 + (round + 1) % 2;
        quota.set(u32::from(threads) * 110_000);
        run.until("placed within the new quota", |run| {
            run.rows().len() == usize::from(threads) && run.is_placed()
        });
    }
    let took = start.elapsed();
    println!("10 changes of a quota: {took:?}");
    assert!(
        took < 5 * CONTAINER_CHECK_PERIOD,
        "they would take ten periods"
    );
}
