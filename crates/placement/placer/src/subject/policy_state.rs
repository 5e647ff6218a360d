//! The policy of a subject, as requested and as in force.

use albacore_plan::{Enforcement, PlacementMethod, SubjectPolicy};

#[derive(Debug)]
pub(crate) struct PolicyState {
    requested: SubjectPolicy,
    /// As requested, except that a CPU quota may reduce the threads.
    in_force: SubjectPolicy,
    /// A write was denied by the kernel: no more writes are attempted until the policy is set
    /// again.
    is_refused: bool,
    /// Masks must be restored once, because enforcement changed from Enforce to Observe.
    is_releasing: bool,
}

impl PolicyState {
    pub(crate) fn new(policy: SubjectPolicy) -> Self {
        Self {
            requested: policy.clone(),
            in_force: policy,
            is_refused: false,
            is_releasing: false,
        }
    }

    pub(crate) fn requested(&self) -> &SubjectPolicy {
        &self.requested
    }

    pub(crate) fn in_force(&self) -> &SubjectPolicy {
        &self.in_force
    }

    pub(crate) fn set(&mut self, policy: SubjectPolicy) {
        let was_enforced = self.in_force.enforcement == Enforcement::Enforce || self.is_releasing;
        self.is_releasing = was_enforced && policy.enforcement == Enforcement::Observe;
        self.requested = policy.clone();
        self.in_force = policy;
        self.is_refused = false;
    }

    /// Sets the number of threads placed per worker; true if it changed.
    pub(crate) fn set_threads(&mut self, threads: u16) -> bool {
        let before = std::mem::replace(&mut self.in_force.threads, threads);
        before != threads
    }

    pub(crate) fn refuse(&mut self) {
        self.is_refused = true;
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }

    pub(crate) fn may_write(&self) -> bool {
        self.in_force.enforcement == Enforcement::Enforce && !self.is_refused
    }

    /// True if threads are placed by the solver.
    pub(crate) fn is_solved(&self) -> bool {
        self.in_force.placement == PlacementMethod::Tuna && self.may_write()
    }

    /// True if masks must be restored now; false from the next call on.
    pub(crate) fn take_release(&mut self) -> bool {
        std::mem::take(&mut self.is_releasing)
    }
}
