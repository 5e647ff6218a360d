//! The process of a pod's sandbox: it does nothing, and is the parent of the pod's orphans.

use std::io::Result;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

/// Reaps children until a signal ends it.
///
/// # Errors
/// The kernel gives no signals.
pub fn pause() -> Result<()> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD] {
        signals.add(signal);
    }
    signals.thread_block()?;
    // bound: the life of its pod
    while signals.wait()? == Signal::SIGCHLD {
        // bound: as many children as have ended
        while !matches!(
            waitpid(None, Some(WaitPidFlag::WNOHANG)),
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD)
        ) {}
    }
    Ok(())
}
