//! Runs `albacore restore` on real processes with real masks.
#![allow(clippy::unwrap_used, reason = "tests fail loudly")]

mod command;
mod deployment;
mod running;

use std::process::{Child, Command, Stdio};

use albacore_os::{HostRoot, Pid, Tid, find_cgroup, read_children, read_mask, write_mask};
use albacore_topology::CpuSet;
use command::{albacore, assert_refused};
use deployment::Folder;
use running::{ANY_PORTS, Running};

/// A shell with a child process; both are killed at the end of the test.
struct Tree {
    shell: Child,
}

impl Tree {
    fn start() -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 600 & wait"]).stdout(Stdio::null());
        let tree = Self {
            shell: shell.spawn().unwrap(),
        };
        // bound: the child starts within moments; otherwise the test's own timeout ends the loop.
        while tree.children().is_empty() {
            std::thread::yield_now();
        }
        tree
    }

    fn pid(&self) -> Pid {
        Pid(i32::try_from(self.shell.id()).unwrap())
    }

    fn children(&self) -> Vec<Pid> {
        read_children(&HostRoot::live(), self.pid()).unwrap()
    }

    fn all(&self) -> Vec<Tid> {
        let mut all = self.children();
        all.push(self.pid());
        all.into_iter().map(|Pid(pid)| Tid(pid)).collect()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        for Pid(pid) in self.children() {
            let _ = Command::new("kill").arg(pid.to_string()).status();
        }
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

#[test]
fn pinned_threads_get_all_cpus_of_their_cgroup_again() {
    let host = HostRoot::live();
    let tree = Tree::start();
    let cgroup = find_cgroup(&host, tree.pid()).unwrap();
    let cpuset = cgroup.read_effective_cpuset(&host).unwrap().cpus;
    assert!(
        cpuset.len() >= 2,
        "this test needs two cpus, there is {cpuset}"
    );
    let mut first = CpuSet::new();
    first.insert(cpuset.first().unwrap());
    for tid in tree.all() {
        write_mask(tid, &first).unwrap();
    }
    let pid = tree.pid().0.to_string();

    let dry = albacore(&["restore", "--dry-run", &pid]);
    assert_eq!(dry.code, 0, "{dry:?}");
    let says = "2 of 2 threads in 2 processes would be given all cpus of their cgroup\n";
    assert_eq!(dry.out, says);
    for tid in tree.all() {
        assert_eq!(read_mask(&host, tid).unwrap(), first);
    }

    let done = albacore(&["restore", &pid]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(
        done.out.starts_with("2 of 2 threads in 2 processes were"),
        "{done:?}"
    );
    for tid in tree.all() {
        assert_eq!(read_mask(&host, tid).unwrap(), cpuset);
    }
    let again = albacore(&["restore", &pid]);
    assert!(again.out.starts_with("0 of 2 threads"), "{again:?}");
}

#[test]
fn masks_that_cannot_be_restored_are_reported() {
    assert_refused(
        &albacore(&["restore", "999999999"]),
        1,
        &["process 999999999"],
    );
    assert_refused(&albacore(&["restore"]), 64, &["<PID>"]);
    assert_refused(&albacore(&["restore", "0"]), 64, &["0"]);
    assert_refused(&albacore(&["restore", "fraud"]), 64, &["fraud"]);
}

#[test]
fn threads_that_a_living_placer_places_are_left_to_it() {
    let folder = Folder::new("restore");
    let args = [&["--output", "json"], &ANY_PORTS[..]].concat();
    let mut run = Running::start(&folder.fraud(""), &args);
    run.placed("tuna");
    let worker = run
        .events
        .iter()
        .find_map(|event| event["pid"].as_i64())
        .unwrap()
        .to_string();
    let words = ["`albacore run`", "restores every mask"];
    assert_refused(&albacore(&["restore", &worker]), 1, &words);
    run.signal("TERM");
    assert!(run.end().success());
}
