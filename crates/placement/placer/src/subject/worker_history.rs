//! The process of each worker, and how often it was replaced.

use std::collections::BTreeMap;

use albacore_os::Pid;
use albacore_solver::WorkerIndex;

#[derive(Debug, Default)]
pub(crate) struct WorkerHistory {
    live: BTreeMap<WorkerIndex, Pid>,
    /// For every index that was ever used.
    respawns: BTreeMap<WorkerIndex, u32>,
}

/// A change between two passes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WorkerChange {
    Exited {
        worker: WorkerIndex,
        pid: Pid,
    },
    Spawned {
        worker: WorkerIndex,
        pid: Pid,
        /// Number of earlier processes with this index.
        respawns: u32,
    },
}

impl WorkerHistory {
    /// Updates the live workers; returns the changes.
    pub(crate) fn update(&mut self, live: &BTreeMap<WorkerIndex, Pid>) -> Vec<WorkerChange> {
        let mut changes = Vec::new();
        for (&worker, &pid) in live {
            let before = self.live.insert(worker, pid);
            if before == Some(pid) {
                continue;
            }
            if let Some(pid) = before {
                changes.push(WorkerChange::Exited { worker, pid });
            }
            let respawns = self
                .respawns
                .get(&worker)
                .map_or(0, |respawns| respawns + 1);
            self.respawns.insert(worker, respawns);
            changes.push(WorkerChange::Spawned {
                worker,
                pid,
                respawns,
            });
        }
        self.live.retain(|&worker, &mut pid| {
            let is_live = live.contains_key(&worker);
            if !is_live {
                changes.push(WorkerChange::Exited { worker, pid });
            }
            is_live
        });
        changes
    }

    pub(crate) fn pid(&self, worker: WorkerIndex) -> Option<Pid> {
        self.live.get(&worker).copied()
    }

    pub(crate) fn pids(&self) -> impl Iterator<Item = Pid> + '_ {
        self.live.values().copied()
    }

    /// Number of live workers.
    pub(crate) fn count(&self) -> usize {
        self.live.len()
    }

    pub(crate) fn respawns(&self, worker: WorkerIndex) -> u32 {
        self.respawns.get(&worker).copied().unwrap_or(0)
    }

    pub(crate) fn total_respawns(&self) -> u64 {
        self.respawns.values().map(|&n| u64::from(n)).sum()
    }
}
