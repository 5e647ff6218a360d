//! The local journal of results: lines are appended as they are fetched.

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use albacore_command::Failure;

use crate::description::FetchedResults;

/// The journal file, locked against other runs.
pub(crate) struct LocalResults {
    path: PathBuf,
    file: File,
}

impl LocalResults {
    pub(crate) fn open(folder: &Path, journal: &str) -> Result<Self, Failure> {
        let path = folder.join(journal);
        std::fs::create_dir_all(folder).map_err(|error| Failure::file(folder, &error))?;
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(false).read(true).write(true);
        let file = options
            .open(&path)
            .map_err(|error| Failure::file(&path, &error))?;
        // locked until this process exits, as for a run on this machine
        if file.try_lock().is_err() {
            return Err(Failure::Failed(format!(
                "{}: is written by another run: wait for its end",
                path.display()
            )));
        }
        Ok(Self { path, file })
    }

    /// Removes all lines.
    pub(crate) fn clear(&mut self) -> Result<(), Failure> {
        let cleared = self.file.set_len(0);
        cleared.map_err(|error| Failure::file(&self.path, &error))
    }

    /// Size and digest of the complete lines; truncates the file to them and positions it at their
    /// end.
    pub(crate) fn fetched(&mut self) -> Result<FetchedResults, Failure> {
        let fetched = FetchedResults::read(&self.path)?;
        let placed = self.file.set_len(fetched.bytes);
        let placed = placed.and_then(|()| self.file.seek(SeekFrom::Start(fetched.bytes)));
        match placed {
            Ok(_) => Ok(fetched),
            Err(error) => Err(Failure::file(&self.path, &error)),
        }
    }

    /// Appends a line, including its line feed.
    pub(crate) fn append(&mut self, line: &str) -> Result<(), Failure> {
        let written = self.file.write_all(line.as_bytes());
        written.map_err(|error| Failure::file(&self.path, &error))
    }
}
