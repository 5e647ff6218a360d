//! A node is removed completely, whether the test ends normally or is killed.
#![allow(clippy::unwrap_used)] // tests fail by panicking

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use albacore_testbed::{Node, NodeOptions};

/// Set for the process that starts a node and is killed; contains the path to which it writes its
/// folder.
const VICTIM: &str = "ALBACORE_TESTBED_VICTIM";

/// Timeout, for liveness only: the machine may be busy.
const LONG: Duration = Duration::from_secs(180);

/// Traces that a node could leave on a machine.
fn traces(folder: &Path) -> Vec<String> {
    let name = folder.to_str().unwrap();
    let mut found = Vec::new();
    if folder.exists() {
        found.push(format!("the folder {name}"));
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    found.extend(
        mounts
            .lines()
            .filter(|line| line.contains(name))
            .map(str::to_owned),
    );
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        if words.contains(name) {
            found.push(words);
        }
    }
    found
}

fn cgroups_of(supervisor: u32) -> Vec<PathBuf> {
    let name = format!("albacore-testbed-{supervisor}");
    let hierarchies = fs::read_dir("/sys/fs/cgroup").unwrap().flatten();
    let mut open: Vec<PathBuf> = hierarchies.map(|entry| entry.path()).collect();
    let mut found = Vec::new();
    while let Some(directory) = open.pop() {
        let below = fs::read_dir(directory).into_iter().flatten().flatten();
        for path in below.map(|entry| entry.path()).filter(|path| path.is_dir()) {
            if path.ends_with(&name) {
                found.push(path.clone());
            }
            open.push(path);
        }
    }
    found
}

fn sysctls() -> Vec<String> {
    let names = [
        "vm/overcommit_memory",
        "kernel/panic",
        "kernel/panic_on_oops",
        "net/ipv4/ip_forward",
    ];
    let read = |name| fs::read_to_string(Path::new("/proc/sys").join(name)).unwrap();
    names.map(read).into()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LONG, "{what}: not within {LONG:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_node_leaves_nothing_behind_when_its_test_is_killed() {
    if let Some(place) = std::env::var_os(VICTIM) {
        let node = Node::start(&NodeOptions::default()).unwrap();
        let said = format!("{} {}", node.supervisor_pid(), node.folder().display());
        fs::write(place, said).unwrap();
        std::thread::sleep(LONG);
        return;
    }
    let before = sysctls();
    let place = tempfile::NamedTempFile::new().unwrap();
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .env(VICTIM, place.path())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let said = || fs::read_to_string(place.path()).unwrap();
    until("a node", || !said().is_empty());
    let said = said();
    let (supervisor, folder) = said.split_once(' ').unwrap();
    let (supervisor, folder) = (supervisor.parse().unwrap(), Path::new(folder));
    assert!(traces(folder).len() > 5, "it runs: {:?}", traces(folder));
    assert!(!cgroups_of(supervisor).is_empty());
    assert_eq!(
        sysctls(),
        before,
        "the kubelet's settings are the node's own"
    );
    victim.kill().unwrap();
    victim.wait().unwrap();
    let start = Instant::now();
    until("nothing left", || {
        traces(folder).is_empty() && cgroups_of(supervisor).is_empty()
    });
    println!("gone after {:?}", start.elapsed());
    assert_eq!(sysctls(), before);
}
