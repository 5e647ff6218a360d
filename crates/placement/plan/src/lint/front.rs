//! Event loops of the front end and their allowed cpus: the lint's independent implementation.

use std::collections::BTreeSet;

use albacore_solver::WorkerIndex;
use albacore_topology::CpuId;

use super::{LintError, LintInput};
use crate::limits::FRONT_THREADS_MAX;
use crate::{
    MainThread, PlanStep, Process, ProcessId, ServerKind, ThreadId, parse_front_thread_name,
};

/// Checks the event loops pinned by a plan, given the workers of its observation.
pub(super) struct FrontPins<'a> {
    input: &'a LintInput<'a>,
    workers: &'a BTreeSet<ProcessId>,
    /// The cpus of main threads, or of all threads if main threads are not pinned.
    taken: BTreeSet<CpuId>,
    count: usize,
}

impl<'a> FrontPins<'a> {
    pub(super) fn new(input: &'a LintInput<'a>, workers: &'a BTreeSet<ProcessId>) -> Self {
        let mut taken = BTreeSet::new();
        if let Some((_, mapping)) = input.solved {
            for worker in (0..input.policy.workers).map(WorkerIndex) {
                let own = mapping.iter().filter(|(slot, _)| slot.worker == worker);
                let all_or_main = match input.policy.main_thread {
                    MainThread::Pinned => 1,
                    MainThread::WorkerSet => usize::MAX,
                };
                taken.extend(own.take(all_or_main).map(|(_, cpu)| cpu));
            }
        }
        Self {
            input,
            workers,
            taken,
            count: 0,
        }
    }

    /// Checks the pin of a thread that is not in a worker.
    pub(super) fn check(&mut self, step: &PlanStep, process: &Process) -> Result<(), LintError> {
        let (pid, tid) = (process.id.pid, step.thread.tid);
        let is_placed = self.input.observation.server_kind == ServerKind::Named
            && self.input.solved.is_some()
            && step.slot.is_none();
        if !is_placed {
            return Err(LintError::NotAWorker { pid });
        }
        self.count += 1;
        let is_first = pid.first_thread() == tid;
        let is_named = claimed_loop(process, step.thread).is_some_and(|index| {
            // A new thread has the name of its parent thread until it sets its own.
            let mut older = process.threads.iter().filter(|it| it.id < step.thread);
            older.all(|it| {
                pid.first_thread() == it.id.tid || claimed_loop(process, it.id) != Some(index)
            })
        });
        if is_first || !is_named || self.is_in_worker(process) || self.count > FRONT_THREADS_MAX {
            return Err(LintError::NotAnEventLoop { tid });
        }
        let is_whole = step.mask == self.input.observation.cpuset;
        if !is_whole && step.mask.iter().any(|cpu| self.taken.contains(&cpu)) {
            let mask = step.mask.clone();
            return Err(LintError::OnMainThread { tid, mask });
        }
        Ok(())
    }

    /// True if the process descends from a worker.
    fn is_in_worker(&self, process: &Process) -> bool {
        let processes = &self.input.observation.processes;
        let mut parent = process.parent;
        // bound: each iteration moves one process up, at most once per process
        for _ in processes {
            let Some(above) = processes.iter().find(|it| it.id.pid == parent) else {
                return false;
            };
            if self.workers.contains(&above.id) {
                return true;
            }
            parent = above.parent;
        }
        false
    }
}

fn claimed_loop(process: &Process, thread: ThreadId) -> Option<u16> {
    let thread = process.threads.iter().find(|it| it.id == thread)?;
    parse_front_thread_name(&thread.comm)
}
