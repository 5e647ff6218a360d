//! What earlier plans did to the threads that still live: carried from plan to plan, never written
//! to disk. A placer that starts anew begins with an empty ledger and adopts the masks that it
//! finds right.

use std::collections::{BTreeMap, BTreeSet};

use albacore_solver::{Slot, WorkerIndex};
use albacore_topology::CpuSet;

use crate::limits::{
    BACK_OFF_MICROS_MAX, BACK_OFF_MICROS_MIN, CHANGES_WINDOW_MICROS, REPAIRS_MAX, SETTLING_MICROS,
};
use crate::{Micros, Observation, ProcessId, ThreadId};

/// The circumstances of a plan; when they change, the kernel may change masks.
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

/// A mask that was read back and found right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Verified {
    pub(crate) process: ProcessId,
    pub(crate) mask: CpuSet,
    pub(crate) environment: Environment,
    /// It is ours to give back: written by us, or found in place by a placer that writes (its
    /// earlier incarnation wrote it).
    pub(crate) is_ours: bool,
}

/// Foreign changes of a thread's mask, and the back-off that follows from them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ForeignChanges {
    /// When the mask was changed, of late.
    recent: Vec<Micros>,
    /// Since it was changed too often; `None` before that.
    back_off: Option<BackOff>,
    /// The last change was noted and the planned mask was not read back since.
    is_unrepaired: bool,
}

/// A thread whose mask is left as it is for a while, because another program changed it too often.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BackOff {
    /// How often another program changed the mask. The kernel does not record which.
    pub changes: u32,
    /// When the first of these changes was found.
    pub first: Micros,
    /// When the last one was.
    pub last: Micros,
    /// When the planned mask is written again.
    pub retry_at: Micros,
}

impl BackOff {
    fn pause_micros(&self) -> u64 {
        self.retry_at.0.saturating_sub(self.last.0)
    }
}

impl ForeignChanges {
    /// Notes a change; how it is left alone from now on, if it is.
    fn note(&mut self, now: Micros) -> Option<BackOff> {
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

    /// Forgets what lies so far back that it says nothing any more; false if nothing is left.
    fn forget_old(&mut self, now: Micros) -> bool {
        let age = |at: Micros| now.0.saturating_sub(at.0);
        self.recent.retain(|at| age(*at) < CHANGES_WINDOW_MICROS);
        // A try that lasted as long as the pause before it has succeeded.
        let lasts = |known: &BackOff| age(known.retry_at) < known.pause_micros();
        self.back_off = self.back_off.filter(lasts);
        !self.recent.is_empty() || self.back_off.is_some() || self.is_unrepaired
    }
}

/// What is remembered of earlier plans.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ledger {
    pub(crate) generation: u64,
    /// The setting that was seen last, and since when; no time for the first one.
    pub(crate) environment: Environment,
    pub(crate) environment_since: Option<Micros>,
    pub(crate) arbiter: Option<ProcessId>,
    pub(crate) command_shape: Option<String>,
    pub(crate) workers: BTreeMap<WorkerIndex, ProcessId>,
    pub(crate) slots: BTreeMap<Slot, ThreadId>,
    pub(crate) verified: BTreeMap<ThreadId, Verified>,
    pub(crate) given_back: BTreeMap<ThreadId, ProcessId>,
    /// Live threads that were ever placed as event loops of the front end, or inherited the mask
    /// of one.
    pub(crate) front: BTreeSet<ThreadId>,
    pub(crate) changes: BTreeMap<ThreadId, ForeignChanges>,
}

impl Ledger {
    /// The index a process had, if it was a worker.
    pub fn index_of(&self, process: ProcessId) -> Option<WorkerIndex> {
        self.workers
            .iter()
            .find(|&(_, &held)| held == process)
            .map(|(&worker, _)| worker)
    }

    /// The process that was a worker.
    pub fn worker(&self, worker: WorkerIndex) -> Option<ProcessId> {
        self.workers.get(&worker).copied()
    }

    /// The thread that was in a slot.
    pub fn thread_in(&self, slot: Slot) -> Option<ThreadId> {
        self.slots.get(&slot).copied()
    }

    /// The thread's back-off, if its mask is left as it is now.
    pub fn back_off(&self, thread: ThreadId, now: Micros) -> Option<BackOff> {
        let known = self.changes.get(&thread)?.back_off;
        known.filter(|known| now < known.retry_at)
    }

    /// When the next mask that is left as it is now is written again.
    pub fn next_retry(&self, now: Micros) -> Option<Micros> {
        let known = self.changes.values().filter_map(|changes| changes.back_off);
        let next = known.map(|known| known.retry_at);
        next.filter(|at| now < *at).min()
    }

    /// Starts over: every mask is written again with the next plan, and changes count from nothing.
    pub fn forget_changes(&mut self) {
        self.changes.clear();
    }

    /// The workers that live, by index.
    pub fn workers(&self) -> impl Iterator<Item = (WorkerIndex, ProcessId)> + '_ {
        self.workers
            .iter()
            .map(|(&worker, &process)| (worker, process))
    }

    /// How many slots have a thread.
    pub fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// The process whose children the workers are, if there is one.
    pub fn arbiter(&self) -> Option<ProcessId> {
        self.arbiter
    }

    /// Forgets every thread that does not live any more.
    pub(crate) fn forget_exited(&mut self, observation: &Observation) {
        let live: BTreeSet<ThreadId> = observation
            .processes
            .iter()
            .flat_map(|p| &p.threads)
            .map(|t| t.id)
            .collect();
        self.verified.retain(|thread, _| live.contains(thread));
        self.given_back.retain(|thread, _| live.contains(thread));
        self.front.retain(|thread| live.contains(thread));
        self.changes.retain(|thread, _| live.contains(thread));
    }

    /// Notes the setting of a plan. Where it is another one than before, what was taken for
    /// a foreign change a moment ago was the kernel's: masks may be seen before the change that
    /// wiped them is.
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

    /// True if another program changed the thread's mask, and that was noted and not repaired yet.
    pub(crate) fn is_unrepaired(&self, thread: ThreadId) -> bool {
        let changes = self.changes.get(&thread);
        changes.is_some_and(|changes| changes.is_unrepaired)
    }

    /// Notes that the thread's mask is the planned one.
    pub(crate) fn record_repaired(&mut self, thread: ThreadId) {
        if let Some(changes) = self.changes.get_mut(&thread) {
            changes.is_unrepaired = false;
        }
    }

    /// Notes that another program changed a mask that we wrote; how the thread is left alone from
    /// now on, if it is.
    pub(crate) fn record_change(&mut self, thread: ThreadId, at: Micros) -> Option<BackOff> {
        let back_off = self.changes.entry(thread).or_default().note(at)?;
        self.verified.remove(&thread);
        Some(back_off)
    }

    pub(crate) fn forget_old_changes(&mut self, now: Micros) {
        self.changes.retain(|_, changes| changes.forget_old(now));
    }

    /// True if a live thread of this process was ever pinned by this program, but for event loops
    /// of the front end and their heirs: the other threads of their process keep their masks.
    pub(crate) fn has_pinned(&self, process: ProcessId) -> bool {
        let verified = self
            .verified
            .iter()
            .map(|(thread, it)| (thread, it.process));
        let given_back = self.given_back.iter().map(|(thread, &held)| (thread, held));
        verified
            .chain(given_back)
            .any(|(thread, held)| held == process && !self.front.contains(thread))
    }

    /// The masks that event loops of a process were verified with.
    pub(crate) fn front_masks(&self, process: ProcessId) -> impl Iterator<Item = &CpuSet> + '_ {
        let front = self.front.iter().filter_map(|id| self.verified.get(id));
        let own = front.filter(move |verified| verified.process == process);
        own.map(|verified| &verified.mask)
    }
}
