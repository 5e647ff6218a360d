//! What a placer and its subjects are started with.

use std::path::PathBuf;

use albacore_os::{Cgroup, HostRoot, Pid};
use albacore_plan::{ServerKind, SubjectPolicy};
use albacore_topology::CpuSet;

/// Names a subject within one placer; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SubjectId(pub u32);

/// What a placer is started with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacerConfig {
    /// Where the kernel's trees are.
    pub host: HostRoot,
    /// Cpus outside this set are never used even if a cpuset holds them (`taskset ... albacore
    /// run`); `None`: all of the cpuset.
    pub limit: Option<CpuSet>,
    /// A file of measured distances, or a folder with one for each kind of machine, named by the
    /// hash of its topology (`0123456789abcdef.json`).
    pub distances: Option<PathBuf>,
}

impl PlacerConfig {
    /// The live machine, without a limit.
    pub fn live() -> Self {
        Self {
            host: HostRoot::live(),
            limit: None,
            distances: None,
        }
    }
}

/// A process tree to place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubjectConfig {
    /// The process at the top.
    pub root: Pid,
    /// What kind of tree it is.
    pub server_kind: ServerKind,
    /// What the user asked.
    pub policy: SubjectPolicy,
    /// The cgroup of its container: no thread of a process that is not in it or below is ever
    /// touched. `None`: all descendants of the root, in whichever cgroups they are.
    pub cgroup: Option<Cgroup>,
}
