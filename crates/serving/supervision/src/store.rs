//! Descriptors that the serving front hands to the next one, by name. The supervisor does not
//! interpret them.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use albacore_os::SharedMemory;

use crate::messages::SupervisorMessage;
use crate::outgoing::{Outgoing, SharedFd};

/// The listening sockets.
pub const LISTENERS: &str = "listeners";

/// Memory whose first 64-bit word is the number of open connections of the serving front.
pub const CONNECTIONS: &str = "connections";

#[derive(Debug, Default)]
pub(crate) struct FdStore(BTreeMap<String, Vec<SharedFd>>);

impl FdStore {
    /// Creates a store that contains only the listening sockets.
    pub(crate) fn with_listeners(listeners: Vec<SharedFd>) -> Self {
        Self(BTreeMap::from([(LISTENERS.to_owned(), listeners)]))
    }

    pub(crate) fn listeners(&self) -> Option<&Vec<SharedFd>> {
        self.0.get(LISTENERS)
    }

    pub(crate) fn insert(
        &mut self,
        key: String,
        fds: Vec<OwnedFd>,
        standby: Option<&mut Outgoing>,
    ) {
        let fds: Vec<SharedFd> = fds.into_iter().map(Arc::new).collect();
        if let Some(standby) = standby {
            standby.send(&SupervisorMessage::Stored { key: key.clone() }, &fds);
        }
        self.0.insert(key, fds);
    }

    pub(crate) fn remove(&mut self, key: String, standby: Option<&mut Outgoing>) {
        self.0.remove(&key);
        if let Some(standby) = standby {
            standby.send(&SupervisorMessage::Removed { key }, &[]);
        }
    }

    /// Closes the listening sockets: the front then holds the last descriptors.
    pub(crate) fn release_listeners(&mut self) {
        self.0.remove(LISTENERS);
    }

    pub(crate) fn send_all(&self, front: &mut Outgoing) {
        for (key, fds) in &self.0 {
            front.send(&SupervisorMessage::Stored { key: key.clone() }, fds);
        }
    }

    /// Number of open connections of the last serving front.
    pub(crate) fn connections(&self) -> u64 {
        let count = || {
            let fd = self.0.get(CONNECTIONS)?.first()?.try_clone().ok()?;
            let words = SharedMemory::open(fd).ok()?.map_words().ok()?;
            let count = words.words().first()?;
            Some(count.load(std::sync::atomic::Ordering::Relaxed))
        };
        count().unwrap_or_default()
    }
}
