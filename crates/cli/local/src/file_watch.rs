//! Detects new content of the deployment's file.
//!
//! Polled: editors and GitOps tools replace files by renaming, through symbolic links, on network
//! file systems; inotify misses some of these, polling does not.

use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, SystemTime};

use crate::message::Message;

/// Polling period. A stat costs some microseconds.
const PERIOD: Duration = Duration::from_millis(100);

/// Version of a file: modification time, length, inode.
pub(crate) type Stamp = (SystemTime, u64, u64);

/// Watches `file` on a thread of its own until the receiver is gone. `seen` must be taken before
/// the file is read for the first time, so that no edit is missed.
pub(crate) fn watch(file: PathBuf, mut seen: Option<Stamp>, messages: SyncSender<Message>) {
    std::thread::spawn(move || {
        // bound: one stat per period; ends with the receiver
        loop {
            std::thread::sleep(PERIOD);
            let now = stamp(&file);
            // A missing file is being replaced; it is read when it exists again.
            if now.is_some() && now != seen {
                seen = now;
                if messages.send(Message::FileChanged).is_err() {
                    return;
                }
            }
        }
    });
}

/// The stamp of `file`; `None` if it does not exist.
pub(crate) fn stamp(file: &Path) -> Option<Stamp> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}
