//! A handle on one process that becomes readable when the process ends, and never means another
//! process.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::libc;

use crate::{OsError, Pid};

#[derive(Debug)]
pub struct PidFd {
    fd: OwnedFd,
}

impl PidFd {
    /// Opens a process. Works for processes of other users: it allows waiting for the end, nothing
    /// more.
    ///
    /// # Errors
    /// The process is gone, or there are no file descriptors left.
    pub fn open(pid: Pid) -> Result<Self, OsError> {
        // SAFETY: pidfd_open takes two integers and touches no memory of ours.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.0, 0) };
        match RawFd::try_from(fd) {
            Ok(fd) if fd >= 0 => {
                // SAFETY: the kernel has just given us this descriptor; it has no other owner.
                let fd = unsafe { OwnedFd::from_raw_fd(fd) };
                Ok(Self { fd })
            }
            _ => Err(OsError::call("pidfd_open", Errno::last())),
        }
    }

    /// Asks this very process to end (SIGTERM).
    ///
    /// # Errors
    /// As [`PidFd::signal`].
    pub fn terminate(&self) -> Result<(), OsError> {
        self.signal(nix::sys::signal::Signal::SIGTERM)
    }

    /// Ends this very process (SIGKILL).
    ///
    /// # Errors
    /// As [`PidFd::signal`].
    pub fn kill(&self) -> Result<(), OsError> {
        self.signal(nix::sys::signal::Signal::SIGKILL)
    }

    /// Sends a signal to this very process.
    ///
    /// # Errors
    /// The process is gone, or the kernel forbids it.
    pub fn signal(&self, signal: nix::sys::signal::Signal) -> Result<(), OsError> {
        use std::os::fd::AsRawFd;
        let no_info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: a null siginfo is allowed and means what kill(2) would send.
        let result = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.fd.as_raw_fd(),
                signal as libc::c_int,
                no_info,
                0,
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(OsError::call("pidfd_send_signal", Errno::last()))
        }
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
