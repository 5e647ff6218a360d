//! Tells when a file has new content, without reading it.
//!
//! Polled rather than watched: ConfigMaps swap a symbolic link two folders above, editors rename,
//! network file systems say nothing. A stat follows all of that and costs some microseconds.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// What tells one content of a path from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Of the content and of the inode: a file can be given an old time, not an old change.
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The stamp of what is there now; `None`: nothing is, or it cannot be seen.
pub(super) fn stamp(path: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(path).ok()?;
    Some(Stamp {
        device: found.dev(),
        inode: found.ino(),
        bytes: found.size(),
        modified: (found.mtime(), found.mtime_nsec()),
        changed: (found.ctime(), found.ctime_nsec()),
    })
}
