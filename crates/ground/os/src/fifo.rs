//! Writes lines into a named pipe for a reader that may be slow, gone or not there yet, without
//! ever waiting.
//!
//! A line that has begun is finished before another begins, so the reader sees whole lines only.
//! While it does not keep up, of the lines that wait only the newest is kept. When it goes away,
//! what it left unread is dropped. A writer that died may have left the beginning of a line in the
//! pipe, so the first thing written is the end of that line.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::OsError;

/// A named pipe to write lines into.
#[derive(Debug)]
pub struct LineFifo {
    path: PathBuf,
    pipe: Option<File>,
    /// What is left of the line that has begun.
    rest: Vec<u8>,
    /// The newest line that has not begun.
    next: Option<Vec<u8>>,
}

/// What became of the newest line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Written {
    /// It is in the pipe.
    Whole,
    /// The reader does not keep up: it waits, or a part of it does. Call [`LineFifo::flush`] later.
    Waiting,
    NoReader,
}

impl LineFifo {
    /// Makes the pipe (mode 0644) if it is not there.
    ///
    /// # Errors
    /// It cannot be made, or something else than a pipe has its name.
    pub fn new(path: &Path) -> Result<Self, OsError> {
        let mode = Mode::from_bits_truncate(0o644);
        match mkfifo(path, mode) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(e) => return Err(OsError::read(path, e.into())),
        }
        check_is_fifo(path, std::fs::symlink_metadata(path))?;
        Ok(Self {
            path: path.to_owned(),
            pipe: None,
            rest: Vec::new(),
            next: None,
        })
    }

    /// Writes a line (without its newline); one that still waits is replaced by it.
    ///
    /// # Errors
    /// The pipe cannot be opened or written.
    pub fn offer(&mut self, line: &str) -> Result<Written, OsError> {
        let mut bytes = line.as_bytes().to_vec();
        bytes.push(b'\n');
        self.next = Some(bytes);
        self.flush()
    }

    /// Goes on with what waits.
    ///
    /// # Errors
    /// As [`LineFifo::offer`].
    pub fn flush(&mut self) -> Result<Written, OsError> {
        if self.pipe.is_none() {
            self.open()?;
        }
        // bound: two lines, and one more turn for each part of them that the pipe takes
        loop {
            let Some(pipe) = &mut self.pipe else {
                return Ok(Written::NoReader);
            };
            if self.rest.is_empty() {
                match self.next.take() {
                    Some(line) => self.rest = line,
                    None => return Ok(Written::Whole),
                }
            }
            match pipe.write(&self.rest) {
                Ok(count) => drop(self.rest.drain(..count)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(Written::Waiting),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::BrokenPipe => self.forget_reader(),
                Err(e) => return Err(OsError::read(&self.path, e)),
            }
        }
    }

    /// The line that has begun is lost with its reader; one that waits is for the next reader.
    fn forget_reader(&mut self) {
        self.pipe = None;
        self.rest.clear();
    }

    fn open(&mut self) -> Result<(), OsError> {
        let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
        let opened = OpenOptions::new()
            .write(true)
            .custom_flags(flags)
            .open(&self.path);
        match opened {
            Ok(pipe) => {
                check_is_fifo(&self.path, pipe.metadata())?;
                self.pipe = Some(pipe);
                // Ends the torn line of a writer before; else it is an empty line.
                self.rest = b"\n".to_vec();
                Ok(())
            }
            Err(e) if e.raw_os_error() == Some(libc::ENXIO) => Ok(()),
            Err(e) => Err(OsError::read(&self.path, e)),
        }
    }
}

pub(crate) fn check_is_fifo(path: &Path, found: io::Result<Metadata>) -> Result<(), OsError> {
    match found.map_err(|e| OsError::read(path, e))?.file_type() {
        kind if kind.is_fifo() => Ok(()),
        _ => Err(OsError::content(path, "something else", "a named pipe")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn reader(path: &Path) -> File {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        options.open(path).unwrap()
    }

    fn read(from: &mut File) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut part = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut part) {
            bytes.extend_from_slice(&part[..count]);
        }
        bytes
    }

    #[test]
    fn lines_arrive_whole_and_a_slow_reader_gets_the_newest() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("feed");
        let mut fifo = LineFifo::new(&path).unwrap();
        assert_eq!(fifo.offer("no reader").unwrap(), Written::NoReader);
        let mut from = reader(&path);
        assert_eq!(fifo.offer("one").unwrap(), Written::Whole);
        assert_eq!(read(&mut from), b"\none\n");
        // Far more than a pipe holds: the first begins, of the others the last is kept.
        let long = |letter: &str| letter.repeat(300_000);
        for letter in ["a", "b", "c", "d"] {
            assert_eq!(fifo.offer(&long(letter)).unwrap(), Written::Waiting);
        }
        let mut got = Vec::new();
        for _ in 0..100 {
            got.extend(read(&mut from));
            if fifo.flush().unwrap() == Written::Whole {
                break;
            }
        }
        got.extend(read(&mut from));
        let expected = format!("{}\n{}\n", long("a"), long("d"));
        assert!(got == expected.as_bytes(), "{} bytes", got.len());
    }

    #[test]
    fn a_new_reader_begins_with_a_whole_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("feed");
        let mut fifo = LineFifo::new(&path).unwrap();
        let from = reader(&path);
        assert_eq!(fifo.offer(&"x".repeat(300_000)).unwrap(), Written::Waiting);
        drop(from);
        assert_eq!(fifo.offer("after").unwrap(), Written::NoReader);
        let mut from = reader(&path);
        assert_eq!(fifo.offer("again").unwrap(), Written::Whole);
        assert_eq!(read(&mut from), b"\nagain\n");
    }

    #[test]
    fn a_partial_line_of_an_ended_writer_loses_no_other_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("feed");
        let mut fifo = LineFifo::new(&path).unwrap();
        let mut from = reader(&path);
        let mut dying = OpenOptions::new().write(true).open(&path).unwrap();
        dying.write_all(b"{\"node\": \"tor").unwrap();
        drop(dying);
        assert_eq!(fifo.offer("whole").unwrap(), Written::Whole);
        assert_eq!(read(&mut from), b"{\"node\": \"tor\nwhole\n");
    }

    #[test]
    fn only_a_pipe_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "mine").unwrap();
        assert!(LineFifo::new(&path).is_err());
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(LineFifo::new(&link).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }
}
