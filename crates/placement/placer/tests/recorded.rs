//! Recorded host trees: cpus that go offline and online again, and a sched_ext scheduler that is
//! enabled.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // tests fail by panicking

mod prefork;

use std::fs;
use std::path::Path;

use albacore_os::{HostRoot, Pid};
use albacore_placer::{PlacerConfig, Report};
use albacore_plan::{MaskDriftCause, ServerKind};
use albacore_topology::{Distances, DistancesFile};
use prefork::{Run, cpus, policy};

/// Writes a host with four cores and a server of two workers with two threads each below `root`.
fn record(root: &Path) -> HostRoot {
    let host = HostRoot::recorded(root);
    put(&host.sys, "devices/system/cpu/online", "0-3\n");
    put(&host.sys, "devices/system/node/online", "0\n");
    put(&host.sys, "devices/system/node/node0/cpulist", "0-3\n");
    for cpu in 0..4 {
        let list = format!("{cpu}\n");
        put(
            &host.sys,
            &format!("devices/system/cpu/cpu{cpu}/topology/core_cpus_list"),
            &list,
        );
    }
    put(&host.cgroup, "cpuset.cpus.effective", "0-3\n");
    put(&host.proc, "loadavg", "0.00 0.00 0.00 1/90 106\n");
    process(&host, 100, &[(100, "front")], &[101, 103]);
    process(&host, 101, &[(101, "albw0.0"), (102, "albw0.1")], &[]);
    process(&host, 103, &[(103, "albw1.0"), (104, "albw1.1")], &[]);
    host
}

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn process(host: &HostRoot, pid: i32, threads: &[(i32, &str)], children: &[i32]) {
    let parent = if pid == 100 { 1 } else { 100 };
    put(&host.proc, &format!("{pid}/cgroup"), "0::/\n");
    put(&host.proc, &format!("{pid}/cmdline"), "server\0");
    for (i, (tid, comm)) in threads.iter().enumerate() {
        let stat =
            format!("{tid} ({comm}) S {parent} 0 0 0 0 0 0 0 0 0 1 1 0 0 20 0 1 0 {tid} 0 0");
        let children: Vec<String> = children.iter().map(ToString::to_string).collect();
        let children = if i == 0 {
            children.join(" ")
        } else {
            String::new()
        };
        put(&host.proc, &format!("{pid}/task/{tid}/stat"), &stat);
        put(&host.proc, &format!("{pid}/task/{tid}/children"), &children);
        put(&host.proc, &format!("{pid}/task/{tid}/comm"), comm);
        mask(host, *tid, "0-3");
        if i == 0 {
            put(&host.proc, &format!("{pid}/stat"), &stat);
        }
    }
}

fn mask(host: &HostRoot, tid: i32, list: &str) {
    let status = format!("Name:\tx\nCpus_allowed:\tf\nCpus_allowed_list:\t{list}\n");
    put(&host.proc, &format!("{tid}/status"), &status);
}

fn planned_cpus(run: &Run) -> Vec<String> {
    run.rows()
        .iter()
        .map(|row| row.planned.as_ref().unwrap().to_string())
        .collect()
}

/// Updates the recording to the planned masks.
fn apply_planned_masks(host: &HostRoot, run: &Run) {
    for row in run.rows() {
        mask(host, row.tid.unwrap().0, &row.planned.unwrap().to_string());
    }
}

#[test]
fn a_cpu_that_goes_offline_is_planned_around_and_used_again_when_it_is_back() {
    let root = tempfile::tempdir().unwrap();
    let host = record(root.path());
    let config = PlacerConfig {
        host: host.clone(),
        limit: None,
        distances: None,
    };
    let mut run = Run::with(config, Pid(100), ServerKind::Named, policy(2, 2));
    run.until("planned", |run| {
        run.rows()
            .iter()
            .all(|r| r.planned.is_some() && r.tid.is_some())
    });
    let mut all = planned_cpus(&run);
    all.sort();
    assert_eq!(all, ["0", "1", "2", "3"]);
    apply_planned_masks(&host, &run);
    run.until("verified", |run| {
        run.rows().iter().all(|r| r.verified_micros_ago.is_some())
    });

    // Before 6.2, the kernel resets all pins within a cpuset when one of its cpus goes offline.
    put(&host.sys, "devices/system/cpu/online", "0-2\n");
    put(&host.cgroup, "cpuset.cpus.effective", "0-2\n");
    for tid in 101..=104 {
        mask(&host, tid, "0-2");
    }
    run.until("planned around", |run| {
        !planned_cpus(run).contains(&"3".to_owned())
    });
    let machine = Report::MachineChanged {
        online: cpus("0-2"),
    };
    assert!(run.reports.contains(&machine));
    run.until("the drift is reported", |run| {
        let hotplug = |r: &Report| {
            matches!(
                r,
                Report::Drift {
                    cause: MaskDriftCause::Hotplug,
                    ..
                }
            )
        };
        run.reports.iter().any(hotplug)
    });
    apply_planned_masks(&host, &run);

    put(&host.sys, "devices/system/cpu/online", "0-3\n");
    put(&host.cgroup, "cpuset.cpus.effective", "0-3\n");
    run.until("used again", |run| {
        planned_cpus(run).contains(&"3".to_owned())
    });
    assert_eq!(run.calls(), 0, "a recording is never written to");
}

#[test]
fn a_foreign_scheduler_is_reported() {
    let root = tempfile::tempdir().unwrap();
    let host = record(root.path());
    put(&host.sys, "kernel/sched_ext/state", "disabled\n");
    let config = PlacerConfig {
        host: host.clone(),
        limit: None,
        distances: None,
    };
    let mut run = Run::with(config, Pid(100), ServerKind::Named, policy(2, 2));
    run.step();
    assert!(!run.reports.contains(&Report::ForeignScheduler));
    put(&host.sys, "kernel/sched_ext/state", "enabled\n");
    run.until("the drift is reported", |run| {
        run.reports.contains(&Report::ForeignScheduler)
    });
}

#[test]
fn a_name_that_imitates_the_rest_of_a_stat_file_changes_no_mask() {
    let root = tempfile::tempdir().unwrap();
    let host = record(root.path());
    process(
        &host,
        103,
        &[(103, ") R 1 (albw1.0"), (104, "albw1.1\nalbw0.0")],
        &[],
    );
    let config = PlacerConfig {
        host,
        limit: None,
        distances: None,
    };
    let mut run = Run::with(config, Pid(100), ServerKind::Named, policy(2, 2));
    run.step();
    let tids: Vec<_> = run
        .rows()
        .iter()
        .map(|row| row.tid.map(|tid| tid.0))
        .collect();
    assert_eq!(
        tids,
        [Some(101), Some(102), None, None],
        "{:#?}",
        run.rows()
    );
}

#[test]
fn measured_distances_hold_while_their_file_is_good_and_of_this_machine() {
    let root = tempfile::tempdir().unwrap();
    let host = record(root.path());
    let folder = root.path().join("distances");
    fs::create_dir(&folder).unwrap();
    let config = PlacerConfig {
        host,
        limit: None,
        distances: Some(folder.clone()),
    };
    let mut run = Run::with(config, Pid(100), ServerKind::Named, policy(2, 2));
    run.step();
    let is_report = |report: &&Report| matches!(report, Report::Distances { .. });
    let problems = |run: &Run| -> Vec<Option<String>> {
        let of = |report: &Report| match report {
            Report::Distances { problem } => problem.clone(),
            _ => None,
        };
        run.reports.iter().filter(is_report).map(of).collect()
    };
    assert!(problems(&run).is_empty(), "there is no file");

    let machine = run.placer.machine().clone();
    let measured = Distances {
        l3: 77,
        ..Distances::default()
    };
    let write = |topology: String, distances| {
        let file = DistancesFile {
            topology,
            distances,
            matrix: None,
        };
        let name = format!("{}.json", machine.hash_hex());
        fs::write(folder.join(name), file.to_json().unwrap()).unwrap();
    };
    write(machine.hash_hex(), measured);
    run.until("the file is used", |run| {
        run.placer.machine().distances() == measured
    });
    assert_eq!(problems(&run), [None]);

    write("0123456789abcdef".to_owned(), measured);
    run.until("the file of another machine is refused", |run| {
        run.placer.machine().distances() == Distances::default()
    });
    let problem = problems(&run)[1].clone().unwrap();
    assert!(problem.contains("0123456789abcdef"), "{problem}");

    let falling = Distances { l3: 7, ..measured };
    write(machine.hash_hex(), falling);
    run.until("distances that fall are refused", |run| {
        problems(run).len() == 3
    });
    let problem = problems(&run)[2].clone().unwrap();
    assert!(
        problem.contains("l3 is 7 but the nearer l2 is 10"),
        "{problem}"
    );
    fs::remove_dir_all(&folder).unwrap();
    run.until("the file is gone", |run| problems(run).len() == 4);
    assert_eq!(problems(&run)[3], None);
}
