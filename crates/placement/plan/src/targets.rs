//! Computes the target mask of each thread of a worker.
//!
//! Ranks below T get the cpu of their slot in the mapping; with `MainThread::WorkerSet`, rank 0
//! gets all cpus of its worker. Extra threads (beyond T, or unnamed in a worker with named threads)
//! also get the cpus of their worker: they inherit the mask of the thread that created them, and an
//! extra thread left on a main thread's cpu would compete with the main thread alone.

use std::collections::BTreeMap;

use albacore_solver::{Mapping, Rank, Slot, WorkerIndex};
use albacore_topology::CpuSet;

use crate::ranks::RankedThreads;
use crate::{
    MainThread, PlacementWarning, Process, ProcessId, ServerKind, SubjectPolicy, ThreadId,
};

/// Role of a placed thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ThreadRole {
    /// Fills a slot of its worker.
    Ranked(Slot),
    /// Belongs to a worker without filling a slot.
    Extra(WorkerIndex),
    /// Runs this event loop of the front end.
    Front(u16),
}

impl ThreadRole {
    /// Its slot, if any.
    pub fn slot(self) -> Option<Slot> {
        match self {
            Self::Ranked(slot) => Some(slot),
            Self::Extra(_) | Self::Front(_) => None,
        }
    }

    /// Its worker, if any.
    pub fn worker(self) -> Option<WorkerIndex> {
        match self {
            Self::Ranked(slot) => Some(slot.worker),
            Self::Extra(worker) => Some(worker),
            Self::Front(_) => None,
        }
    }

    /// Its event loop, if any.
    pub fn front(self) -> Option<u16> {
        match self {
            Self::Front(index) => Some(index),
            Self::Ranked(_) | Self::Extra(_) => None,
        }
    }
}

/// Planned state of one thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    pub process: ProcessId,
    pub role: ThreadRole,
    pub mask: CpuSet,
}

/// Computes the targets of a worker's threads.
pub(crate) struct TargetBuilder<'a> {
    pub(crate) policy: &'a SubjectPolicy,
    pub(crate) server_kind: ServerKind,
    /// `None` if the kernel places the threads; then there are no targets.
    pub(crate) mapping: Option<&'a Mapping>,
    pub(crate) cpuset: &'a CpuSet,
}

impl TargetBuilder<'_> {
    /// The cpus of a worker's slots.
    pub(crate) fn worker_set(&self, worker: WorkerIndex) -> CpuSet {
        let slots = self.mapping.into_iter().flat_map(Mapping::iter);
        let own = slots
            .filter(|(slot, _)| slot.worker == worker)
            .map(|(_, cpu)| cpu);
        own.filter(|&cpu| self.cpuset.contains(cpu)).collect()
    }

    /// The targets of all threads of a worker.
    pub(crate) fn at(
        &self,
        worker: WorkerIndex,
        process: &Process,
        ranked: RankedThreads,
        warnings: &mut Vec<PlacementWarning>,
    ) -> BTreeMap<ThreadId, Target> {
        let policy = self.policy;
        let own = self.worker_set(worker);
        let target = |role, mask| Target {
            process: process.id,
            role,
            mask,
        };
        let found = ranked.slots.len();
        let (requested, is_short) = (policy.threads, found < usize::from(policy.threads));
        if is_short {
            warnings.push(PlacementWarning::MissingThreads {
                worker,
                found,
                requested,
            });
        }
        let pins_main = policy.main_thread == MainThread::Pinned;
        let waits =
            is_short && self.server_kind == ServerKind::PreFork && !policy.is_pool_size_known;
        if waits && pins_main && self.mapping.is_some() {
            warnings.push(PlacementWarning::PoolSizeUnsafe { worker });
        }
        let mut targets = BTreeMap::new();
        for (slot, thread) in ranked.slots {
            let cpu = || {
                self.mapping?
                    .cpu(slot)
                    .filter(|&cpu| self.cpuset.contains(cpu))
            };
            let mask = if slot.rank == Rank(0) && (!pins_main || waits) {
                own.clone()
            } else {
                cpu().into_iter().collect()
            };
            targets.insert(thread, target(ThreadRole::Ranked(slot), mask));
        }
        if !ranked.extra.is_empty() {
            warnings.push(PlacementWarning::ExtraThreads {
                worker,
                count: ranked.extra.len(),
            });
        }
        for thread in ranked.extra {
            targets.insert(thread, target(ThreadRole::Extra(worker), own.clone()));
        }
        // A mapping older than the cpuset may result in an empty mask: such threads have no target
        // until the problem is solved again.
        targets.retain(|_, target| !target.mask.is_empty());
        targets
    }
}
