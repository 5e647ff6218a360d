//! Delivers SIGINT and SIGTERM, and optionally SIGUSR2, through a readable descriptor.
//!
//! The handler only writes to an eventfd (self-pipe trick). Handlers are reset by exec and no
//! signal is blocked, so child processes start with the default disposition.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::{OsError, Waker};

/// The eventfd to which the handler writes; -1 before it exists.
static HANDLER_FD: AtomicI32 = AtomicI32::new(-1);

/// Number of SIGINT and SIGTERM received.
static TERMINATION_SIGNALS: AtomicU32 = AtomicU32::new(0);

/// Number of SIGUSR2 received.
static UPGRADE_SIGNALS: AtomicU32 = AtomicU32::new(0);

/// Converts SIGINT and SIGTERM to a pollable descriptor. Signal handlers are process-wide: the most
/// recent instance receives the signals.
#[derive(Debug)]
pub struct Signals {
    wake: Waker,
}

extern "C" fn on_signal(signal: libc::c_int) {
    // Makes only async-signal-safe calls; errno is restored for the interrupted code.
    let errno = nix::errno::Errno::last_raw();
    let count = match signal {
        libc::SIGUSR2 => &UPGRADE_SIGNALS,
        _ => &TERMINATION_SIGNALS,
    };
    count.fetch_add(1, Ordering::SeqCst);
    let one = 1u64.to_ne_bytes();
    // SAFETY: write(2) is async-signal-safe and reads 8 bytes of `one`; an invalid descriptor
    // results in an error, not a fault.
    unsafe {
        libc::write(
            HANDLER_FD.load(Ordering::SeqCst),
            one.as_ptr().cast(),
            one.len(),
        )
    };
    nix::errno::Errno::set_raw(errno);
}

impl Signals {
    /// Installs handlers for SIGINT and SIGTERM.
    ///
    /// # Errors
    /// There are no file descriptors left.
    pub fn install() -> Result<Self, OsError> {
        Self::install_for(&[Signal::SIGINT, Signal::SIGTERM])
    }

    /// As [`Signals::install`], with a handler for SIGUSR2.
    ///
    /// # Errors
    /// As [`Signals::install`].
    pub fn install_with_sigusr2() -> Result<Self, OsError> {
        Self::install_for(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGUSR2])
    }

    fn install_for(signals: &[Signal]) -> Result<Self, OsError> {
        let wake = Waker::new()?;
        // The handler may run at any time, so its duplicate of the descriptor is never closed.
        let copy = nix::unistd::dup(&wake).map_err(|e| OsError::call("dup", e))?;
        HANDLER_FD.store(copy.as_raw_fd(), Ordering::SeqCst);
        std::mem::forget(copy);
        let action = SigAction::new(
            SigHandler::Handler(on_signal),
            SaFlags::SA_RESTART,
            SigSet::empty(),
        );
        for &signal in signals {
            // SAFETY: `on_signal` makes only async-signal-safe calls.
            unsafe { sigaction(signal, &action) }.map_err(|e| OsError::call("sigaction", e))?;
        }
        Ok(Self { wake })
    }

    /// Number of SIGINT and SIGTERM received so far; clears the readiness of the descriptor.
    pub fn termination_count(&self) -> u32 {
        self.wake.clear();
        TERMINATION_SIGNALS.load(Ordering::SeqCst)
    }

    /// Number of SIGUSR2 received so far.
    pub fn upgrade_count(&self) -> u32 {
        UPGRADE_SIGNALS.load(Ordering::SeqCst)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
