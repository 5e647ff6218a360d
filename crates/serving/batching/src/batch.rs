//! A batch from its dispatch to its end, replays included.

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
    /// When it should be done, as far as costs are known.
    pub(crate) end: Nanos,
    pub(crate) began: Nanos,
    /// What its queue was charged for it at its dispatch.
    pub(crate) charged: Nanos,
    /// Workers that were lost with it.
    pub(crate) losses: u32,
    /// How many of these were ended because it took too long.
    pub(crate) hangs: u32,
    /// How far it is to blame for that.
    pub(crate) blame: u32,
}

impl Batch {
    /// Takes a request out, if it is in the batch.
    pub(crate) fn withdraw(&mut self, key: RequestKey) {
        // Entries may not be in the order of their keys, if late requests run with the batch.
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
