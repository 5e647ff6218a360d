//! Configuration of a placer and of the process trees that it places.

use std::path::PathBuf;

use albacore_os::{Cgroup, HostRoot, Pid};
use albacore_plan::{ServerKind, SubjectPolicy};
use albacore_topology::CpuSet;

/// Id of a subject (process tree) within one placer; never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SubjectId(pub u32);

/// Configuration of a placer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacerConfig {
    /// Mount points of procfs, sysfs and cgroups.
    pub host: HostRoot,
    /// Cpus outside of this set are never used, even if a cpuset contains them (`taskset ...
    /// albacore run`). `None`: no limit.
    pub limit: Option<CpuSet>,
    /// A file of measured distances, or a directory with one file per kind of machine, named by the
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

/// Configuration of a process tree to place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubjectConfig {
    /// The root process.
    pub root: Pid,
    /// The kind of server.
    pub server_kind: ServerKind,
    /// The policy requested by the user.
    pub policy: SubjectPolicy,
    /// The cgroup of its container: threads of processes outside of it and its descendants are
    /// never modified. `None`: all descendants of the root, in any cgroup.
    pub cgroup: Option<Cgroup>,
}
