//! The messages that the main thread handles, one at a time.

use std::process::ExitStatus;

pub(crate) enum Message {
    Placer(super::placer_thread::PlacerMessage),
    /// The built-in server printed a line of JSON.
    ServerLine(String),
    ServerExited(std::io::Result<ExitStatus>),
    /// The orphans of the server are gone and the pause before its restart has elapsed.
    StartDue,
    /// The content of the deployment's file changed.
    FileChanged,
    /// Text to print as an event `note`.
    Note(String),
    /// SIGINT or SIGTERM, with the number of signals so far.
    Signal(u32),
}

/// Messages queued for the main thread, which handles one in microseconds; senders block while the
/// queue is full.
pub(crate) const QUEUE_MESSAGES_MAX: usize = 1024;
