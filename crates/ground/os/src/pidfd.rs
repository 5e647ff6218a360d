//! pidfd: a handle of one process that becomes readable when the process exits and is unaffected by
//! pid reuse.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::libc;

use crate::{OsError, Pid};

#[derive(Debug)]
pub struct PidFd {
    fd: OwnedFd,
}

impl PidFd {
    /// Opens a process. Works for processes of other users, because it only allows waiting for the
    /// exit.
    ///
    /// # Errors
    /// The process has exited, or there are no file descriptors left.
    pub fn open(pid: Pid) -> Result<Self, OsError> {
        // SAFETY: pidfd_open takes two integers and does not access our memory.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.0, 0) };
        match RawFd::try_from(fd) {
            Ok(fd) if fd >= 0 => {
                // SAFETY: the kernel has just created this descriptor; it has no other owner.
                let fd = unsafe { OwnedFd::from_raw_fd(fd) };
                Ok(Self { fd })
            }
            _ => Err(OsError::call("pidfd_open", Errno::last())),
        }
    }

    /// Sends SIGTERM to the process.
    ///
    /// # Errors
    /// As [`PidFd::signal`].
    pub fn terminate(&self) -> Result<(), OsError> {
        self.signal(nix::sys::signal::Signal::SIGTERM)
    }

    /// Sends SIGKILL to the process.
    ///
    /// # Errors
    /// As [`PidFd::signal`].
    pub fn kill(&self) -> Result<(), OsError> {
        self.signal(nix::sys::signal::Signal::SIGKILL)
    }

    /// Sends a signal to the process (`pidfd_send_signal`).
    ///
    /// # Errors
    /// The process has exited, or permission is denied.
    pub fn signal(&self, signal: nix::sys::signal::Signal) -> Result<(), OsError> {
        use std::os::fd::AsRawFd;
        let no_info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: a null siginfo is allowed and has the same effect as kill(2).
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
