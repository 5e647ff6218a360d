//! The front's end of the link to its supervisor.

use std::os::fd::{AsFd as _, OwnedFd, RawFd};
use std::sync::Arc;

use albacore_supervision::{Link, LinkError, SupervisorMessage};
use tokio::io::unix::AsyncFd;

/// A message with its descriptors.
pub type Received = (SupervisorMessage, Vec<OwnedFd>);

/// Messages of the supervisor.
#[derive(Debug)]
pub struct Control {
    link: Arc<Link>,
    readable: AsyncFd<OwnedFd>,
}

impl Control {
    /// To be called inside a runtime.
    ///
    /// # Errors
    /// The descriptor of the link cannot be duplicated or polled.
    pub fn new(link: Arc<Link>) -> std::io::Result<Self> {
        let readable = readable(link.as_fd().try_clone_to_owned()?)?;
        Ok(Self { link, readable })
    }

    /// The next message. May be cancelled.
    ///
    /// # Errors
    /// The link is closed or has a message that cannot be read.
    pub async fn next(&self) -> Result<Received, LinkError> {
        // bound: one pass for each wake
        loop {
            if let Some(message) = self.link.receive()? {
                return Ok(message);
            }
            // An error is seen by the next call.
            if let Ok(mut ready) = self.readable.readable().await {
                if let Some(message) = self.link.receive()? {
                    return Ok(message);
                }
                ready.clear_ready();
            }
        }
    }
}

/// The end of the link that this process inherited as descriptor `number`.
///
/// # Errors
/// It is no link.
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
