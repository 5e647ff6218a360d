//! Periodically checks to which NUMA nodes the workers are pinned, and makes missing copies of
//! images on a thread that exits after the last copy. Not created on a machine with one node.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use albacore_os::{HostRoot, MemoryNodes, NodeId, Pid, Tid};

use super::image::{COPY_THREAD, CopyError, memory_nodes};
use super::shared_state::SharedState;
use super::state::CopyTask;
use crate::limits::NODE_CHECK_PERIOD;

#[derive(Debug)]
pub(super) struct NodeWatch {
    nodes: &'static MemoryNodes,
    checked_at: Instant,
    copying: Option<JoinHandle<()>>,
}

impl NodeWatch {
    pub(super) fn new() -> Option<Self> {
        let nodes = memory_nodes();
        nodes.has_multiple_nodes().then(|| Self {
            nodes,
            checked_at: Instant::now(),
            copying: None,
        })
    }

    /// Runs at most once per [`NODE_CHECK_PERIOD`]; `workers` are their processes by index.
    pub(super) fn check(
        &mut self,
        shared: &Arc<SharedState>,
        workers: impl Iterator<Item = Option<Pid>>,
    ) {
        if self.checked_at.elapsed() < NODE_CHECK_PERIOD {
            return;
        }
        self.checked_at = Instant::now();
        let nodes: Vec<Option<NodeId>> = workers.map(|pid| self.node_of(pid?)).collect();
        let tasks = shared.update(|state, now, _| state.set_worker_nodes(&nodes, now));
        let is_copying = self.copying.as_ref().is_some_and(|it| !it.is_finished());
        if !tasks.is_empty() && !is_copying {
            self.copying = start_copying(shared, tasks);
        }
    }

    /// The node that the main thread of a worker is pinned to.
    fn node_of(&self, worker: Pid) -> Option<NodeId> {
        // A worker that has exited is on no node.
        let mask = albacore_os::read_mask(&HostRoot::live(), Tid(worker.0)).ok()?;
        self.nodes.node_of(&mask)
    }
}

fn start_copying(shared: &Arc<SharedState>, tasks: Vec<CopyTask>) -> Option<JoinHandle<()>> {
    let first = tasks.first()?.clone();
    let thread_shared = Arc::clone(shared);
    let started = std::thread::Builder::new()
        .name(COPY_THREAD.to_owned())
        .spawn(move || {
            for task in tasks {
                let copy = task.revision.image.copy_to(task.node);
                thread_shared.update(|state, now, _| state.image_copied(&task, copy, now));
            }
        });
    match started {
        Ok(thread) => Some(thread),
        Err(error) => {
            let failed = Err(CopyError::Thread(error));
            shared.update(|state, now, _| state.image_copied(&first, failed, now));
            None
        }
    }
}
