//! Why a mask is not the planned one. The kernel does not record who wrote a mask, so a cause is
//! the best that follows from what is known: it is never more certain than its definition here.

use albacore_solver::Slot;
use albacore_topology::CpuSet;

use crate::ledger::{Environment, Ledger};
use crate::{Micros, ObservedThread, ProcessId, ThreadId};

/// Why a mask drifted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MaskDriftCause {
    /// The cpuset changed since the mask was verified or seconds before (on a node usually the
    /// kubelet's doing).
    CpusetChange,
    /// A cpu came or went since the mask was verified, or the mask is empty because its cpu went.
    Hotplug,
    /// Somebody else wrote the mask of a verified thread: a person, another tool, or the server
    /// itself. The kernel does not record which.
    Foreign,
    /// The thread is new and has the whole cpuset.
    NewThread,
    /// The thread is new and has the narrower mask of the thread that spawned it.
    Inherited,
    /// The plan itself changed: another policy, another mapping, another rank for the thread.
    Policy,
    /// None of the above explains it.
    Unknown,
}

impl MaskDriftCause {
    /// The cause in snake_case, as in JSON and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::CpusetChange => "cpuset_change",
            Self::Hotplug => "hotplug",
            Self::Foreign => "foreign",
            Self::NewThread => "new_thread",
            Self::Inherited => "inherited",
            Self::Policy => "policy",
            Self::Unknown => "unknown",
        }
    }
}

/// A mask that is not the planned one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MaskDrift {
    pub thread: ThreadId,
    pub process: ProcessId,
    /// The slot it fills; `None` for an extra thread or one that is not placed.
    pub slot: Option<Slot>,
    pub planned: CpuSet,
    pub actual: CpuSet,
    pub cause: MaskDriftCause,
}

/// Why the mask of `thread` is not the planned one.
pub(crate) fn cause_of(
    thread: &ObservedThread,
    environment: &Environment,
    now: Micros,
    ledger: &Ledger,
) -> MaskDriftCause {
    let Some(verified) = ledger.verified.get(&thread.id) else {
        return if ledger.is_unrepaired(thread.id) {
            MaskDriftCause::Foreign
        } else if thread.mask.is_empty() {
            MaskDriftCause::Hotplug
        } else if thread.mask == environment.cpuset || ledger.given_back.contains_key(&thread.id) {
            MaskDriftCause::NewThread
        } else if thread.mask.is_subset(&environment.cpuset) {
            MaskDriftCause::Inherited
        } else {
            MaskDriftCause::Unknown
        };
    };
    if verified.environment.machine != environment.machine || thread.mask.is_empty() {
        MaskDriftCause::Hotplug
    } else if verified.environment.cpuset != environment.cpuset
        || verified.environment.cpuset_changes != environment.cpuset_changes
    {
        MaskDriftCause::CpusetChange
    } else if thread.mask == verified.mask {
        MaskDriftCause::Policy
    } else if !thread.mask.is_subset(&environment.cpuset) {
        MaskDriftCause::Unknown
    } else if thread.mask == environment.cpuset && ledger.is_settling(now) {
        MaskDriftCause::CpusetChange
    } else {
        MaskDriftCause::Foreign
    }
}
