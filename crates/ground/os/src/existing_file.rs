//! Opens a file that an untrusted party names and owns.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::libc;

/// Opens an existing file for reading and writing. Does not follow a symbolic link and does not
/// block on a FIFO.
///
/// # Errors
/// The file does not exist, is a symbolic link or a directory, or permission is denied.
pub fn open_existing(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}
