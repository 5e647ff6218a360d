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
    /// When it should be done, as far as that is known.
    pub(crate) end: Nanos,
    /// Workers that died with it.
    pub(crate) losses: u32,
    /// How far it is to blame for that.
    pub(crate) blame: u32,
}

impl Batch {
    /// Takes a request out, if it is in the batch.
    pub(crate) fn withdraw(&mut self, key: RequestKey) {
        // Entries of a queue whose late ones run with it are not in the order of their keys.
        self.entries.retain(|entry| entry.key != key);
    }

    /// Takes out the second half; `None` if there is nothing to halve.
    pub(crate) fn halve(&mut self) -> Option<Self> {
        if self.entries.len() < 2 {
            return None;
        }
        let entries = self.entries.split_off(self.entries.len() / 2);
        Some(Self { entries, ..*self })
    }
}
