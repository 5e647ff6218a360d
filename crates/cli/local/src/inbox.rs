//! Everything that can happen to a run, as one closed enum; the main thread takes them one at a
//! time.

use std::process::ExitStatus;

pub(crate) enum Inbox {
    /// The placer tells something.
    Placer(super::placing::News),
    /// The built-in server printed a line of JSON.
    ServerLine(String),
    /// The server's process ended.
    ServerExited(std::io::Result<ExitStatus>),
    /// What the server left behind is gone and its pause is over.
    StartDue,
    /// The deployment's file has new content.
    FileChanged,
    /// Something to be told as a note.
    Note(String),
    /// SIGINT or SIGTERM; how many have come so far.
    Signal(u32),
}

/// Messages on the way to the main thread, which handles one in microseconds; senders wait when it
/// is full.
pub(crate) const INBOX_MESSAGES_MAX: usize = 1024;
