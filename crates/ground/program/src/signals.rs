//! Termination signals.

use std::future::Future;
use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Resolves at the first SIGTERM or SIGINT; both are caught from this call on.
///
/// # Errors
/// The signal handlers cannot be installed.
pub fn termination_signal() -> io::Result<impl Future<Output = ()>> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    })
}
