//! Waiting for several descriptors with a timeout on the monotonic clock, and waking a waiter from
//! elsewhere.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::OsError;
use crate::limits::EVENTS_MAX;

/// What the waiter calls a descriptor.
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

    /// Adds a descriptor: whenever it is readable, [`Poll::wait`] names `key`.
    ///
    /// # Errors
    /// The descriptor is there already or cannot be waited for.
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

    /// Waits until a descriptor is readable or `timeout` is over (rounded up to a millisecond); the
    /// keys of the readable ones, at most 64. A signal ends the wait early with no keys.
    ///
    /// # Errors
    /// The kernel refuses to wait.
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
pub struct Wake {
    eventfd: Arc<EventFd>,
}

impl Wake {
    /// A waker that was not used yet.
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

    /// The waker whose descriptor another process made and this one inherited.
    #[must_use]
    pub fn inherited(fd: OwnedFd) -> Self {
        // SAFETY: only reads and writes of 8 bytes follow, which are safe on any descriptor; on one
        // that is no eventfd they fail or do nothing.
        let eventfd = unsafe { EventFd::from_owned_fd(fd) };
        Self {
            eventfd: Arc::new(eventfd),
        }
    }

    /// Wakes the waiter, now or at its next wait.
    pub fn wake(&self) {
        // A full counter (EAGAIN) is readable already: the waiter wakes all the same.
        let _ = self.eventfd.write(1);
    }

    /// Forgets all wakes so far.
    pub fn clear(&self) {
        // An empty counter (EAGAIN) has nothing to forget.
        let _ = self.eventfd.read();
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pid, PidFd};

    #[test]
    fn the_end_of_a_process_and_a_wake_are_heard() {
        let poll = Poll::new().unwrap();
        let wake = Wake::new().unwrap();
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
