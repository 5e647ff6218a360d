//! The processes of a container.
//!
//! A reader in another PID namespace (an agent that only observes does not use the host PID
//! namespace) cannot read them from `cgroup.procs`: cgroup v2 lists each as 0, v1 omits them. Such
//! a reader searches the node's procfs by the path in `/proc/PID/cgroup`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{Container, subdirectories};
use crate::cgroup::parse_membership;
use crate::limits::{CGROUPS_MAX, TASKS_MAX};
use crate::process::numbers_in;
use crate::read::{read_optional_text, read_text};
use crate::{Cgroup, CgroupVersion, HostRoot, OsError, Pid, read_stat};

/// Snapshot of the processes of a container.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Members {
    /// All processes, oldest first.
    pub processes: Vec<Pid>,
    /// The oldest process whose parent is outside the container: the process started by the
    /// runtime.
    pub root: Option<Pid>,
    /// Number of processes that do not descend from the root: `kubectl exec`, exec probes, orphans.
    pub foreign_processes: usize,
}

/// Finds the processes of a container: those listed in its cgroup or, if they have no pid in this
/// PID namespace, those of [`HostRoot::proc`] whose `cgroup` file contains the container. Processes
/// that exit meanwhile are omitted.
///
/// # Errors
/// A directory cannot be read.
pub fn read_members(host: &HostRoot, container: &Container) -> Result<Members, OsError> {
    let listed = container.cgroup.read_processes()?;
    let pids = if may_hide_processes(host, &container.cgroup, &listed) {
        scan(host, container)?
    } else {
        listed
    };
    let mut found = BTreeMap::new();
    for pid in pids {
        match read_stat(host, pid) {
            Ok(stat) if !stat.is_dead() => {
                found.insert(pid, (stat.start_ticks, stat.parent));
            }
            Ok(_) => {}
            Err(e) if e.is_gone() => {}
            Err(e) => return Err(e),
        }
    }
    Ok(Members::of(&found))
}

/// True if the processes listed for a cgroup may lack entries or pids because the processes are in
/// another PID namespace than this reader. On v1 this looks like an empty cgroup.
pub(crate) fn may_hide_processes(host: &HostRoot, cgroup: &Cgroup, listed: &[Pid]) -> bool {
    let is_left_out = cgroup.version == CgroupVersion::V1 && listed.is_empty() && !host.is_live();
    listed.contains(&Pid(0)) || is_left_out
}

impl Members {
    /// Sorts processes by start time and counts those that do not descend from the root.
    fn of(found: &BTreeMap<Pid, (u64, i32)>) -> Self {
        let mut processes: Vec<Pid> = found.keys().copied().collect();
        processes.sort_by_key(|pid| (found[pid].0, *pid));
        let is_top = |pid: &&Pid| !found.contains_key(&Pid(found[pid].1));
        let root = processes.iter().find(is_top).copied();
        let descends = |pid: &&Pid| {
            let mut at = **pid;
            // bound: a chain of parents contains each process once
            for _ in 0..found.len() {
                if Some(at) == root {
                    return true;
                }
                match found.get(&at) {
                    Some(&(_, parent)) => at = Pid(parent),
                    None => return false,
                }
            }
            false
        };
        let foreign_processes = processes.iter().filter(|pid| !descends(pid)).count();
        Self {
            processes,
            root,
            foreign_processes,
        }
    }
}

impl Cgroup {
    /// The processes in the cgroup and its descendants, as listed by the kernel, at most 65,536.
    /// Processes outside this PID namespace are 0 on cgroup v2 and missing on v1.
    ///
    /// # Errors
    /// A directory cannot be read. A removed directory has no processes.
    pub fn read_processes(&self) -> Result<Vec<Pid>, OsError> {
        let mut pids = Vec::new();
        for directory in tree_of(self)? {
            pids.extend(read_procs(&directory)?);
        }
        pids.sort_unstable();
        pids.dedup();
        pids.truncate(TASKS_MAX);
        Ok(pids)
    }
}

/// The directory of a cgroup and all its descendants.
pub(crate) fn tree_of(cgroup: &Cgroup) -> Result<Vec<PathBuf>, OsError> {
    let mut directories = vec![cgroup.directory.clone()];
    let mut next = 0;
    // bound: CGROUPS_MAX directories
    while next < directories.len() && directories.len() < CGROUPS_MAX {
        let below = subdirectories(&directories[next])?;
        directories.extend(below);
        next += 1;
    }
    Ok(directories)
}

/// The pids in one `cgroup.procs`; empty if the cgroup was removed or is threaded, because a
/// threaded cgroup does not support reading this file (EOPNOTSUPP).
pub(crate) fn read_procs(directory: &std::path::Path) -> Result<Vec<Pid>, OsError> {
    let text = match read_text(&directory.join("cgroup.procs")) {
        Ok(text) => text,
        Err(e) if e.is_gone() || e.is_not_supported() => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let pids = text.lines().filter_map(|line| line.parse().ok());
    Ok(pids.map(Pid).collect())
}

/// The processes whose `cgroup` file contains the container.
fn scan(host: &HostRoot, container: &Container) -> Result<Vec<Pid>, OsError> {
    let mut pids = Vec::new();
    for pid in numbers_in(host.proc.clone())? {
        let path = host.proc.join(format!("{pid}/cgroup"));
        let text = match read_optional_text(&path) {
            Ok(Some(text)) => text,
            Ok(None) => continue,
            Err(e) if e.is_gone() => continue,
            Err(e) => return Err(e),
        };
        let path = parse_membership(&text).map(|(_, _, path)| path);
        if path.is_some_and(|path| container.names.is_in(path)) {
            pids.push(Pid(pid));
        }
    }
    Ok(pids)
}
