//! Tells when the deployment's file has new content.
//!
//! Polled: editors and GitOps tools replace files by renaming, through symbolic links, on network
//! file systems; a watch on the inode misses some of that, reading the file does not.

use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, SystemTime};

use crate::inbox::Inbox;

/// How soon an edit is seen. A stat costs some microseconds.
const PERIOD: Duration = Duration::from_millis(100);

/// What tells one content of a file from the next: time of change, length, inode.
pub(crate) type Stamp = (SystemTime, u64, u64);

/// Watches `file` on a thread of its own until the receiver is gone. `seen` was taken before the
/// file was read, so that no edit falls between.
pub(crate) fn watch(file: PathBuf, mut seen: Option<Stamp>, inbox: SyncSender<Inbox>) {
    std::thread::spawn(move || {
        // bound: one stat per period; ends with the receiver
        loop {
            std::thread::sleep(PERIOD);
            let now = stamp(&file);
            // A file that is away for a moment is being replaced; it is read when it is back.
            if now.is_some() && now != seen {
                seen = now;
                if inbox.send(Inbox::FileChanged).is_err() {
                    return;
                }
            }
        }
    });
}

/// The stamp of a file that is there.
pub(crate) fn stamp(file: &Path) -> Option<Stamp> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}
