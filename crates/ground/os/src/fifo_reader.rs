//! Non-blocking line reader for a named pipe with untrusted writers.
//!
//! Each call reads a bounded number of bytes. An incomplete line is kept up to the maximum line
//! length; a longer line is skipped up to its end. Therefore time and memory are bounded for any
//! input, or none.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::libc;
use nix::sys::stat::{Mode, umask};
use nix::unistd::mkfifo;

use crate::OsError;
use crate::fifo::check_is_fifo;

/// Anyone who can access the pipe may write to it; only its owner reads.
const MODE: u32 = 0o622;

/// Bytes per read: the default capacity of a pipe.
const PART_BYTES: usize = 64 << 10;

/// Read end of a named pipe.
#[derive(Debug)]
pub struct FifoReader {
    path: PathBuf,
    pipe: File,
    line_bytes_max: usize,
    /// Incomplete line.
    partial_line: Vec<u8>,
    /// The current line is too long; the rest of it is skipped.
    is_skipping: bool,
}

impl FifoReader {
    /// Opens the pipe and creates it (mode 0622) if it does not exist. Call it while no other
    /// thread creates files, because it briefly changes the umask of the process. Lines have at
    /// most `line_bytes_max` bytes without their newline.
    ///
    /// # Errors
    /// The pipe cannot be created or opened, or the path is not a pipe.
    pub fn new(path: &Path, line_bytes_max: usize) -> Result<Self, OsError> {
        let failed = |error| OsError::read(path, error);
        match make(path) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(e) => return Err(failed(e.into())),
        }
        // This also opens a regular file without writing to it; the check below rejects it.
        let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let pipe = opened.map_err(failed)?;
        check_is_fifo(path, pipe.metadata())?;
        Ok(Self {
            path: path.to_owned(),
            pipe,
            line_bytes_max,
            partial_line: Vec::new(),
            is_skipping: false,
        })
    }

    /// Calls `on_line` with each complete line, without its newline, reading at most `bytes_max`
    /// bytes. Empty lines and lines that are too long are skipped.
    ///
    /// # Errors
    /// The pipe cannot be read.
    pub fn read(
        &mut self,
        bytes_max: usize,
        on_line: &mut dyn FnMut(&[u8]),
    ) -> Result<(), OsError> {
        let mut part = vec![0; PART_BYTES.min(bytes_max)];
        let mut left = bytes_max;
        // bound: bytes_max, up to PART_BYTES per iteration.
        while left > 0 {
            let room = part.len().min(left);
            match self.pipe.read(&mut part[..room]) {
                // No writer has the pipe open.
                Ok(0) => break,
                Ok(count) => {
                    self.split(&part[..count], on_line);
                    left -= count;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => left -= 1,
                Err(e) => return Err(OsError::read(&self.path, e)),
            }
        }
        Ok(())
    }

    fn split(&mut self, bytes: &[u8], on_line: &mut dyn FnMut(&[u8])) {
        let mut pieces = bytes.split(|byte| *byte == b'\n').peekable();
        // bound: one iteration per piece of `bytes`.
        while let Some(piece) = pieces.next() {
            if self.partial_line.len() + piece.len() > self.line_bytes_max {
                self.is_skipping = true;
                self.partial_line.clear();
            } else if !self.is_skipping {
                self.partial_line.extend_from_slice(piece);
            }
            if pieces.peek().is_some() {
                if !self.partial_line.is_empty() {
                    on_line(&self.partial_line);
                }
                self.partial_line.clear();
                self.is_skipping = false;
            }
        }
    }
}

/// Creates the pipe with its full mode, which the umask would reduce. A later `chmod` would have
/// the same effect, but the agent's seccomp profile forbids it because it changes existing files.
fn make(path: &Path) -> Result<(), Errno> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let before = umask(Mode::empty());
    let made = mkfifo(path, Mode::from_bits_truncate(MODE));
    umask(before);
    made
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn writer(path: &Path) -> File {
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(libc::O_NONBLOCK);
        options.open(path).unwrap()
    }

    fn lines(reader: &mut FifoReader, bytes_max: usize) -> Vec<String> {
        let mut found = Vec::new();
        let mut on_line = |line: &[u8]| found.push(String::from_utf8(line.to_vec()).unwrap());
        reader.read(bytes_max, &mut on_line).unwrap();
        found
    }

    #[test]
    fn lines_are_read_as_they_come_and_nothing_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("reports");
        let mut reader = FifoReader::new(&path, 8).unwrap();
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE, "whatever the umask is");
        assert!(lines(&mut reader, 100).is_empty(), "nobody writes");
        let mut from = writer(&path);
        assert!(lines(&mut reader, 100).is_empty(), "nobody wrote");
        from.write_all(b"\none\n\ntwo\nthr").unwrap();
        assert_eq!(lines(&mut reader, 100), ["one", "two"]);
        from.write_all(b"ee\n").unwrap();
        drop(from);
        assert_eq!(lines(&mut reader, 100), ["three"]);
        let mut again = FifoReader::new(&path, 8).unwrap();
        writer(&path)
            .write_all(b"12345678\n123456789\nb\n")
            .unwrap();
        assert_eq!(lines(&mut again, 100), ["12345678", "b"]);
    }

    #[test]
    fn a_writer_without_end_takes_neither_time_nor_memory() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("reports");
        let mut reader = FifoReader::new(&path, 100).unwrap();
        let mut from = writer(&path);
        let mut written = 0;
        for _ in 0..50 {
            // Fills the pipe without a newline.
            while let Ok(count) = from.write(&[b'x'; 4096]) {
                written += count;
            }
            assert!(lines(&mut reader, 10_000).is_empty());
            assert!(reader.partial_line.len() <= 100);
        }
        assert!(written >= 400_000, "each read took 10,000 bytes: {written}");
        // The capacity of a pipe is 64 KiB.
        assert!(lines(&mut reader, 1 << 20).is_empty());
        from.write_all(b"\nnext\n").unwrap();
        assert_eq!(lines(&mut reader, 100), ["next"]);
    }

    #[test]
    fn only_a_pipe_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "mine\n").unwrap();
        assert!(FifoReader::new(&path, 8).is_err());
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(FifoReader::new(&link, 8).is_err());
    }
}
