//! State of live threads carried from plan to plan, never written to disk. After a restart the
//! placer begins with an empty history and adopts the masks that are already as planned.

use std::collections::{BTreeMap, BTreeSet};

use albacore_solver::{Slot, WorkerIndex};
use albacore_topology::CpuSet;

use crate::limits::{
    BACK_OFF_MICROS_MAX, BACK_OFF_MICROS_MIN, CHANGES_WINDOW_MICROS, REPAIRS_MAX, SETTLING_MICROS,
};
use crate::{Micros, Observation, ProcessId, ThreadId};

/// The environment of a plan; when it changes, the kernel may change affinity masks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Environment {
    pub(crate) cpuset: CpuSet,
    pub(crate) cpuset_changes: u64,
    pub(crate) machine: u64,
}

impl Environment {
    pub(crate) fn of(observation: &Observation) -> Self {
        Self {
            cpuset: observation.cpuset.clone(),
            cpuset_changes: observation.cpuset_changes,
            machine: observation.machine.hash64(),
        }
    }
}

/// A mask that was read back and is as planned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Verified {
    pub(crate) process: ProcessId,
    pub(crate) mask: CpuSet,
    pub(crate) environment: Environment,
    /// True if this program must restore the mask: it wrote it, or found it in place while
    /// enforcing (an earlier instance wrote it).
    pub(crate) is_ours: bool,
}

/// Foreign changes of a thread's mask, and the resulting back-off.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ForeignChanges {
    /// Times of recent changes.
    recent: Vec<Micros>,
    /// The back-off after too many changes; `None` otherwise.
    back_off: Option<BackOff>,
    /// The last change was recorded, and the planned mask has not been read back since.
    is_unrepaired: bool,
}

/// Back-off of a thread whose mask is not repaired for a while, because another program changed it
/// too often.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BackOff {
    /// Number of changes by another program. The kernel does not record which one.
    pub changes: u32,
    /// Time of detection of the first change.
    pub first: Micros,
    /// Time of detection of the last change.
    pub last: Micros,
    /// Time at which the planned mask is written again.
    pub retry_at: Micros,
}

impl BackOff {
    fn pause_micros(&self) -> u64 {
        self.retry_at.0.saturating_sub(self.last.0)
    }
}

impl ForeignChanges {
    /// Records a change; returns the back-off that starts now, if any.
    fn record(&mut self, now: Micros) -> Option<BackOff> {
        self.is_unrepaired = true;
        let known = self.back_off.take();
        let (changes, first, pause) = match known {
            Some(known) => {
                let pause = (known.pause_micros() * 2).min(BACK_OFF_MICROS_MAX);
                (known.changes.saturating_add(1), known.first, pause)
            }
            None => {
                self.recent.push(now);
                let changes = u32::try_from(self.recent.len()).unwrap_or(u32::MAX);
                if changes <= REPAIRS_MAX {
                    return None;
                }
                let first = self.recent.first().copied().unwrap_or(now);
                (changes, first, BACK_OFF_MICROS_MIN)
            }
        };
        self.recent.clear();
        self.back_off = Some(BackOff {
            changes,
            first,
            last: now,
            retry_at: Micros(now.0.saturating_add(pause)),
        });
        self.back_off
    }

    /// Drops outdated entries; false if nothing is left.
    fn forget_old(&mut self, now: Micros) -> bool {
        let age = |at: Micros| now.0.saturating_sub(at.0);
        self.recent.retain(|at| age(*at) < CHANGES_WINDOW_MICROS);
        // The last attempt succeeded if it lasted as long as the pause before it.
        let lasts = |known: &BackOff| age(known.retry_at) < known.pause_micros();
        self.back_off = self.back_off.filter(lasts);
        !self.recent.is_empty() || self.back_off.is_some() || self.is_unrepaired
    }
}

/// State remembered from earlier plans.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PlanHistory {
    pub(crate) generation: u64,
    /// The last environment, and when it was first seen; `None` for the first environment.
    pub(crate) environment: Environment,
    pub(crate) environment_since: Option<Micros>,
    pub(crate) arbiter: Option<ProcessId>,
    pub(crate) command_pattern: Option<String>,
    pub(crate) workers: BTreeMap<WorkerIndex, ProcessId>,
    pub(crate) slots: BTreeMap<Slot, ThreadId>,
    pub(crate) verified: BTreeMap<ThreadId, Verified>,
    pub(crate) restored: BTreeMap<ThreadId, ProcessId>,
    /// Live threads that were ever placed as event loops of the front end, or inherited the mask of
    /// one.
    pub(crate) front: BTreeSet<ThreadId>,
    pub(crate) changes: BTreeMap<ThreadId, ForeignChanges>,
}

impl PlanHistory {
    /// The worker index that a process had, if it was a worker.
    pub fn index_of(&self, process: ProcessId) -> Option<WorkerIndex> {
        self.workers
            .iter()
            .find(|&(_, &held)| held == process)
            .map(|(&worker, _)| worker)
    }

    /// The process that had a worker index.
    pub fn worker(&self, worker: WorkerIndex) -> Option<ProcessId> {
        self.workers.get(&worker).copied()
    }

    /// The thread that was in a slot.
    pub fn thread_at(&self, slot: Slot) -> Option<ThreadId> {
        self.slots.get(&slot).copied()
    }

    /// The back-off of a thread, if it is active at `now`.
    pub fn back_off(&self, thread: ThreadId, now: Micros) -> Option<BackOff> {
        let known = self.changes.get(&thread)?.back_off;
        known.filter(|known| now < known.retry_at)
    }

    /// The earliest end of an active back-off.
    pub fn next_retry(&self, now: Micros) -> Option<Micros> {
        let known = self.changes.values().filter_map(|changes| changes.back_off);
        let next = known.map(|known| known.retry_at);
        next.filter(|at| now < *at).min()
    }

    /// Drops all back-offs and change counts: every mask is written again with the next plan.
    pub fn clear_changes(&mut self) {
        self.changes.clear();
    }

    /// The live workers by index.
    pub fn workers(&self) -> impl Iterator<Item = (WorkerIndex, ProcessId)> + '_ {
        self.workers
            .iter()
            .map(|(&worker, &process)| (worker, process))
    }

    /// Number of slots with a thread.
    pub fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// The parent process of the workers, if known.
    pub fn arbiter(&self) -> Option<ProcessId> {
        self.arbiter
    }

    /// Drops all threads that have exited.
    pub(crate) fn forget_exited(&mut self, observation: &Observation) {
        let live: BTreeSet<ThreadId> = observation
            .processes
            .iter()
            .flat_map(|p| &p.threads)
            .map(|t| t.id)
            .collect();
        self.verified.retain(|thread, _| live.contains(thread));
        self.restored.retain(|thread, _| live.contains(thread));
        self.front.retain(|thread| live.contains(thread));
        self.changes.retain(|thread, _| live.contains(thread));
    }

    /// Records the environment of a plan. If it changed, recent changes that were classified as
    /// foreign were made by the kernel: overwritten masks may be observed before the change that
    /// caused them.
    pub(crate) fn record_environment(&mut self, environment: &Environment, now: Micros) {
        if self.environment == *environment {
            return;
        }
        let is_first = self.environment == Environment::default();
        self.environment_since = (!is_first).then_some(now);
        self.environment.clone_from(environment);
        let is_older = |at: Micros| now.0.saturating_sub(at.0) >= SETTLING_MICROS;
        for changes in self.changes.values_mut() {
            changes.recent.retain(|at| is_older(*at));
            changes.back_off = changes.back_off.filter(|known| is_older(known.first));
        }
    }

    /// True while the kernel may still be writing masks after a change of the cpuset.
    pub(crate) fn is_settling(&self, now: Micros) -> bool {
        self.environment_since
            .is_some_and(|since| now.0.saturating_sub(since.0) < SETTLING_MICROS)
    }

    /// True if another program changed the thread's mask, and this was recorded but not yet
    /// repaired.
    pub(crate) fn is_unrepaired(&self, thread: ThreadId) -> bool {
        let changes = self.changes.get(&thread);
        changes.is_some_and(|changes| changes.is_unrepaired)
    }

    /// Records that the thread's mask is the planned one.
    pub(crate) fn record_repaired(&mut self, thread: ThreadId) {
        if let Some(changes) = self.changes.get_mut(&thread) {
            changes.is_unrepaired = false;
        }
    }

    /// Records that another program changed a mask that we wrote; returns the back-off that starts
    /// now, if any.
    pub(crate) fn record_change(&mut self, thread: ThreadId, at: Micros) -> Option<BackOff> {
        let back_off = self.changes.entry(thread).or_default().record(at)?;
        self.verified.remove(&thread);
        Some(back_off)
    }

    pub(crate) fn forget_old_changes(&mut self, now: Micros) {
        self.changes.retain(|_, changes| changes.forget_old(now));
    }

    /// True if a live thread of this process was ever pinned by this program, except event loops of
    /// the front end and threads that inherited their masks: the other threads of their process
    /// keep their masks.
    pub(crate) fn has_pinned(&self, process: ProcessId) -> bool {
        let verified = self
            .verified
            .iter()
            .map(|(thread, it)| (thread, it.process));
        let restored = self.restored.iter().map(|(thread, &held)| (thread, held));
        verified
            .chain(restored)
            .any(|(thread, held)| held == process && !self.front.contains(thread))
    }

    /// The masks with which event loops of a process were verified.
    pub(crate) fn front_masks(&self, process: ProcessId) -> impl Iterator<Item = &CpuSet> + '_ {
        let front = self.front.iter().filter_map(|id| self.verified.get(id));
        let own = front.filter(move |verified| verified.process == process);
        own.map(|verified| &verified.mask)
    }
}
