//! The events that a placer reports, as a closed enum.

use albacore_os::{Pid, Tid};
use albacore_plan::{BackOff, MaskDriftCause, PlacementWarning};
use albacore_solver::{Mapping, Relaxation, Slot, WorkerIndex};
use albacore_topology::CpuSet;

use crate::{MicrosHistogram, SubjectId};

/// Why a thread was new.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SpawnKind {
    /// It existed when the subject was added, or belongs to the first process of its worker.
    Start,
    /// It belongs to a process that replaced a worker, and was spawned together with it (within its
    /// first second).
    Respawn,
    /// It was spawned later, unannounced.
    NewThread,
}

impl SpawnKind {
    /// The name of the kind in snake_case, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Respawn => "respawn",
            Self::NewThread => "new_thread",
        }
    }
}

/// One event. Times are in microseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// A mapping was solved, because the policy, cpuset or topology changed, or the subjects that
    /// share the machine. In a joint problem, objective, bound, `optimal`, `relaxed` and the time
    /// are those of all its members, and only subjects whose mapping or problem changed are
    /// reported.
    Planned {
        subject: SubjectId,
        /// The cpuset for which it was solved.
        cpuset: CpuSet,
        /// Objective in clock cycles.
        objective: i64,
        /// Upper bound of the objective of all mappings.
        bound: i64,
        /// True if it is proven optimal.
        optimal: bool,
        /// Rules that had to be relaxed.
        relaxed: Vec<Relaxation>,
        /// Duration of the solve.
        solve_micros: u64,
        mapping: Mapping,
    },
    /// A process became a worker.
    WorkerSpawned {
        subject: SubjectId,
        worker: WorkerIndex,
        pid: Pid,
        /// Number of earlier processes with this index.
        respawns: u32,
    },
    /// The process of a worker exited.
    WorkerExited {
        subject: SubjectId,
        worker: WorkerIndex,
        pid: Pid,
    },
    /// The mask of a thread was written and read back as planned.
    Pinned {
        subject: SubjectId,
        /// Its slot; `None` for an extra thread beyond T and for an event loop.
        slot: Option<Slot>,
        /// Its event loop of the front end, if any.
        front: Option<u16>,
        pid: Pid,
        tid: Tid,
        mask: CpuSet,
        /// Why it had to be written.
        cause: MaskDriftCause,
        /// Upper bound of the time from its spawn to the verified mask; `None` unless this is its
        /// first mask.
        spawn_to_verified_micros: Option<u64>,
        /// Why it was new, or [`SpawnKind::Start`].
        kind: SpawnKind,
    },
    /// A mask differed from the planned one.
    Drift {
        subject: SubjectId,
        /// Its slot; `None` for an extra thread beyond T and for an event loop.
        slot: Option<Slot>,
        /// Its event loop of the front end, if any.
        front: Option<u16>,
        pid: Pid,
        tid: Tid,
        planned: CpuSet,
        /// The mask found.
        actual: CpuSet,
        cause: MaskDriftCause,
    },
    /// The mask of a thread is not repaired for a while, because another program changed it too
    /// often.
    BackedOff {
        subject: SubjectId,
        /// Its slot, if any.
        slot: Option<Slot>,
        tid: Tid,
        /// Number of changes, and when the planned mask is written again.
        back_off: BackOff,
    },
    /// The cpuset of a subject changed.
    CpusetChanged {
        subject: SubjectId,
        /// The new cpuset.
        cpuset: CpuSet,
    },
    /// Cpus of the machine went online or offline.
    MachineChanged { online: CpuSet },
    /// A warning that the previous plan did not have.
    Warning {
        subject: SubjectId,
        warning: PlacementWarning,
    },
    /// The set of hot threads changed.
    WeightsChanged {
        subject: SubjectId,
        /// Number of hot threads of workers.
        hot: usize,
        /// Number of hot threads whose masks are not planned and that may not use the whole cpuset.
        other_hot: usize,
        /// Workers exchanged their cpus because of it; a plan is reported next.
        is_reordered: bool,
    },
    /// The file of measured distances was read, changed or removed.
    Distances {
        /// Why it is not used; `None` if it is used or was removed.
        problem: Option<String>,
    },
    /// A sched_ext scheduler is active: masks are observed but not written, because it may starve
    /// threads with affinity masks.
    ForeignScheduler,
    /// The priority of the placer's thread could not be raised: while every cpu is busy, it reacts
    /// later.
    UsualPriority,
    /// The effective policy of a subject changed.
    PolicySet { subject: SubjectId },
    /// One mask could not be written or read; this will be retried.
    StepFailed {
        subject: SubjectId,
        tid: Tid,
        /// The reason, as a sentence.
        reason: String,
    },
    /// The root process of a subject exited; the subject is removed.
    SubjectGone { subject: SubjectId },
    /// Enforcement changed from Enforce to Observe: the subject's masks were restored once, and
    /// none are written from now on.
    Released {
        subject: SubjectId,
        /// The restored masks.
        restored: RestoreSummary,
    },
    /// Masks were restored.
    Restored(RestoreSummary),
    /// An operation failed. It is retried, and reported again only after it succeeded in between.
    Failed {
        /// As [`crate::PlacerError::category`].
        category: &'static str,
        /// The reason, as a sentence.
        reason: String,
    },
}

/// Result of restoring masks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RestoreSummary {
    /// Number of masks restored and verified.
    pub count: usize,
    /// The first few errors, as sentences.
    pub errors: Vec<String>,
    /// Total number of errors.
    pub errors_total: usize,
}

/// Counters since the start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PlacerCounters {
    /// Calls of `sched_setaffinity`.
    pub setaffinity_calls: u64,
    /// Masks that differed from the planned ones.
    pub drifts: u64,
    /// Workers that replaced another one.
    pub respawns: u64,
    /// Number of complete readings of the masks of all threads of all subjects. Does not increase
    /// while masks cannot be read.
    pub sweeps: u64,
    /// Time from spawn to verified mask of threads of respawned workers.
    pub respawn_micros: MicrosHistogram,
    /// Time from spawn to verified mask of unexpected threads.
    pub new_thread_micros: MicrosHistogram,
    pub solves: u64,
    /// Verified threads whose mask was reset to the whole cpuset by a cpuset change or a cpu that
    /// went offline.
    pub widened: u64,
    /// Spawn events received for the whole machine.
    pub spawn_events: u64,
    /// Number of times that events were lost, and everything was scanned instead.
    pub spawn_events_lost: u64,
    /// CPU time used by [`crate::Placer::step`], including report callbacks, in microseconds.
    pub cpu_micros: u64,
    /// Factor by which periods are currently lengthened because the CPU budget was exceeded. At
    /// least 1.
    pub slowdown: u32,
}

impl RestoreSummary {
    /// Adds the result of another subject.
    pub(crate) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.errors.extend(other.errors);
        self.errors_total += other.errors_total;
    }
}
