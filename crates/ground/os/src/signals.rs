//! SIGINT and SIGTERM, and where asked for SIGUSR2, as a readable descriptor.
//!
//! The handler writes to an eventfd and nothing else. Handlers end with exec and no signal is
//! blocked, so children start with the default behavior.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::{OsError, Wake};

/// The eventfd the handler writes to; -1 before there is one.
static HANDLER_FD: AtomicI32 = AtomicI32::new(-1);

/// How many SIGINT and SIGTERM have arrived.
static ARRIVED: AtomicU32 = AtomicU32::new(0);

/// How many SIGUSR2 have arrived.
static UPGRADES: AtomicU32 = AtomicU32::new(0);

/// Turns SIGINT and SIGTERM into something to wait for. The whole process has one set of handlers:
/// the last instance receives them.
#[derive(Debug)]
pub struct Signals {
    wake: Wake,
}

extern "C" fn tell(signal: libc::c_int) {
    // Only calls that are allowed in a signal handler; errno is put back for the code that was
    // interrupted.
    let errno = nix::errno::Errno::last_raw();
    let count = match signal {
        libc::SIGUSR2 => &UPGRADES,
        _ => &ARRIVED,
    };
    count.fetch_add(1, Ordering::SeqCst);
    let one = 1u64.to_ne_bytes();
    // SAFETY: write(2) is async-signal-safe and reads 8 bytes of `one`; a bad descriptor is an
    // error, not a fault.
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
    /// Installs the handlers of SIGINT and SIGTERM.
    ///
    /// # Errors
    /// There are no file descriptors left.
    pub fn install() -> Result<Self, OsError> {
        Self::install_for(&[Signal::SIGINT, Signal::SIGTERM])
    }

    /// As [`Signals::install`], with one for SIGUSR2.
    ///
    /// # Errors
    /// As there.
    pub fn install_with_upgrades() -> Result<Self, OsError> {
        Self::install_for(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGUSR2])
    }

    fn install_for(signals: &[Signal]) -> Result<Self, OsError> {
        let wake = Wake::new()?;
        // The handler's own copy of the descriptor lives as long as the process: it may run at any
        // time.
        let copy = nix::unistd::dup(&wake).map_err(|e| OsError::call("dup", e))?;
        HANDLER_FD.store(copy.as_raw_fd(), Ordering::SeqCst);
        std::mem::forget(copy);
        let action = SigAction::new(
            SigHandler::Handler(tell),
            SaFlags::SA_RESTART,
            SigSet::empty(),
        );
        for &signal in signals {
            // SAFETY: `tell` makes only async-signal-safe calls.
            unsafe { sigaction(signal, &action) }.map_err(|e| OsError::call("sigaction", e))?;
        }
        Ok(Self { wake })
    }

    /// How many SIGINT and SIGTERM have arrived so far; makes the descriptor unreadable until the
    /// next.
    pub fn take(&self) -> u32 {
        self.wake.clear();
        ARRIVED.load(Ordering::SeqCst)
    }

    /// How many SIGUSR2 have arrived so far.
    pub fn upgrades(&self) -> u32 {
        UPGRADES.load(Ordering::SeqCst)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
