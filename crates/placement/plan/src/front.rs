//! Identifies the event loop threads of the built-in server's front end, and selects their cpus.
//!
//! Problem: an event loop on the cpu of a main thread delays it by each time slice that it runs,
//! and each batch of the main thread delays all connections of the loop. Approach: all event loops
//! share one mask, the cpus that no main thread may use, and the kernel balances them there. If
//! these cpus are too few, event loops keep the whole cpuset.
//!
//! An event loop is a thread named `albf.io<n>` in any process of the tree that is neither a worker
//! nor a descendant of one; there may be several such processes, serving or on standby. The main
//! thread of a process is never an event loop: it may start processes, which would inherit its
//! mask. All other threads keep the whole cpuset as well.

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
pub(crate) struct FrontLoops<'a> {
    pub(crate) process: &'a Process,
    loops: BTreeMap<u16, ThreadId>,
}

/// Finds the processes with event loops. Of two threads with the same name the older one is used,
/// because a new thread initially has the name of its parent thread; of more than
/// [`FRONT_THREADS_MAX`] event loops, the oldest ones.
pub(crate) fn find_front<'a>(observation: &'a Observation, roles: &Roles) -> Vec<FrontLoops<'a>> {
    if observation.server_kind != ServerKind::Named {
        return Vec::new();
    }
    let is_outside = |p: &&Process| !matches!(roles.of(p), Role::Worker | Role::Helper);
    let outside = observation.processes.iter().filter(is_outside);
    let mut front: Vec<FrontLoops<'_>> = outside.map(FrontLoops::of).collect();
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

impl<'a> FrontLoops<'a> {
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

    /// The target of each event loop; `free` are the cpus without main threads.
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

/// True if a thread inherited a mask of an event loop of its process; never true for the main
/// thread.
pub(crate) fn has_inherited_front_mask(
    process: ProcessId,
    thread: &ObservedThread,
    front_masks: &[CpuSet],
) -> bool {
    thread.id.tid != process.pid.first_thread() && front_masks.contains(&thread.mask)
}
