//! Waits for several descriptors with a timeout (epoll), and wakes a waiting thread from another
//! one (eventfd).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::OsError;
use crate::limits::EVENTS_MAX;

/// Identifies a descriptor in the results of [`Poll::wait`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PollKey(pub u64);

/// A set of descriptors to wait for.
#[derive(Debug)]
pub struct Poll {
    epoll: Epoll,
}

impl Poll {
    /// An empty set.
    ///
    /// # Errors
    /// There are no file descriptors left.
    pub fn new() -> Result<Self, OsError> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(|e| OsError::call("epoll_create1", e))?;
        Ok(Self { epoll })
    }

    /// Adds a descriptor: while it is readable, [`Poll::wait`] returns `key`.
    ///
    /// # Errors
    /// The descriptor was already added or does not support epoll.
    pub fn add(&self, fd: &impl AsFd, key: PollKey) -> Result<(), OsError> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, key.0);
        self.epoll
            .add(fd.as_fd(), event)
            .map_err(|e| OsError::call("epoll_ctl(ADD)", e))
    }

    /// Removes a descriptor.
    ///
    /// # Errors
    /// The descriptor is not in the set.
    pub fn remove(&self, fd: &impl AsFd) -> Result<(), OsError> {
        self.epoll
            .delete(fd.as_fd())
            .map_err(|e| OsError::call("epoll_ctl(DEL)", e))
    }

    /// Waits until a descriptor is readable or `timeout` has expired (rounded up to a millisecond).
    /// Returns the keys of the readable ones, at most 64; empty if a signal interrupts the wait.
    ///
    /// # Errors
    /// The `epoll_wait` call fails.
    pub fn wait(&self, timeout: Duration) -> Result<Vec<PollKey>, OsError> {
        let millis = i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX);
        let timeout = EpollTimeout::try_from(millis).unwrap_or(EpollTimeout::MAX);
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        match self.epoll.wait(&mut events, timeout) {
            Ok(count) => Ok(events[..count]
                .iter()
                .map(|event| PollKey(event.data()))
                .collect()),
            Err(Errno::EINTR) => Ok(Vec::new()),
            Err(e) => Err(OsError::call("epoll_wait", e)),
        }
    }
}

/// Wakes the thread that waits for it; clones wake the same thread.
#[derive(Clone, Debug)]
pub struct Waker {
    eventfd: Arc<EventFd>,
}

impl Waker {
    /// Creates a waker.
    ///
    /// # Errors
    /// There are no file descriptors left.
    pub fn new() -> Result<Self, OsError> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let eventfd = EventFd::from_flags(flags).map_err(|e| OsError::call("eventfd", e))?;
        Ok(Self {
            eventfd: Arc::new(eventfd),
        })
    }

    /// Wraps the eventfd that another process created and this one inherited.
    #[must_use]
    pub fn inherited(fd: OwnedFd) -> Self {
        // SAFETY: only reads and writes of 8 bytes follow, which are safe on any descriptor; on one
        // that is not an eventfd they fail or have no effect.
        let eventfd = unsafe { EventFd::from_owned_fd(fd) };
        Self {
            eventfd: Arc::new(eventfd),
        }
    }

    /// Wakes the waiting thread now, or at its next wait.
    pub fn wake(&self) {
        // A full counter (EAGAIN) is already readable, so the waiting thread wakes in any case.
        let _ = self.eventfd.write(1);
    }

    /// Resets the counter.
    pub fn clear(&self) {
        // The counter may be 0 already (EAGAIN).
        let _ = self.eventfd.read();
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pid, PidFd};

    #[test]
    fn poll_returns_on_process_exit_and_on_wake() {
        let poll = Poll::new().unwrap();
        let wake = Waker::new().unwrap();
        poll.add(&wake, PollKey(1)).unwrap();
        assert_eq!(poll.wait(Duration::ZERO).unwrap(), []);
        wake.clone().wake();
        assert_eq!(poll.wait(Duration::from_secs(60)).unwrap(), [PollKey(1)]);
        wake.clear();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pidfd = PidFd::open(Pid(child.id() as i32)).unwrap();
        poll.add(&pidfd, PollKey(2)).unwrap();
        assert_eq!(poll.wait(Duration::ZERO).unwrap(), []);
        pidfd.signal(nix::sys::signal::Signal::SIGKILL).unwrap();
        assert_eq!(poll.wait(Duration::from_secs(60)).unwrap(), [PollKey(2)]);
        poll.remove(&pidfd).unwrap();
        child.wait().unwrap();
        assert!(PidFd::open(Pid(child.id() as i32)).unwrap_err().is_gone());
    }
}
