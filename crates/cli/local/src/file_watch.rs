//! Detects changes of the deployment's file.
//!
//! Uses polling: editors and GitOps tools replace files by renaming, through symbolic links, and on
//! network file systems; inotify misses some of these changes.

use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, SystemTime};

use crate::message::Message;

/// Polling interval. A stat call costs some microseconds.
const PERIOD: Duration = Duration::from_millis(100);

/// Version of a file: modification time, length, inode.
pub(crate) type FileVersion = (SystemTime, u64, u64);

/// Watches `file` on its own thread until the receiver is dropped. `seen` must be read before the
/// file is first read, so that no edit is missed.
pub(crate) fn watch(file: PathBuf, mut seen: Option<FileVersion>, messages: SyncSender<Message>) {
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
pub(crate) fn stamp(file: &Path) -> Option<FileVersion> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}
