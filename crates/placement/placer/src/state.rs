//! The state of a subject as a whole.

use std::collections::BTreeMap;

use albacore_os::CpuQuota;
use albacore_plan::{MaskDriftCause, PlacementWarning, ServerShape, SubjectPolicy};
use albacore_solver::Mapping;
use albacore_topology::{CpuId, CpuSet};

use crate::{FrontRow, SubjectId};

/// The state of a subject.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubjectState {
    pub subject: SubjectId,
    /// The cpus it may use now; empty while it has none and waits.
    pub cpuset: CpuSet,
    /// The policy in force: as asked, but for `threads`, which a quota of cpu time may make fewer.
    pub policy: SubjectPolicy,
    pub threads_asked: u16,
    pub workers_found: usize,
    /// What its process tree tells of workers and threads, whatever the policy asks.
    pub shape: Option<ServerShape>,
    /// Those that hold now; [`crate::Report::Warning`] reports each when it is new.
    pub warnings: Vec<PlacementWarning>,
    /// Masks found not as planned since it was added, by cause.
    pub drifts: BTreeMap<MaskDriftCause, u64>,
    /// Verified threads that were found on the whole cpuset although no policy asked for it:
    /// a change of the cpuset or a cpu that went lost their masks.
    pub widened: u64,
    /// Workers that replaced another since it was added.
    pub respawns: u64,
    /// Processes in its cgroup that do not descend from its root (`kubectl exec`, probes): never
    /// placed.
    pub entered: usize,
    /// Its quota of cpu time, and how often it was stopped for it; as its cgroup counts, from its
    /// beginning.
    pub quota: CpuQuota,
    /// True if its quota stopped it since the check before the last.
    pub is_throttled: bool,
    /// The kernel forbade a write: it is only observed until its policy is set anew.
    pub is_refused: bool,
    /// The event loops of the front end that are placed, by process and number.
    pub front: Vec<FrontRow>,
    /// Equal for equal mappings of equal sizes on equal machines. `None` while nothing is solved.
    pub plan_hash: Option<u64>,
    /// The mapping in force. `None` while nothing is solved.
    pub mapping: Option<Mapping>,
    /// Whether the solver places it and its masks are written: a member of the joint problem.
    pub is_solved: bool,
    /// The cpus of threads that count as obstacles, once for each: hot ones that no worker has, and
    /// of a subject that is not solved all that are known to sit on one cpu.
    pub fixed_threads: Vec<CpuId>,
    /// Threads of workers that are hot by the weights in force; `None` until that was measured.
    pub hot_threads: Option<usize>,
    /// Of the online machine.
    pub topology_hash: u64,
}
