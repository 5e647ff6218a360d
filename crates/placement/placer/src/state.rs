//! Overall state of a subject.

use std::collections::BTreeMap;

use albacore_os::CpuQuota;
use albacore_plan::{MaskDriftCause, PlacementWarning, ServerShape, SubjectPolicy};
use albacore_solver::Mapping;
use albacore_topology::{CpuId, CpuSet};

use crate::{FrontRow, SubjectId};

/// Overall state of a subject.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubjectState {
    pub subject: SubjectId,
    /// The cpus that it may currently use; empty while it waits for cpus.
    pub cpuset: CpuSet,
    /// The effective policy: as requested, except that a CPU quota may reduce `threads`.
    pub policy: SubjectPolicy,
    pub threads_requested: u16,
    pub workers_found: usize,
    /// Number of workers and threads found in its process tree, independent of the policy.
    pub shape: Option<ServerShape>,
    /// Current warnings; [`crate::Report::Warning`] reports each new one.
    pub warnings: Vec<PlacementWarning>,
    /// Number of masks that differed from the planned ones since it was added, by cause.
    pub drifts: BTreeMap<MaskDriftCause, u64>,
    /// Verified threads whose mask was reset to the whole cpuset although no policy requested it,
    /// by a cpuset change or a cpu that went offline.
    pub widened: u64,
    /// Workers that replaced another one since it was added.
    pub respawns: u64,
    /// Processes in its cgroup that do not descend from its root (`kubectl exec`, probes); never
    /// placed.
    pub foreign_processes: usize,
    /// Its CPU quota and throttling statistics, counted by the kernel since its cgroup was created.
    pub quota: CpuQuota,
    /// True if it was throttled since the check before the last.
    pub is_throttled: bool,
    /// A write was denied by the kernel: the subject is only observed until its policy is set
    /// again.
    pub is_refused: bool,
    /// The placed event loops of the front end, by process and index.
    pub front: Vec<FrontRow>,
    /// Equal for equal mappings of equal sizes on equal machines. `None` while there is no
    /// solution.
    pub plan_hash: Option<u64>,
    /// The mapping in force. `None` while there is no solution.
    pub mapping: Option<Mapping>,
    /// True if it is a member of the joint problem: placed by the solver, with masks written.
    pub is_solved: bool,
    /// The cpus of threads that count as obstacles, once per thread: hot threads that belong to no
    /// worker, and for a subject that is not solved, all threads known to have a single cpu.
    pub obstacle_cpus: Vec<CpuId>,
    /// Hot threads of workers according to the weights in force; `None` until measured.
    pub hot_threads: Option<usize>,
    /// Hash of the topology of the online machine.
    pub topology_hash: u64,
}
