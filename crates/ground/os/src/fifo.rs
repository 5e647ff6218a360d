//! Non-blocking line writer for a named pipe whose reader may be slow, gone or not yet started.
//!
//! A partially written line is always completed before the next one, so the reader sees whole lines
//! only. If the reader does not keep up, only the newest pending line is kept. When the reader
//! closes the pipe, its unread data is lost. A previous writer that died may have left a partial
//! line in the pipe, so the first byte written is a newline.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::OsError;

/// Write end of a named pipe for lines.
#[derive(Debug)]
pub struct LineFifo {
    path: PathBuf,
    pipe: Option<File>,
    /// Unwritten part of the current line.
    rest: Vec<u8>,
    /// The newest line that has not been started.
    next: Option<Vec<u8>>,
}

/// State of the newest line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WriteStatus {
    /// Completely written to the pipe.
    Complete,
    /// The reader does not keep up, so all or part of the line is pending. Call [`LineFifo::flush`]
    /// later.
    Pending,
    NoReader,
}

impl LineFifo {
    /// Creates the pipe (mode 0644) if it does not exist.
    ///
    /// # Errors
    /// The pipe cannot be created, or the path is not a pipe.
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

    /// Writes a line (without its newline); replaces a pending line that has not been started.
    ///
    /// # Errors
    /// The pipe cannot be opened or written.
    pub fn offer(&mut self, line: &str) -> Result<WriteStatus, OsError> {
        let mut bytes = line.as_bytes().to_vec();
        bytes.push(b'\n');
        self.next = Some(bytes);
        self.flush()
    }

    /// Writes pending data.
    ///
    /// # Errors
    /// As [`LineFifo::offer`].
    pub fn flush(&mut self) -> Result<WriteStatus, OsError> {
        if self.pipe.is_none() {
            self.open()?;
        }
        // bound: two lines, and one more iteration for each partial write.
        loop {
            let Some(pipe) = &mut self.pipe else {
                return Ok(WriteStatus::NoReader);
            };
            if self.rest.is_empty() {
                match self.next.take() {
                    Some(line) => self.rest = line,
                    None => return Ok(WriteStatus::Complete),
                }
            }
            match pipe.write(&self.rest) {
                Ok(count) => drop(self.rest.drain(..count)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(WriteStatus::Pending),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::BrokenPipe => self.forget_reader(),
                Err(e) => return Err(OsError::read(&self.path, e)),
            }
        }
    }

    /// Drops the partially written line, which is lost with its reader; keeps a pending line for
    /// the next reader.
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
                // Terminates the partial line of a previous writer; otherwise this is an empty
                // line.
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
        assert_eq!(fifo.offer("no reader").unwrap(), WriteStatus::NoReader);
        let mut from = reader(&path);
        assert_eq!(fifo.offer("one").unwrap(), WriteStatus::Complete);
        assert_eq!(read(&mut from), b"\none\n");
        // Far more than the capacity of a pipe: the first is partially written, of the others only
        // the last is kept.
        let long = |letter: &str| letter.repeat(300_000);
        for letter in ["a", "b", "c", "d"] {
            assert_eq!(fifo.offer(&long(letter)).unwrap(), WriteStatus::Pending);
        }
        let mut got = Vec::new();
        for _ in 0..100 {
            got.extend(read(&mut from));
            if fifo.flush().unwrap() == WriteStatus::Complete {
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
        assert_eq!(
            fifo.offer(&"x".repeat(300_000)).unwrap(),
            WriteStatus::Pending
        );
        drop(from);
        assert_eq!(fifo.offer("after").unwrap(), WriteStatus::NoReader);
        let mut from = reader(&path);
        assert_eq!(fifo.offer("again").unwrap(), WriteStatus::Complete);
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
        assert_eq!(fifo.offer("whole").unwrap(), WriteStatus::Complete);
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
