//! Detects changes of a file without reading its content.
//!
//! Polls `stat` instead of using inotify: an update of a ConfigMap replaces a symbolic link two
//! directories above the file, editors use atomic renames, and network file systems send no
//! notifications. `stat` covers all of these and costs a few microseconds.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Identifies the content of a file; differs after every change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    /// mtime and ctime, seconds and nanoseconds: programs can set mtime to an old value, but not
    /// ctime.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    /// Returns the time of the last change: seconds and nanoseconds since 1970.
    pub(super) const fn changed(&self) -> (i64, i64) {
        self.changed
    }
}

/// Returns the stamp of the file at `path`; `None` if it does not exist or is not accessible.
pub(super) fn stamp(path: &Path) -> Option<FileStamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(FileStamp {
        device: metadata.dev(),
        inode: metadata.ino(),
        bytes: metadata.size(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    })
}
