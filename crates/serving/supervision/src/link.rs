//! A connection between the supervisor and a process: messages with descriptors.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Instant;

use albacore_os::{Channel, OsError, inherited_fd};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::limits::{RESEND_PERIOD, SEND_TIMEOUT};

/// A message cannot be sent or received.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error(transparent)]
    Channel(#[from] OsError),
    #[error("a message between supervisor and front cannot be parsed or serialized")]
    Format(#[from] serde_json::Error),
}

#[derive(Debug)]
pub struct Link {
    channel: Channel,
}

impl Link {
    /// Creates a connected pair.
    ///
    /// # Errors
    /// There are no file descriptors left.
    pub fn pair() -> Result<(Self, Self), OsError> {
        let (one, other) = Channel::pair()?;
        Ok((Self { channel: one }, Self { channel: other }))
    }

    /// Opens the end that this process inherited as descriptor `number`.
    ///
    /// # Errors
    /// There is no such descriptor.
    pub fn inherited(number: RawFd) -> Result<Self, OsError> {
        let channel = Channel::inherited(inherited_fd(number)?);
        Ok(Self { channel })
    }

    /// Sends a message; waits while the receiver has no room.
    ///
    /// # Errors
    /// The other end is closed, or had no room for [`SEND_TIMEOUT`].
    pub fn send(&self, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> Result<(), LinkError> {
        let bytes = serde_json::to_vec(message)?;
        let start = Instant::now();
        // bound: SEND_TIMEOUT
        loop {
            match self.channel.send(&bytes, fds) {
                Err(error) if error.is_queue_full() && start.elapsed() < SEND_TIMEOUT => {
                    std::thread::sleep(RESEND_PERIOD);
                }
                sent => return Ok(sent?),
            }
        }
    }

    /// Sends bytes; returns an error if there is no room.
    pub(crate) fn try_send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), OsError> {
        self.channel.send(bytes, fds)
    }

    /// Receives a message with its descriptors; `None` if there is none.
    ///
    /// # Errors
    /// The other end is closed, or the message is malformed.
    pub fn receive<M: DeserializeOwned>(&self) -> Result<Option<(M, Vec<OwnedFd>)>, LinkError> {
        let Some(received) = self.channel.receive()? else {
            return Ok(None);
        };
        let message = serde_json::from_slice(&received.bytes)?;
        Ok(Some((message, received.fds)))
    }
}

/// Readable if a message has arrived, or the other end is closed.
impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
