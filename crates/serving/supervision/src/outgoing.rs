//! The supervisor's end of a link: sends never block.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::limits::WAITING_MAX;
use crate::link::Link;

/// A descriptor with several owners.
pub(crate) type SharedFd = Arc<OwnedFd>;

#[derive(Debug)]
pub(crate) struct Outgoing {
    link: Link,
    /// Messages for which there was no room.
    waiting: VecDeque<(Vec<u8>, Vec<SharedFd>)>,
}

impl Outgoing {
    pub(crate) fn new(link: Link) -> Self {
        Self {
            link,
            waiting: VecDeque::new(),
        }
    }

    /// Sends a message after the queued ones. The death of a receiver is detected by its exit.
    pub(crate) fn send(&mut self, message: &impl Serialize, fds: &[SharedFd]) {
        match serde_json::to_vec(message) {
            Ok(bytes) => self.waiting.push_back((bytes, fds.to_vec())),
            Err(error) => tracing::error!(%error, "a message cannot be serialized"),
        }
        self.flush();
    }

    /// Sends queued messages while there is room.
    pub(crate) fn flush(&mut self) {
        // bound: one pass for each queued message
        while let Some((bytes, fds)) = self.waiting.front() {
            let fds: Vec<BorrowedFd<'_>> = fds.iter().map(|fd| fd.as_fd()).collect();
            match self.link.try_send(bytes, &fds) {
                Err(error) if error.is_queue_full() => return,
                Err(error) => {
                    tracing::debug!(%error, "a message cannot be sent");
                    self.waiting.clear();
                }
                Ok(()) => drop(self.waiting.pop_front()),
            }
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether the receiver has stopped reading.
    pub(crate) fn is_stuck(&self) -> bool {
        self.waiting.len() > WAITING_MAX
    }

    /// Returns the messages that have arrived, and whether the link is open.
    pub(crate) fn receive<M: DeserializeOwned>(&self) -> (Vec<(M, Vec<OwnedFd>)>, bool) {
        let mut messages = Vec::new();
        // bound: the buffer of the socket
        loop {
            match self.link.receive() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => return (messages, true),
                Err(error) => {
                    tracing::debug!(%error, "a link failed");
                    return (messages, false);
                }
            }
        }
    }
}

impl AsFd for Outgoing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}
