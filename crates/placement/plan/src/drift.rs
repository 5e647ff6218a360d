//! Classifies why an affinity mask differs from the planned one. The kernel does not record who
//! changed a mask, so the cause is inferred from the available evidence, as defined here.

use albacore_solver::Slot;
use albacore_topology::CpuSet;

use crate::plan_history::{Environment, PlanHistory};
use crate::{Micros, ObservedThread, ProcessId, ThreadId};

/// Likely cause of a mask drift.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MaskDriftCause {
    /// The cpuset changed since the mask was verified, or within the last seconds (on a node
    /// usually by the kubelet).
    CpusetChange,
    /// A cpu went online or offline since the mask was verified, or the mask is empty because its
    /// cpu went offline.
    Hotplug,
    /// The mask of a verified thread was changed by another party: a person, another tool, or the
    /// server itself. The kernel does not record which.
    Foreign,
    /// A new thread with the whole cpuset as its mask.
    NewThread,
    /// A new thread that inherited the narrower mask of its parent thread.
    Inherited,
    /// The plan changed: another policy, mapping, or rank of the thread.
    Policy,
    /// No other cause applies.
    Unknown,
}

impl MaskDriftCause {
    /// The name of the cause in snake_case, as in JSON and metrics.
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

/// An affinity mask that differs from the planned one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MaskDrift {
    pub thread: ThreadId,
    pub process: ProcessId,
    /// The slot of the thread; `None` for an extra thread or one that is not placed.
    pub slot: Option<Slot>,
    pub planned: CpuSet,
    pub actual: CpuSet,
    pub cause: MaskDriftCause,
}

/// Infers the cause of a mask drift of `thread`.
pub(crate) fn cause_of(
    thread: &ObservedThread,
    environment: &Environment,
    now: Micros,
    history: &PlanHistory,
) -> MaskDriftCause {
    let Some(verified) = history.verified.get(&thread.id) else {
        return if history.is_unrepaired(thread.id) {
            MaskDriftCause::Foreign
        } else if thread.mask.is_empty() {
            MaskDriftCause::Hotplug
        } else if thread.mask == environment.cpuset || history.restored.contains_key(&thread.id) {
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
    } else if thread.mask == environment.cpuset && history.is_settling(now) {
        MaskDriftCause::CpusetChange
    } else {
        MaskDriftCause::Foreign
    }
}
