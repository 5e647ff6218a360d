//! Detects changes of a file without reading it.
//!
//! By polling `stat` rather than inotify: ConfigMaps replace a symbolic link two directories above
//! the file, editors rename, network file systems send no notifications. A stat covers all of these
//! and costs some microseconds.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Identifies the content of a path; differs after each change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    /// mtime and ctime, seconds and nanoseconds: programs can set an old mtime, but no old ctime.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    /// When it changed last: seconds and nanoseconds since 1970.
    pub(super) const fn changed(&self) -> (i64, i64) {
        self.changed
    }
}

/// The stamp of the file at `path`; `None` if there is none, or it is not accessible.
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
