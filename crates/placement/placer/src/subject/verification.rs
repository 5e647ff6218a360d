//! Target masks of a subject's threads, and when each was last found as planned.

use std::collections::{BTreeMap, BTreeSet};

use albacore_os::Micros;
use albacore_plan::{MaskDrift, MaskDriftCause, Target, ThreadId};
use albacore_topology::CpuSet;

#[derive(Debug, Default)]
pub(crate) struct Verification {
    targets: BTreeMap<ThreadId, Target>,
    verified_at: BTreeMap<ThreadId, Micros>,
    /// Threads in slots whose first mask was verified.
    placed: BTreeSet<ThreadId>,
    /// Drifts that were reported and not repaired yet: planned and actual mask.
    reported: BTreeMap<ThreadId, (CpuSet, CpuSet)>,
    drifts: BTreeMap<MaskDriftCause, u64>,
    widened: u64,
}

/// A drift that was not reported before.
pub(crate) struct NewDrift {
    /// The mask was lost by a cpuset change or a cpu that went offline.
    pub(crate) is_widened: bool,
}

impl Verification {
    pub(crate) fn targets(&self) -> &BTreeMap<ThreadId, Target> {
        &self.targets
    }

    pub(crate) fn set_targets(&mut self, targets: BTreeMap<ThreadId, Target>) {
        self.targets = targets;
    }

    pub(crate) fn verified_at(&self, thread: ThreadId) -> Option<Micros> {
        self.verified_at.get(&thread).copied()
    }

    /// Drifts since the subject was added.
    pub(crate) fn drifts(&self) -> &BTreeMap<MaskDriftCause, u64> {
        &self.drifts
    }

    /// Verified threads whose mask was reset to the whole cpuset although no target requested it.
    pub(crate) fn widened(&self) -> u64 {
        self.widened
    }

    /// Counts a drift, unless it was already reported.
    pub(crate) fn add_drift(&mut self, drift: &MaskDrift, cpuset: &CpuSet) -> Option<NewDrift> {
        let masks = (drift.planned.clone(), drift.actual.clone());
        if self.reported.get(&drift.thread) == Some(&masks) {
            return None;
        }
        *self.drifts.entry(drift.cause).or_insert(0) += 1;
        let is_lost = matches!(
            drift.cause,
            MaskDriftCause::CpusetChange | MaskDriftCause::Hotplug
        );
        let is_widened = is_lost && drift.actual == *cpuset;
        self.widened += u64::from(is_widened);
        self.verified_at.remove(&drift.thread);
        self.reported.insert(drift.thread, masks);
        Some(NewDrift { is_widened })
    }

    /// Removes threads that no longer have a target.
    pub(crate) fn retain(&mut self, targets: &BTreeMap<ThreadId, Target>) {
        self.placed.retain(|thread| targets.contains_key(thread));
        self.reported
            .retain(|thread, _| targets.contains_key(thread));
        self.verified_at
            .retain(|thread, _| targets.contains_key(thread));
    }

    /// Records that the mask of a thread was read as planned.
    pub(crate) fn verify(&mut self, thread: ThreadId, at: Micros) {
        self.verified_at.insert(thread, at);
    }

    /// Ends the reported drift of a thread.
    pub(crate) fn end_drift(&mut self, thread: ThreadId) {
        self.reported.remove(&thread);
    }

    /// True if the thread was not placed before.
    pub(crate) fn is_first_placement(&mut self, thread: ThreadId) -> bool {
        self.placed.insert(thread)
    }
}
