//! Number of open connections, in memory that outlives this process: if the process dies, it is the
//! number of connections that were reset.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use albacore_os::Words;

/// A counter in the first 64-bit word of a memory file.
#[derive(Clone, Debug)]
pub struct ConnectionCount(Arc<Words>);

impl ConnectionCount {
    #[must_use]
    pub fn new(words: Words) -> Self {
        Self(Arc::new(words))
    }

    pub(crate) fn add(&self) {
        for word in self.0.words().iter().take(1) {
            word.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn remove(&self) {
        for word in self.0.words().iter().take(1) {
            word.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
