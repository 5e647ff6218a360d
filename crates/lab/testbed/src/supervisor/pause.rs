//! Pause process of a pod's sandbox: it idles, and reaps the pod's orphans.

use std::io::Result;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

/// Reaps children until a signal terminates it.
///
/// # Errors
/// The kernel refuses the signal mask.
pub fn pause() -> Result<()> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD] {
        signals.add(signal);
    }
    signals.thread_block()?;
    // bound: the lifetime of its pod
    while signals.wait()? == Signal::SIGCHLD {
        // bound: the number of exited children
        while !matches!(
            waitpid(None, Some(WaitPidFlag::WNOHANG)),
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD)
        ) {}
    }
    Ok(())
}
