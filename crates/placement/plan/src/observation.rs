//! Snapshot of a process tree, its cpuset and the machine.

use albacore_topology::{CpuSet, Topology};
use albacore_values::{Micros, Pid, Tid};

/// Unique id of a thread: tids are reused, but not together with a start time. Ordered by start
/// time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadId {
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
    pub tid: Tid,
}

/// Unique id of a process. Ordered by start time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProcessId {
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
    pub pid: Pid,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObservedThread {
    pub id: ThreadId,
    pub comm: String,
    /// Its current affinity mask; empty if its cpu went offline.
    pub mask: CpuSet,
    /// CPU time used so far in clock ticks, if known; only compared within a process.
    pub cpu_ticks: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    pub id: ProcessId,
    /// Lower bound of its start time.
    pub not_before: Micros,
    /// The parent process.
    pub parent: Pid,
    /// Its command line; after a fork without exec, that of its parent.
    pub cmdline: String,
    pub threads: Vec<ObservedThread>,
}

impl Process {
    /// The main thread, unless it has exited.
    pub fn main(&self) -> Option<&ObservedThread> {
        self.threads
            .iter()
            .find(|thread| thread.id.tid.0 == self.id.pid.0)
    }
}

/// The kind of server, which determines how its workers are recognized.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ServerKind {
    /// The built-in server: workers are the descendants of the root with threads named
    /// `albw<worker>.<rank>`.
    Named,
    /// Any pre-fork server (gunicorn...): workers are similar children of one process, recognized
    /// by the shape of the tree.
    PreFork,
}

/// Observation of one subject (process tree).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observation {
    pub at: Micros,
    /// All online cpus of the machine.
    pub machine: Topology,
    /// The effective cpuset of the subject; may be empty.
    pub cpuset: CpuSet,
    /// Number of observed or announced changes of the cpuset: between two equal cpusets with
    /// different counts there may have been another one, for which old kernels overwrite masks.
    pub cpuset_changes: u64,
    pub server_kind: ServerKind,
    /// The live processes of the tree: the root first, parents before children.
    pub processes: Vec<Process>,
}
