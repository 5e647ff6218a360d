//! The event loops of the built-in server's front end: which threads they are, and their cpus.
//!
//! Problem: an event loop that runs on the cpu of a main thread delays it by each slice it takes,
//! and each batch of the main thread delays all connections of the loop. Approach: event loops get
//! the cpus that no main thread may use, as one mask for all: the kernel balances them there. Where
//! these are too few, they keep the whole cpuset.
//!
//! An event loop is a thread with a name `albf.io<n>` in any process of the tree that is neither a
//! worker nor below one; several such processes may serve or stand by. The first thread of a
//! process never is: it may start processes, which would inherit its mask. All others keep
//! the whole cpuset, too.

use std::collections::{BTreeMap, BTreeSet};

use albacore_solver::{Mapping, Rank};
use albacore_topology::CpuSet;

use crate::limits::FRONT_THREADS_MAX;
use crate::targets::ThreadRole;
use crate::{
    MainThread, Observation, ObservedThread, Process, ProcessId, Role, Roles, ServerKind,
    SubjectPolicy, Target, ThreadId, parse_front_thread_name,
};

/// The event loops of one process.
pub(crate) struct FrontProcess<'a> {
    pub(crate) process: &'a Process,
    loops: BTreeMap<u16, ThreadId>,
}

/// The processes with event loops. Of two threads with one name the older is meant, as a new thread
/// has the name of the one that spawned it; of more than [`FRONT_THREADS_MAX`] the oldest.
pub(crate) fn find_front<'a>(observation: &'a Observation, roles: &Roles) -> Vec<FrontProcess<'a>> {
    if observation.server_kind != ServerKind::Named {
        return Vec::new();
    }
    let is_outside = |p: &&Process| !matches!(roles.of(p), Role::Worker | Role::Helper);
    let outside = observation.processes.iter().filter(is_outside);
    let mut front: Vec<FrontProcess<'_>> = outside.map(FrontProcess::of).collect();
    front.retain(|found| !found.loops.is_empty());
    let mut threads: Vec<ThreadId> = front
        .iter()
        .flat_map(|f| f.loops.values().copied())
        .collect();
    threads.sort_unstable();
    let kept: BTreeSet<ThreadId> = threads.into_iter().take(FRONT_THREADS_MAX).collect();
    for found in &mut front {
        found.loops.retain(|_, thread| kept.contains(thread));
    }
    front
}

impl<'a> FrontProcess<'a> {
    fn of(process: &'a Process) -> Self {
        let mut loops: BTreeMap<u16, ThreadId> = BTreeMap::new();
        let first = process.id.pid.first_thread();
        for thread in process.threads.iter().filter(|it| it.id.tid != first) {
            if let Some(index) = parse_front_thread_name(&thread.comm) {
                let known = loops.entry(index).or_insert(thread.id);
                *known = thread.id.min(*known);
            }
        }
        Self { process, loops }
    }

    /// What each event loop should have, where `free` are the cpus without main threads.
    pub(crate) fn targets(&self, free: &CpuSet, cpuset: &CpuSet) -> BTreeMap<ThreadId, Target> {
        let mask = match free.len() >= self.loops.len() {
            true => free,
            false => cpuset,
        };
        let target = |(&index, &thread)| {
            let target = Target {
                process: self.process.id,
                role: ThreadRole::Front(index),
                mask: mask.clone(),
            };
            (thread, target)
        };
        self.loops.iter().map(target).collect()
    }
}

/// The cpus of a cpuset that no main thread may use; may be empty.
pub fn front_cpus(policy: &SubjectPolicy, mapping: &Mapping, cpuset: &CpuSet) -> CpuSet {
    let is_main = |rank: Rank| policy.main_thread == MainThread::WorkerSet || rank == Rank(0);
    let slots = mapping.iter().filter(|(slot, _)| is_main(slot.rank));
    cpuset.difference(&slots.map(|(_, cpu)| cpu).collect())
}

/// Whether a thread of a process inherited one of the masks of its event loops; the first thread
/// cannot have.
pub(crate) fn is_heir(process: ProcessId, thread: &ObservedThread, front_masks: &[CpuSet]) -> bool {
    thread.id.tid != process.pid.first_thread() && front_masks.contains(&thread.mask)
}
