//! inotify watches on cgroup files such as `cpuset.cpus` and `cpu.max`. An effective cpuset can
//! also change without such a write (a cpu goes offline, a parent outside the namespace is
//! written), so a watch triggers an early poll but does not replace polling.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

use crate::OsError;

/// Watches a changing set of files for writes.
#[derive(Debug)]
pub struct FileWatch {
    inotify: Inotify,
    watched: Vec<(PathBuf, WatchDescriptor)>,
}

impl FileWatch {
    /// Creates a watch without files.
    ///
    /// # Errors
    /// There are no file descriptors or inotify instances left.
    pub fn new() -> Result<Self, OsError> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)
            .map_err(|e| OsError::call("inotify_init1", e))?;
        Ok(Self {
            inotify,
            watched: Vec::new(),
        })
    }

    /// Replaces the set of watched files.
    ///
    /// # Errors
    /// A file cannot be watched (removed, or the user's inotify watch limit is reached); the others
    /// are watched.
    pub fn set(&mut self, files: &[PathBuf]) -> Result<(), OsError> {
        let (keep, drop): (Vec<_>, Vec<_>) = self
            .watched
            .drain(..)
            .partition(|(path, _)| files.contains(path));
        self.watched = keep;
        for (_, descriptor) in drop {
            // The kernel removes a watch when its file is deleted, so this may fail.
            let _ = self.inotify.rm_watch(descriptor);
        }
        let mut first_error = None;
        for file in files {
            if self.watched.iter().any(|(path, _)| path == file) {
                continue;
            }
            match self.inotify.add_watch(file, AddWatchFlags::IN_MODIFY) {
                Ok(descriptor) => self.watched.push((file.clone(), descriptor)),
                Err(e) => first_error = first_error.or(Some(OsError::read(file, e.into()))),
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// True if a file was written since the last call; clears the pending events.
    ///
    /// # Errors
    /// The events cannot be read.
    pub fn drain(&self) -> Result<bool, OsError> {
        let mut was_written = false;
        // bound: EVENTS_MAX reads of one buffer each; the rest stays readable for the next call.
        for _ in 0..crate::limits::EVENTS_MAX {
            match self.inotify.read_events() {
                Ok(events) => was_written |= !events.is_empty(),
                Err(Errno::EAGAIN) => return Ok(was_written),
                Err(Errno::EINTR) => {}
                Err(e) => return Err(OsError::call("read(inotify)", e)),
            }
        }
        Ok(was_written)
    }
}

impl AsFd for FileWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_noticed_once_and_not_after_the_file_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let files = ["a", "b"].map(|name| directory.path().join(name));
        for file in &files {
            std::fs::write(file, "0\n").unwrap();
        }
        let mut watch = FileWatch::new().unwrap();
        watch.set(&files).unwrap();
        assert!(!watch.drain().unwrap());
        std::fs::write(&files[1], "1\n").unwrap();
        assert!(watch.drain().unwrap() && !watch.drain().unwrap());
        watch.set(&files[..1]).unwrap();
        watch.drain().unwrap();
        std::fs::write(&files[1], "2\n").unwrap();
        assert!(!watch.drain().unwrap());
        assert!(watch.set(&[directory.path().join("absent")]).is_err());
    }
}
