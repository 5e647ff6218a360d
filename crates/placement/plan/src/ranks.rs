//! Assigns live threads to slots: which process is worker w, and which of its threads is rank t.
//!
//! Worker: a process keeps its index while it lives; a new one takes the lowest free index, so a
//! respawned worker replaces the one that exited. Rank: names `albw<worker>.<rank>` have priority.
//! Otherwise rank 0 is the main thread, and a thread keeps its rank while it lives; free ranks are
//! assigned to the oldest threads without one. A thread that got its rank by age but never computes
//! is replaced by one that does (numpy's pool is older than OpenMP's).

use std::collections::BTreeMap;

use albacore_solver::{Rank, Slot, WorkerIndex};

use crate::limits::{BUSY_RATIO, BUSY_TICKS};
use crate::{PlacementWarning, PlanHistory, Process, SubjectPolicy, ThreadId, parse_thread_name};

/// Workers by index, and surplus worker processes.
pub(crate) struct IndexedWorkers<'a> {
    pub(crate) workers: BTreeMap<WorkerIndex, &'a Process>,
    pub(crate) surplus: Vec<&'a Process>,
}

/// Assigns an index to each worker process.
pub(crate) fn index_workers<'a>(
    mut processes: Vec<&'a Process>,
    policy: &SubjectPolicy,
    history: &PlanHistory,
    warnings: &mut Vec<PlacementWarning>,
) -> IndexedWorkers<'a> {
    processes.sort_by_key(|process| process.id);
    let mut indexed = IndexedWorkers {
        workers: BTreeMap::new(),
        surplus: Vec::new(),
    };
    let mut rest = Vec::new();
    for process in processes {
        let named = claimed_index(process);
        let claim = named
            .or_else(|| history.index_of(process.id))
            .filter(|w| w.0 < policy.workers);
        match claim {
            Some(worker) if !indexed.workers.contains_key(&worker) => {
                indexed.workers.insert(worker, process);
            }
            // Two processes with one name: while a worker is replaced, both may exist briefly.
            Some(worker) if named.is_some() => {
                warnings.push(PlacementWarning::DuplicateWorkerName {
                    worker,
                    pid: process.id.pid,
                });
                indexed.surplus.push(process);
            }
            // The name claims an index beyond W.
            None if named.is_some() => indexed.surplus.push(process),
            _ => rest.push(process),
        }
    }
    let mut free = (0..policy.workers).map(WorkerIndex);
    for process in rest {
        match free.find(|worker| !indexed.workers.contains_key(worker)) {
            Some(worker) => {
                indexed.workers.insert(worker, process);
            }
            None => indexed.surplus.push(process),
        }
    }
    indexed
}

/// The worker index claimed by the oldest named thread of a process.
fn claimed_index(process: &Process) -> Option<WorkerIndex> {
    let named = process
        .threads
        .iter()
        .filter_map(|t| Some((t.id, parse_thread_name(&t.comm)?)));
    named.min_by_key(|&(id, _)| id).map(|(_, slot)| slot.worker)
}

/// The threads of one worker by slot, and the extra ones.
pub(crate) struct RankedThreads {
    pub(crate) slots: BTreeMap<Slot, ThreadId>,
    pub(crate) extra: Vec<ThreadId>,
}

/// Assigns ranks to the threads of a worker.
pub(crate) fn rank_threads(
    worker: WorkerIndex,
    process: &Process,
    threads: u16,
    history: &PlanHistory,
) -> RankedThreads {
    let slot = |rank: u16| Slot {
        worker,
        rank: Rank(rank),
    };
    let mut slots: BTreeMap<Slot, ThreadId> = BTreeMap::new();
    let mut by_birth: Vec<_> = process.threads.iter().collect();
    by_birth.sort_by_key(|thread| thread.id);
    for thread in &by_birth {
        if let Some(named) = parse_thread_name(&thread.comm)
            && named.worker == worker
            && named.rank.0 < threads
        {
            slots.entry(named).or_insert(thread.id);
        }
    }
    // If threads are named, a thread without a name is not a compute thread.
    if slots.is_empty() {
        if let Some(main) = process.main() {
            slots.insert(slot(0), main.id);
        }
        let peers = || {
            by_birth
                .iter()
                .filter(|thread| thread.id.tid.0 != process.id.pid.0)
        };
        for rank in 1..threads {
            if let Some(before) = history.thread_at(slot(rank))
                && peers().any(|thread| thread.id == before)
            {
                slots.insert(slot(rank), before);
            }
        }
        let unranked: Vec<ThreadId> = peers()
            .map(|t| t.id)
            .filter(|id| !slots.values().any(|held| held == id))
            .collect();
        let free: Vec<Slot> = (1..threads)
            .map(slot)
            .filter(|s| !slots.contains_key(s))
            .collect();
        slots.extend(free.into_iter().zip(unranked));
        yield_to_busy(&mut slots, process);
    }
    let held: std::collections::BTreeSet<ThreadId> = slots.values().copied().collect();
    let extra = by_birth
        .iter()
        .map(|t| t.id)
        .filter(|id| !held.contains(id))
        .collect();
    RankedThreads { slots, extra }
}

/// Replaces idle threads in peer ranks by busy threads without a rank.
fn yield_to_busy(slots: &mut BTreeMap<Slot, ThreadId>, process: &Process) {
    let ticks: BTreeMap<ThreadId, u64> = process
        .threads
        .iter()
        .map(|thread| (thread.id, thread.cpu_ticks))
        .collect();
    let used = |id: ThreadId| ticks.get(&id).copied().unwrap_or(0);
    let mut busy: Vec<ThreadId> = ticks
        .keys()
        .copied()
        .filter(|&id| used(id) >= BUSY_TICKS && !slots.values().any(|&held| held == id))
        .collect();
    busy.sort_by_key(|&id| std::cmp::Reverse(used(id)));
    for newcomer in busy {
        let peers = slots.iter_mut().filter(|(slot, _)| slot.rank.0 > 0);
        let Some((_, idlest)) = peers.min_by_key(|(slot, id)| (used(**id), **slot)) else {
            return;
        };
        if used(*idlest).saturating_mul(BUSY_RATIO) >= used(newcomer) {
            return;
        }
        *idlest = newcomer;
    }
}
