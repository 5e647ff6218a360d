//! A batch from its dispatch to its end, replays included.

use crate::queue::Entry;
use crate::{QueueIndex, RequestKey};

/// Requests that run together, in arrival order.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) queue: QueueIndex,
    pub(crate) entries: Vec<Entry>,
    /// Workers that died with it.
    pub(crate) losses: u32,
    /// How far it is to blame for that.
    pub(crate) blame: u32,
}

impl Batch {
    /// Takes a request out, if it is in the batch.
    pub(crate) fn withdraw(&mut self, key: RequestKey) {
        if let Ok(at) = self.entries.binary_search_by_key(&key, |entry| entry.key) {
            self.entries.remove(at);
        }
    }
}
