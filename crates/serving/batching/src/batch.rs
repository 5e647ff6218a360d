//! A batch from its dispatch to its completion, including replays.

use crate::{Nanos, QueueIndex, RequestKey};

/// A request of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: RequestKey,
    pub(crate) rows: usize,
}

/// Requests that run together, in arrival order.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) queue: QueueIndex,
    pub(crate) entries: Vec<Entry>,
    /// Expected completion time, if costs are known.
    pub(crate) end: Nanos,
    pub(crate) began: Nanos,
    /// Worker time charged to its queue at the dispatch.
    pub(crate) charged: Nanos,
    /// Workers that were lost while running it.
    pub(crate) losses: u32,
    /// How many of these were killed because the batch took too long.
    pub(crate) hangs: u32,
    /// Accumulated blame for these losses.
    pub(crate) blame: u32,
}

impl Batch {
    /// Removes a request, if it is in the batch.
    pub(crate) fn withdraw(&mut self, key: RequestKey) {
        // Entries may not be in key order if the batch contains late requests.
        self.entries.retain(|entry| entry.key != key);
    }

    /// Splits off the second half; `None` if there is only one request.
    pub(crate) fn halve(&mut self) -> Option<Self> {
        if self.entries.len() < 2 {
            return None;
        }
        let entries = self.entries.split_off(self.entries.len() / 2);
        Some(Self { entries, ..*self })
    }
}
