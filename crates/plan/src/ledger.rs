//! What earlier plans did to the threads that still live: carried from plan to plan, never written to disk. A placer
//! that starts anew begins with an empty ledger and adopts the masks that it finds right.

use std::collections::{BTreeMap, BTreeSet};

use albacore_mapping::{Slot, WorkerIndex};
use albacore_topology::CpuSet;

use crate::limits::{REVERSAL_WINDOW_MICROS, REVERSALS_MAX, SETTLING_MICROS};
use crate::{Moment, Observation, ProcessId, ThreadId};

/// The circumstances of a plan; when they change, masks may change with nobody's doing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Setting {
    pub(crate) cpuset: CpuSet,
    pub(crate) cpuset_changes: u64,
    pub(crate) machine: u64,
}

impl Setting {
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
    pub(crate) setting: Setting,
    /// It is ours to give back: written by us, or found in place by a placer that writes (its former life wrote it).
    pub(crate) is_ours: bool,
}

/// What is remembered of earlier plans.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ledger {
    pub(crate) generation: u64,
    /// The setting that was seen last, and since when; no time for the first one.
    pub(crate) setting: Setting,
    pub(crate) setting_since: Option<Moment>,
    pub(crate) arbiter: Option<ProcessId>,
    pub(crate) likeness: Option<String>,
    pub(crate) workers: BTreeMap<WorkerIndex, ProcessId>,
    pub(crate) slots: BTreeMap<Slot, ThreadId>,
    pub(crate) verified: BTreeMap<ThreadId, Verified>,
    pub(crate) returned: BTreeMap<ThreadId, ProcessId>,
    pub(crate) reversals: BTreeMap<ThreadId, Vec<Moment>>,
    pub(crate) self_pinned: BTreeSet<ThreadId>,
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

    /// True if the thread is left alone because it, or somebody for it, keeps writing its mask.
    pub fn is_self_pinned(&self, thread: ThreadId) -> bool {
        self.self_pinned.contains(&thread)
    }

    /// Threads that are left alone.
    pub fn self_pinned(&self) -> impl Iterator<Item = ThreadId> + '_ {
        self.self_pinned.iter().copied()
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

    /// Threads whose masks are ours, and would have to be given back.
    pub fn held_count(&self) -> usize {
        self.verified.len()
    }

    /// Forgets every thread that does not live any more.
    pub(crate) fn forget_dead(&mut self, observation: &Observation) {
        let live: BTreeSet<ThreadId> = observation
            .processes
            .iter()
            .flat_map(|p| &p.threads)
            .map(|t| t.id)
            .collect();
        self.verified.retain(|thread, _| live.contains(thread));
        self.returned.retain(|thread, _| live.contains(thread));
        self.reversals.retain(|thread, _| live.contains(thread));
        self.self_pinned.retain(|thread| live.contains(thread));
    }

    /// Notes the setting of a plan. Where it is another one than before, what was taken for somebody's doing a moment
    /// ago was the kernel's: masks may be seen before the change that wiped them is.
    pub(crate) fn note_setting(&mut self, setting: &Setting, now: Moment) {
        if self.setting == *setting {
            return;
        }
        let is_first = self.setting == Setting::default();
        self.setting_since = (!is_first).then_some(now);
        self.setting.clone_from(setting);
        self.reversals.retain(|_, times| {
            times.retain(|at| now.0.saturating_sub(at.0) >= SETTLING_MICROS);
            !times.is_empty()
        });
    }

    /// True while the kernel may still be writing masks after a change of the cpuset.
    pub(crate) fn is_settling(&self, now: Moment) -> bool {
        self.setting_since
            .is_some_and(|since| now.0.saturating_sub(since.0) < SETTLING_MICROS)
    }

    /// True if somebody wrote this thread's mask within the last minute.
    pub(crate) fn was_reversed(&self, thread: ThreadId) -> bool {
        self.reversals.contains_key(&thread)
    }

    /// Notes that somebody wrote over our mask; true if the thread is to be left alone from now on.
    pub(crate) fn note_reversal(&mut self, thread: ThreadId, at: Moment) -> bool {
        let times = self.reversals.entry(thread).or_default();
        times.push(at);
        if times.len() > REVERSALS_MAX {
            self.self_pinned.insert(thread);
            self.reversals.remove(&thread);
            self.verified.remove(&thread);
            return true;
        }
        false
    }

    pub(crate) fn forget_old_reversals(&mut self, now: Moment) {
        self.reversals.retain(|_, times| {
            times.retain(|at| now.0.saturating_sub(at.0) < REVERSAL_WINDOW_MICROS);
            !times.is_empty()
        });
    }

    /// True if a thread of this process was ever given a mask by us and lives.
    pub(crate) fn touched(&self, process: ProcessId) -> bool {
        self.verified
            .values()
            .any(|verified| verified.process == process)
            || self.returned.values().any(|&held| held == process)
    }
}
