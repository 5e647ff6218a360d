//! NUMA placement: the node each worker is pinned to, and the image that it should use there.
//!
//! **Problem.** A model's image is read for every batch, and remote memory is slower. Workers are
//! pinned by another process some time after they start, and may be pinned to another node later.
//!
//! **Approach.** The supervisor periodically reads the masks of workers. For each node with workers
//! and each model a copy of the image is requested; once it exists, the rollout passes it to the
//! workers of that node in the same way as new models. Similarly, a worker that was moved to
//! another node is commanded to reallocate its scratch memory. A copy that no worker needs is
//! dropped after a while; a failed copy is retried after a while, and workers keep their image
//! until then.
//!
//! **Proof sketch.** A command about an image that the worker already has is sent only if the copy
//! for its node differs from the worker's image, and each command changes that image: so there is
//! one command per change of a worker's node or of the copies. If nodes are never reported, as on a
//! machine with one node, all lists stay empty.

use std::sync::Arc;

use albacore_batching::Nanos;
use albacore_os::NodeId;
use albacore_values::sentence;
use albacore_worker::{RevisionId, WorkerCommand};

use super::State;
use crate::image::{CopyError, PlacedImage};
use crate::limits::{COPY_RETRY_PAUSE, COPY_UNNEEDED_TIME_MAX};
use crate::model::ModelRevision;
use crate::stats::{ImageStats, MemoryStats};

/// A copy to make.
#[derive(Clone, Debug)]
pub(crate) struct CopyTask {
    pub(crate) revision: Arc<ModelRevision>,
    pub(crate) node: NodeId,
}

#[derive(Debug)]
struct NodeCopy {
    revision: RevisionId,
    node: NodeId,
    image: Arc<PlacedImage>,
    /// When a worker was last pinned to its node.
    needed_at: Nanos,
}

/// Copies of images, by revision and node, in addition to the image of each revision.
#[derive(Debug, Default)]
pub(crate) struct NodeImages {
    copies: Vec<NodeCopy>,
    /// Copies that could not be made or opened, with the time of the failure.
    failed: Vec<(RevisionId, NodeId, Nanos)>,
    made_total: u64,
    failed_total: u64,
    scratch_moves_total: u64,
}

/// NUMA nodes of the memory of one incarnation of a worker, as far as known.
#[derive(Debug, Default)]
pub(crate) struct WorkerMemory {
    /// The node that its main thread is pinned to.
    node: Option<NodeId>,
    /// The node on which its scratch memory was allocated.
    scratch: Option<NodeId>,
    /// The nodes of its open images.
    images: Vec<(RevisionId, NodeId)>,
    /// Changes requested by the pending command.
    pending_change: PendingChange,
}

#[derive(Clone, Copy, Debug, Default)]
struct PendingChange {
    image: Option<NodeId>,
    scratch: Option<NodeId>,
}

impl WorkerMemory {
    /// The node that the main thread is pinned to, if the scratch memory must be moved there.
    pub(crate) fn scratch_target(&self) -> Option<NodeId> {
        self.node.filter(|_| self.node != self.scratch)
    }

    fn image_node(&self, revision: RevisionId) -> Option<NodeId> {
        let mut images = self.images.iter();
        images
            .find(|(id, _)| *id == revision)
            .map(|&(_, node)| node)
    }

    /// Records a sent command, with this image.
    pub(crate) fn command_sent(&mut self, command: &WorkerCommand, image: Option<&PlacedImage>) {
        self.pending_change = PendingChange {
            image: image.and_then(PlacedImage::node),
            scratch: self.node.filter(|_| command.moves_scratch),
        };
    }

    /// Records that the command was executed.
    pub(crate) fn command_executed(&mut self, command: &WorkerCommand) {
        self.images.retain(|(id, _)| !command.closes.contains(id));
        if let Some((id, _)) = command.opens {
            self.images.retain(|(known, _)| *known != id);
            self.images
                .extend(self.pending_change.image.map(|node| (id, node)));
        }
        if command.moves_scratch {
            self.scratch = self.pending_change.scratch;
        }
    }
}

impl NodeImages {
    /// The image of a revision on a node.
    fn find<'a>(
        &'a self,
        revision: &'a ModelRevision,
        node: NodeId,
    ) -> Option<&'a Arc<PlacedImage>> {
        let mut copies = self.copies.iter();
        let copy = copies.find(|copy| copy.revision == revision.id && copy.node == node);
        let own = Some(&revision.image).filter(|image| image.node() == Some(node));
        own.or(copy.map(|copy| &copy.image))
    }

    /// The image for a worker that opens a revision for the first time.
    pub(crate) fn first_image(
        &self,
        revision: &ModelRevision,
        worker: &WorkerMemory,
    ) -> Arc<PlacedImage> {
        let local = worker.node.and_then(|node| self.find(revision, node));
        Arc::clone(local.unwrap_or(&revision.image))
    }

    /// The image on the worker's node, unless the worker has it already.
    pub(crate) fn local_image(
        &self,
        revision: &ModelRevision,
        worker: &WorkerMemory,
    ) -> Option<Arc<PlacedImage>> {
        let node = worker.node?;
        let has_local = worker.image_node(revision.id) == Some(node);
        if has_local || self.has_failed(revision.id, node) {
            return None;
        }
        self.find(revision, node).map(Arc::clone)
    }

    fn has_failed(&self, revision: RevisionId, node: NodeId) -> bool {
        let mut failed = self.failed.iter();
        failed.any(|&(id, of, _)| (id, of) == (revision, node))
    }

    fn count_failure(&mut self, revision: RevisionId, node: NodeId, now: Nanos) {
        self.failed_total += 1;
        self.failed.push((revision, node, now));
    }

    pub(crate) fn count_scratch_move(&mut self) {
        self.scratch_moves_total += 1;
    }

    /// Drops copies that no worker needs any more, and expires failures.
    fn drop_unneeded(&mut self, is_needed: impl Fn(RevisionId, NodeId) -> bool, now: Nanos) {
        let is_recent =
            |at: Nanos, most: std::time::Duration| now.saturating_sub(at) < Nanos::from(most);
        for copy in &mut self.copies {
            if is_needed(copy.revision, copy.node) {
                copy.needed_at = now;
            }
        }
        self.copies
            .retain(|copy| is_recent(copy.needed_at, COPY_UNNEEDED_TIME_MAX));
        self.failed
            .retain(|&(_, _, at)| is_recent(at, COPY_RETRY_PAUSE));
    }
}

impl State {
    /// Sets the nodes that workers are pinned to, by worker index; `None`: several, or unknown.
    /// Returns the copies to make.
    pub(crate) fn set_worker_nodes(
        &mut self,
        nodes: &[Option<NodeId>],
        now: Nanos,
    ) -> Vec<CopyTask> {
        for (slot, &node) in self.workers.slots.iter_mut().zip(nodes) {
            self.rollout.is_pending |= std::mem::replace(&mut slot.memory.node, node) != node;
        }
        let mut used: Vec<NodeId> = nodes.iter().copied().flatten().collect();
        used.sort_unstable();
        used.dedup();
        let current = || self.catalog.current();
        let is_current = |id: RevisionId| current().any(|revision| revision.id == id);
        let is_needed = |id, node| is_current(id) && used.contains(&node);
        self.node_images.drop_unneeded(is_needed, now);
        let images = &self.node_images;
        let all = current().flat_map(|revision| used.iter().map(move |&node| (revision, node)));
        let missing = all.filter(|&(revision, node)| {
            images.find(revision, node).is_none() && !images.has_failed(revision.id, node)
        });
        let task = |(revision, node): (&Arc<ModelRevision>, NodeId)| CopyTask {
            revision: Arc::clone(revision),
            node,
        };
        missing.map(task).collect()
    }

    /// Stores a copy, or records its failure.
    pub(crate) fn image_copied(
        &mut self,
        task: &CopyTask,
        copy: Result<PlacedImage, CopyError>,
        now: Nanos,
    ) {
        let (revision, node) = (task.revision.id, task.node);
        match copy {
            Ok(image) => {
                self.node_images.made_total += 1;
                self.node_images.copies.push(NodeCopy {
                    revision,
                    node,
                    image: Arc::new(image),
                    needed_at: now,
                });
                self.rollout.is_pending = true;
            }
            Err(error) => {
                let (model, cause) = (&task.revision.info.name, sentence(&error));
                tracing::warn!(
                    model,
                    node = node.0,
                    %cause,
                    "a model cannot be copied to a NUMA node: its workers read it from another"
                );
                self.node_images.count_failure(revision, node, now);
            }
        }
    }

    /// Handles the failure of a worker to open the image on its node: it keeps the image that it
    /// has. Returns false if the worker does not have the revision open.
    pub(crate) fn keep_current_image(
        &mut self,
        worker: usize,
        revision: Option<RevisionId>,
        reason: &str,
        now: Nanos,
    ) -> bool {
        let slot = &self.workers.slots[worker];
        let revision = revision.filter(|id| slot.open_revisions.contains(id));
        let Some((revision, node)) = revision.zip(slot.memory.pending_change.image) else {
            return false;
        };
        let node = (revision, node);
        tracing::warn!(worker, node = node.1.0, %reason, "a worker cannot open a nearer image");
        self.node_images.count_failure(node.0, node.1, now);
        true
    }

    /// A snapshot for metrics.
    pub(crate) fn memory_stats(&self) -> MemoryStats {
        let images = &self.node_images;
        let of_model = |revision: &Arc<ModelRevision>| {
            let copies = images.copies.iter();
            let copies = copies.filter(|copy| copy.revision == revision.id);
            let copies = copies.map(|copy| Arc::clone(&copy.image));
            let all: Vec<_> = copies.chain([Arc::clone(&revision.image)]).collect();
            let model = revision.info.name.clone();
            all.into_iter().map(move |image| ImageStats {
                model: model.clone(),
                node: image.node().map(|node| node.0),
                bytes: image.bytes(),
                huge_bytes: image.huge_page_bytes(),
            })
        };
        let slots = self.workers.slots.iter();
        let is_remote = |slot: &&super::WorkerSlot| {
            let mut current = self.catalog.current();
            let node = slot.memory.node;
            slot.is_ready
                && node.is_some()
                && current.any(|revision| slot.memory.image_node(revision.id) != node)
        };
        MemoryStats {
            images: self.catalog.current().flat_map(of_model).collect(),
            workers_far: slots.filter(is_remote).count(),
            copies_made_total: images.made_total,
            copies_failed_total: images.failed_total,
            scratch_moves_total: images.scratch_moves_total,
        }
    }
}
