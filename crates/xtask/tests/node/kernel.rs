//! The state of pods in the kernel: their processes, masks and cpusets, read on the machine, not in
//! the node.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A thread id and name.
pub(crate) type Thread = (i32, String);

/// The content of `path`; empty if it cannot be read, because processes come and go.
fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn process(pid: i32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

/// The first process of the program `name` in the pod, whose cgroup path contains its uid.
pub(crate) fn find(name: &str, uid: &str) -> Option<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_it = |&pid: &i32| {
        let process = process(pid);
        text(&process.join("comm")).trim() == name && text(&process.join("cgroup")).contains(uid)
    };
    pids.filter(is_it).min()
}

/// The children of a process.
pub(crate) fn children(pid: i32) -> BTreeSet<i32> {
    let tasks = fs::read_dir(process(pid).join("task"))
        .into_iter()
        .flatten();
    let lists = tasks
        .flatten()
        .map(|task| text(&task.path().join("children")));
    let lists: Vec<String> = lists.collect();
    let words = lists.iter().flat_map(|list| list.split_whitespace());
    words.filter_map(|word| word.parse().ok()).collect()
}

/// The workers of a built-in server.
pub(crate) fn workers(server: i32) -> BTreeSet<i32> {
    let is_worker = |pid: &i32| text(&process(*pid).join("comm")).starts_with("albw");
    children(server).into_iter().filter(is_worker).collect()
}

/// The mask of each thread of these processes.
pub(crate) fn masks(pids: &BTreeSet<i32>) -> BTreeMap<Thread, String> {
    let mut found = BTreeMap::new();
    for pid in pids {
        let tasks = fs::read_dir(process(*pid).join("task"))
            .into_iter()
            .flatten();
        for task in tasks.flatten() {
            let tid = task.file_name().to_str().and_then(|name| name.parse().ok());
            let mask = line(&task.path().join("status"), "Cpus_allowed_list:");
            if let (Some(tid), Some(mask)) = (tid, mask) {
                let name = text(&task.path().join("comm")).trim().to_owned();
                found.insert((tid, name), mask);
            }
        }
    }
    found
}

fn line(path: &Path, name: &str) -> Option<String> {
    let text = text(path);
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.trim().to_owned())
}

/// The CPUs of a process's cgroup.
pub(crate) fn cpuset(pid: i32) -> String {
    let cgroups = text(&process(pid).join("cgroup"));
    let path = cgroups
        .lines()
        .find_map(|line| line.split_once(":cpuset:/"));
    let directory = Path::new("/sys/fs/cgroup/cpuset").join(path.unwrap().1);
    text(&directory.join("cpuset.cpus")).trim().to_owned()
}

/// Sends a signal, given by name, to a process.
pub(crate) fn signal(pid: i32, name: &str) {
    let status = std::process::Command::new("kill")
        .args([format!("-{name}"), pid.to_string()])
        .status();
    assert!(status.unwrap().success());
}

/// Whether a process is in the pid namespace of the machine.
pub(crate) fn shares_pid_namespace(pid: i32) -> bool {
    let of = |pid: &str| fs::read_link(Path::new("/proc").join(pid).join("ns/pid")).unwrap();
    of(&pid.to_string()) == of("self")
}

/// User, groups, capabilities and seccomp mode of a process, from `/proc/PID/status`.
pub(crate) fn rights(pid: i32) -> String {
    let text = text(&process(pid).join("status"));
    let names = ["Uid", "Gid", "Cap", "NoNewPrivs", "Seccomp:"];
    let lines = text
        .lines()
        .filter(|line| names.iter().any(|name| line.starts_with(name)));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The listening sockets of a process, from the tables of its network namespace.
pub(crate) fn listening(pid: i32) -> Vec<String> {
    let descriptors = fs::read_dir(process(pid).join("fd")).unwrap().flatten();
    let links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    let name = |link: PathBuf| {
        let link = link.to_str()?.strip_prefix("socket:[")?;
        Some(link.trim_end_matches(']').to_owned())
    };
    let own: BTreeSet<String> = links.filter_map(name).collect();
    let mut found = Vec::new();
    // Table, column of the state, its value for a listening socket, column of the inode.
    for (table, state, listens, inode) in [
        ("tcp", 3, "0A", 9),
        ("tcp6", 3, "0A", 9),
        ("unix", 3, "00010000", 6),
    ] {
        for line in text(&process(pid).join("net").join(table)).lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let at = |column: usize| words.get(column).copied().unwrap_or_default();
            if at(state) == listens && own.contains(at(inode)) {
                found.push(format!("{table}: {line}"));
            }
        }
    }
    found
}
