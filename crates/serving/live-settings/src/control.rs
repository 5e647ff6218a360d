//! The front's end of the link to the supervisor.

use std::os::fd::{AsFd as _, OwnedFd, RawFd};
use std::sync::Arc;

use albacore_supervision::{Link, LinkError, SupervisorMessage};
use tokio::io::unix::AsyncFd;

/// A message with its file descriptors.
pub type Received = (SupervisorMessage, Vec<OwnedFd>);

/// Receives messages of the supervisor.
#[derive(Debug)]
pub struct ControlReceiver {
    link: Arc<Link>,
    readable: AsyncFd<OwnedFd>,
}

impl ControlReceiver {
    /// Must be called inside a runtime.
    ///
    /// # Errors
    /// The descriptor of the link cannot be duplicated or polled.
    pub fn new(link: Arc<Link>) -> std::io::Result<Self> {
        let readable = readable(link.as_fd().try_clone_to_owned()?)?;
        Ok(Self { link, readable })
    }

    /// Waits for the next message. Cancel-safe.
    ///
    /// # Errors
    /// The link is closed, or a message is invalid.
    pub async fn next(&self) -> Result<Received, LinkError> {
        // bound: one iteration per wakeup
        loop {
            if let Some(message) = self.link.receive()? {
                return Ok(message);
            }
            // The next iteration returns the error, if any.
            if let Ok(mut ready) = self.readable.readable().await {
                if let Some(message) = self.link.receive()? {
                    return Ok(message);
                }
                ready.clear_ready();
            }
        }
    }
}

/// Opens the end of the link that this process inherited as descriptor `number`.
///
/// # Errors
/// The descriptor is not a link.
pub fn inherited(number: RawFd) -> Result<Arc<Link>, albacore_os::OsError> {
    Link::inherited(number).map(Arc::new)
}

#[allow(
    deprecated,
    reason = "unsound only for descriptors that are closed while registered, which an OwnedFd is not; \
              its successor is an unsafe function"
)]
fn readable(fd: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, tokio::io::Interest::READABLE)
}
