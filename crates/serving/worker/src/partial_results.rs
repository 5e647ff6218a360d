//! The reduction of batches that are split by trees: stores and adds the partial sums of the
//! pieces.
//!
//! Each piece has a slot, locked by the thread that fills it. Rank 0 adds the pieces in order as
//! they become ready, between pieces of its own, so that the result does not depend on timing.

use std::sync::{Mutex, MutexGuard, TryLockError};

use albacore_trees::PartialOutput;

use super::batch_split::{SharedBatch, TreePiece};
use super::thread_context::ThreadContext;
use crate::limits::{TREE_JOBS_MAX, TREE_PARTS_PER_THREAD};

/// A slot for each piece.
pub(super) struct PartialResults(Vec<Mutex<PartialSlot>>);

struct PartialSlot {
    /// Generation of the batch whose piece is in the slot.
    generation: Option<u32>,
    outcome: Result<(), String>,
    partial: PartialOutput,
}

/// Progress of rank 0 in the reduction of a batch.
#[derive(Debug, Default)]
pub(super) struct ReductionProgress {
    next: u32,
    /// The last segment that failed.
    failed: Option<usize>,
}

impl PartialResults {
    /// Creates the slots for the threads of a worker.
    pub(super) fn new(threads: usize) -> Self {
        let slot = || PartialSlot {
            generation: None,
            outcome: Ok(()),
            partial: PartialOutput::default(),
        };
        let slots = threads * TREE_PARTS_PER_THREAD * TREE_JOBS_MAX;
        Self((0..slots).map(|_| Mutex::new(slot())).collect())
    }

    /// Frees the memory of the slots.
    pub(super) fn drop_memory(&self) {
        for slot in &self.0 {
            let mut slot = slot.lock().unwrap_or_else(|error| error.into_inner());
            slot.partial = PartialOutput::default();
        }
    }

    /// Computes a piece of a batch whose jobs are split into `parts`.
    pub(super) fn fill(
        &self,
        batch: &SharedBatch<'_>,
        piece: u32,
        parts: u32,
        context: &mut ThreadContext,
    ) {
        let tree_piece = TreePiece::new(batch.segments, piece, parts);
        let (Some(slot), Some(tree_piece)) = (self.0.get(piece as usize), tree_piece) else {
            return;
        };
        let mut slot = slot.lock().unwrap_or_else(|error| error.into_inner());
        slot.outcome = context.compute_partial(batch.models, &tree_piece, &mut slot.partial);
        slot.generation = Some(batch.generation);
    }

    /// Rank 0: adds the pieces that are ready, in order. With `is_finished`, every piece is
    /// computed, so all are added.
    pub(super) fn reduce(
        &self,
        batch: &SharedBatch<'_>,
        parts: u32,
        progress: &mut ReductionProgress,
        is_finished: bool,
        context: &mut ThreadContext,
    ) {
        // bound: one pass for each piece.
        while progress.next < batch.split.pieces() {
            let Some(slot) = self.ready(progress.next, batch.generation) else {
                break;
            };
            if let Some(piece) = TreePiece::new(batch.segments, progress.next, parts)
                && progress.failed != Some(piece.segment_index)
            {
                let outcome = slot.outcome.clone();
                let outcome =
                    outcome.and_then(|()| context.add_partial(batch.models, &piece, &slot.partial));
                if let Err(reason) = outcome {
                    batch.ring.fail(piece.segment_index, &reason);
                    progress.failed = Some(piece.segment_index);
                }
            }
            progress.next += 1;
        }
        if is_finished && progress.next < batch.split.pieces() {
            // A piece was not computed: no result of the batch can be trusted.
            for index in 0..batch.segments.len() {
                batch.ring.fail(index, "a part of the trees is missing");
            }
        }
    }

    /// The slot of a piece, if it is computed.
    fn ready(&self, piece: u32, generation: u32) -> Option<MutexGuard<'_, PartialSlot>> {
        let slot = match self.0.get(piece as usize)?.try_lock() {
            Ok(slot) => slot,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        (slot.generation == Some(generation)).then_some(slot)
    }
}
