//! Opens a file that somebody else names and owns.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::libc;

/// Opens an existing file for reading and writing. A symbolic link is not followed, and a FIFO not
/// waited for.
///
/// # Errors
/// There is no such file, it is a symbolic link or a folder, or it may not be read and written.
pub fn open_existing(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}
