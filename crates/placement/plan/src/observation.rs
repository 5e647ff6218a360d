//! A snapshot of a process tree, its cpuset and the machine, as a value.

use albacore_topology::{CpuSet, Topology};
use albacore_values::{Micros, Pid, Tid};

/// Identifies a thread for good: tids are reused, a tid with its start time is not. Ordered by
/// start time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadId {
    /// When it was spawned, in clock ticks since boot.
    pub start_ticks: u64,
    pub tid: Tid,
}

/// Identifies a process for good. Ordered by start time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProcessId {
    /// When it was spawned, in clock ticks since boot.
    pub start_ticks: u64,
    pub pid: Pid,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObservedThread {
    pub id: ThreadId,
    pub comm: String,
    /// The cpus it may use now; may be empty (its cpu went offline).
    pub mask: CpuSet,
    /// Cpu time used so far in clock ticks, as far as known; only compared within a process.
    pub cpu_ticks: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    pub id: ProcessId,
    /// When it was spawned, at the earliest.
    pub born: Micros,
    /// The process it was forked by.
    pub parent: Pid,
    /// Its command line; a fork without exec has its parent's.
    pub cmdline: String,
    pub threads: Vec<ObservedThread>,
}

impl Process {
    /// The thread the process began with, while it lives.
    pub fn main(&self) -> Option<&ObservedThread> {
        self.threads
            .iter()
            .find(|thread| thread.id.tid.0 == self.id.pid.0)
    }
}

/// The kind of server that is placed, which decides how its workers are recognized.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ServerKind {
    /// The built-in server: workers are the descendants of the root that have threads named
    /// `albw<worker>.<rank>`.
    Named,
    /// Any pre-fork server (gunicorn...): workers are the like children of one process, found by
    /// the tree's shape.
    PreFork,
}

/// What was observed of one subject.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observation {
    pub at: Micros,
    /// All online cpus of the machine.
    pub machine: Topology,
    /// The cpus the subject may use: its effective cpuset; empty if it has none.
    pub cpuset: CpuSet,
    /// How many times the cpuset was seen to change or was announced to: two equal cpusets with
    /// different counts may have had another in between, which on old kernels wipes masks.
    pub cpuset_changes: u64,
    pub server_kind: ServerKind,
    /// The live processes of the tree: the root first, parents before children.
    pub processes: Vec<Process>,
}
