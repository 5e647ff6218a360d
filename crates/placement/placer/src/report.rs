//! The events that a placer reports: a closed list.

use albacore_os::{Pid, Tid};
use albacore_plan::{BackOff, MaskDriftCause, PlacementWarning};
use albacore_solver::{Mapping, Relaxation, Slot, WorkerIndex};
use albacore_topology::CpuSet;

use crate::{MicrosHistogram, SubjectId};

/// Why a thread was new.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SpawnKind {
    /// It was there when the subject was added, or belongs to the first process of its worker.
    Start,
    /// It belongs to a process that replaced a worker, and was spawned with it (within its first
    /// second).
    Respawn,
    /// It was spawned later, unannounced.
    NewThread,
}

impl SpawnKind {
    /// The kind in snake_case, as in JSON.
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
    /// A mapping was solved, because policy, cpuset or machine changed, or the subjects that share
    /// the machine. Where they do, objective, bound, `optimal`, `relaxed` and the time are those of
    /// all of them together, and only subjects with another mapping or problem than before are
    /// reported.
    Planned {
        subject: SubjectId,
        /// The cpuset it is for.
        cpuset: CpuSet,
        /// Value reached, clock cycles.
        objective: i64,
        /// No mapping is above this.
        bound: i64,
        /// Whether it is proven optimal.
        optimal: bool,
        /// Rules that had to be loosened.
        relaxed: Vec<Relaxation>,
        /// Time the solver took.
        solve_micros: u64,
        mapping: Mapping,
    },
    /// A process became worker.
    WorkerSpawned {
        subject: SubjectId,
        worker: WorkerIndex,
        pid: Pid,
        /// How many processes had this index before.
        respawns: u32,
    },
    /// The process of a worker ended.
    WorkerExited {
        subject: SubjectId,
        worker: WorkerIndex,
        pid: Pid,
    },
    /// A thread's mask was written and read back as planned.
    Pinned {
        subject: SubjectId,
        /// The slot it fills; `None` for a thread beyond T and for an event loop.
        slot: Option<Slot>,
        /// The event loop of the front end that it runs, if it does.
        front: Option<u16>,
        pid: Pid,
        tid: Tid,
        mask: CpuSet,
        /// Why it had to be written.
        cause: MaskDriftCause,
        /// At most this time went by from its spawn to the verified mask; `None` unless this is its
        /// first mask.
        spawn_to_verified_micros: Option<u64>,
        /// Why it was new, or [`SpawnKind::Start`].
        kind: SpawnKind,
    },
    /// A mask was not the planned one.
    Drift {
        subject: SubjectId,
        /// The slot it fills; `None` for a thread beyond T and for an event loop.
        slot: Option<Slot>,
        /// The event loop of the front end that it runs, if it does.
        front: Option<u16>,
        pid: Pid,
        tid: Tid,
        planned: CpuSet,
        /// The mask that was found.
        actual: CpuSet,
        cause: MaskDriftCause,
    },
    /// A thread is left as it is for a while, because another program changed its mask too often.
    BackedOff {
        subject: SubjectId,
        /// The slot it fills, if any.
        slot: Option<Slot>,
        tid: Tid,
        /// How often it was changed, and when the planned mask is written again.
        back_off: BackOff,
    },
    /// The cpuset of a subject is another one now.
    CpusetChanged {
        subject: SubjectId,
        /// What it may use now.
        cpuset: CpuSet,
    },
    /// Cpus of the machine came or went.
    MachineChanged { online: CpuSet },
    /// A warning that the plan before did not have.
    Warning {
        subject: SubjectId,
        warning: PlacementWarning,
    },
    /// Other threads are hot than before.
    WeightsChanged {
        subject: SubjectId,
        /// Threads of workers that are hot.
        hot: usize,
        /// Hot threads whose masks are not planned and that may not use the whole cpuset.
        other_hot: usize,
        /// Workers have exchanged their cpus because of it; a plan is reported next.
        is_reordered: bool,
    },
    /// The file of measured distances was read, changed or is gone.
    Distances {
        /// Why it is not used; `None`: it is, or there is none any more.
        problem: Option<String>,
    },
    /// A sched_ext scheduler runs: masks are observed and not written, because it may starve
    /// threads that have one.
    ForeignScheduler,
    /// The thread that places has no raised priority: while every cpu is busy, it places later.
    UsualPriority,
    /// The effective policy of a subject changed.
    PolicySet { subject: SubjectId },
    /// One mask could not be written or read; it will be tried again.
    StepFailed {
        subject: SubjectId,
        tid: Tid,
        /// Why, as a sentence.
        reason: String,
    },
    /// The root process of a subject ended; the subject is forgotten.
    SubjectGone { subject: SubjectId },
    /// Enforcement changed from Enforce to Observe: the subject's masks were given back once, and
    /// none is written from now on.
    Released {
        subject: SubjectId,
        /// What was given back.
        restored: Restored,
    },
    /// Masks were given back.
    Restored(Restored),
    /// Something cannot be done now; it is tried again, and reported again only once it succeeded
    /// in between.
    Failed {
        /// As [`crate::PlacerError::category`].
        category: &'static str,
        /// Why, as a sentence.
        reason: String,
    },
}

/// The result of giving masks back.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Restored {
    /// Masks given back and verified.
    pub count: usize,
    /// What went wrong, as sentences; the first few.
    pub errors: Vec<String>,
    /// How much went wrong.
    pub errors_total: usize,
}

/// Counters since the start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PlacerCounters {
    /// Calls of `sched_setaffinity`.
    pub setaffinity_calls: u64,
    /// Masks found not as planned.
    pub drifts: u64,
    /// Workers that replaced another.
    pub respawns: u64,
    /// How often the masks of all threads of all subjects have been read back. Stands still while
    /// they cannot be read.
    pub sweeps: u64,
    /// Spawn to verified mask of threads of respawned workers.
    pub respawn_micros: MicrosHistogram,
    /// Spawn to verified mask of threads out of the blue.
    pub new_thread_micros: MicrosHistogram,
    pub solves: u64,
    /// Verified threads that were found on the whole cpuset: a change of it, or a cpu that went,
    /// lost their masks.
    pub widened: u64,
    /// SpawnEvents on the machine that the kernel announced.
    pub spawn_events: u64,
    /// How often announcements were lost, and everything was checked instead.
    pub spawn_events_lost: u64,
    /// Cpu time that [`crate::Placer::step`] has used, with the callbacks of reports,
    /// microseconds.
    pub cpu_micros: u64,
    /// How many times longer than usual its periods are now, because it used more than it may. At
    /// least 1.
    pub slowdown: u32,
}

impl Restored {
    /// Adds what was restored of another subject.
    pub(crate) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.errors.extend(other.errors);
        self.errors_total += other.errors_total;
    }
}
