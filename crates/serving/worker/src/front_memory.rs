//! The memory of the front that the worker computes for, and its event loops.
//!
//! Rank 0 attaches the memory of another front between two batches. Each thread has its own view;
//! peers replace theirs when they next wake. A peer that computes a batch has replaced it, because
//! rank 0 stores the views before it publishes the batch.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use albacore_os::{Extent, OsError, ReadMapping, SharedMemory, Waker};

use crate::ring::Ring;

/// The memory that one thread maps.
pub(super) struct View {
    pub(super) rows: Arc<ReadMapping>,
    pub(super) results: Extent,
}

/// The event loops of the front.
pub(super) struct LoopWakers(Vec<Waker>);

/// Maps the memory once for each thread.
pub(super) fn map(fds: Vec<OwnedFd>, threads: usize) -> Result<(Vec<View>, LoopWakers), String> {
    let mut fds = fds.into_iter();
    let (Some(rows), Some(results)) = (fds.next(), fds.next()) else {
        return Err("the memory of the front was not received".to_owned());
    };
    let views = || -> Result<Vec<View>, OsError> {
        let rows = Arc::new(SharedMemory::open(rows)?.map_read()?);
        let results = SharedMemory::open(results)?;
        let view = |_| {
            Ok(View {
                rows: Arc::clone(&rows),
                results: results.map_extent()?,
            })
        };
        (0..threads).map(view).collect()
    };
    let views = views().map_err(|error| error.to_string())?;
    Ok((views, LoopWakers(fds.map(Waker::inherited).collect())))
}

impl LoopWakers {
    /// Wakes the event loop named by the ring.
    pub(super) fn notify(&self, ring: &Ring) {
        let wake = self.0.get(ring.event_loop().0);
        wake.or(self.0.first()).into_iter().for_each(Waker::wake);
    }
}

/// Pending changes of the threads' memory, by rank.
pub(super) struct MemoryChanges(Box<[Mutex<MemoryChange>]>);

#[derive(Default)]
pub(super) struct MemoryChange {
    /// The view that replaces the present one.
    pub(super) view: Option<View>,
    /// Whether to reallocate the scratch memory.
    pub(super) is_scratch_moved: bool,
}

impl MemoryChanges {
    pub(super) fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| Mutex::default()).collect())
    }

    pub(super) fn put_views(&self, views: Vec<View>) {
        for (slot, view) in self.0.iter().zip(views) {
            slot.lock().unwrap_or_else(PoisonError::into_inner).view = Some(view);
        }
    }

    pub(super) fn move_scratch(&self) {
        for slot in &self.0 {
            let mut change = slot.lock().unwrap_or_else(PoisonError::into_inner);
            change.is_scratch_moved = true;
        }
    }

    /// Removes and returns the pending change of a thread.
    pub(super) fn take(&self, rank: usize) -> MemoryChange {
        let slot = self.0.get(rank).map(Mutex::lock);
        let slot = slot.map(|slot| slot.unwrap_or_else(PoisonError::into_inner));
        slot.map(|mut slot| std::mem::take(&mut *slot))
            .unwrap_or_default()
    }
}
