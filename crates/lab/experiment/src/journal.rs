//! `experiment.jsonl`: appended to line by line, and read to resume.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, ErrorKind, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use crate::ExperimentError;
use crate::grid::{Cell, WindowId, windows_of_cell};
use crate::record::{FORMAT, Failed, Header, Line, Window};

/// The name of the file.
pub const JOURNAL: &str = "experiment.jsonl";

/// The file in a folder of results.
pub(crate) fn journal_file(folder: &Path) -> PathBuf {
    folder.join(JOURNAL)
}

const NO_RESULTS: &str = "has no results: run `albacore experiment -f FILE --output FOLDER` first, or name another folder";

/// What the file of a folder holds.
#[derive(Clone, PartialEq, Debug)]
pub struct Results {
    pub header: Header,
    /// In the order in which they were measured.
    pub windows: Vec<Window>,
    /// The last failure of each cell that is not complete.
    pub failed: Vec<Failed>,
}

impl Results {
    /// Reads a folder of results.
    ///
    /// # Errors
    /// There are none, or the file is not of this program.
    pub fn read(folder: &Path) -> Result<Self, ExperimentError> {
        let path = journal_file(folder);
        let (results, _) = read(&path)?;
        results.ok_or_else(|| journal(&path, NO_RESULTS))
    }

    /// Leaves out failures of cells that were completed later, and all but the last of others.
    fn keep_last_failures(&mut self) {
        let mut last: BTreeMap<Cell, Failed> = BTreeMap::new();
        for failed in self.failed.drain(..) {
            last.insert(failed.cell.clone(), failed);
        }
        let all = windows_of_cell(&self.header.spec);
        for failed in last.into_values() {
            let own = self.windows.iter().filter(|w| w.id.cell == failed.cell);
            let windows = all.saturating_sub(own.count());
            if windows > 0 {
                self.failed.push(Failed { windows, ..failed });
            }
        }
    }

    pub(crate) fn done(&self) -> BTreeSet<WindowId> {
        self.windows
            .iter()
            .map(|window| window.id.clone())
            .collect()
    }
}

/// The results of a file and the bytes of its complete lines.
fn read(path: &Path) -> Result<(Option<Results>, u64), ExperimentError> {
    let failed = |source| ExperimentError::File {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => journal(path, NO_RESULTS),
        _ => failed(error),
    })?;
    let mut reader = BufReader::new(file);
    let (mut results, mut complete): (Option<Results>, u64) = (None, 0);
    let mut text = Vec::new();
    for number in 1.. {
        text.clear();
        let bytes = reader.read_until(b'\n', &mut text).map_err(failed)?;
        // the last line of a run that was cut off has no end
        if !text.ends_with(b"\n") {
            break;
        }
        complete += bytes as u64;
        let line = serde_json::from_slice(&text).map_err(|error| {
            journal(
                path,
                &format!("line {number} is not of this program: {error}"),
            )
        })?;
        match (line, &mut results) {
            (Line::Experiment(header), None) if header.format == FORMAT => {
                results = Some(Results {
                    header: *header,
                    windows: Vec::new(),
                    failed: Vec::new(),
                });
            }
            (Line::Window(window), Some(results)) => results.windows.push(*window),
            (Line::Failed(failed), Some(results)) => results.failed.push(failed),
            _ => {
                let what = format!("line {number} is of another version of this program");
                return Err(journal(path, &what));
            }
        }
    }
    if let Some(results) = &mut results {
        results.keep_last_failures();
    }
    Ok((results, complete))
}

pub(crate) fn journal(path: &Path, what: &str) -> ExperimentError {
    ExperimentError::Journal {
        path: path.to_owned(),
        what: what.to_owned(),
    }
}

/// The file of a run.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Opens the file of a folder, which is made if needed, and returns what is in it already: of
    /// the same experiment on the same machine. Cells that failed are tried again.
    ///
    /// # Errors
    /// The folder or file cannot be written, or has results of another experiment or machine.
    pub(crate) fn open(folder: &Path, header: Header) -> Result<(Self, Results), ExperimentError> {
        let path = journal_file(folder);
        let failed = |source| ExperimentError::File {
            path: path.clone(),
            source,
        };
        std::fs::create_dir_all(folder).map_err(failed)?;
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(false).read(true).write(true);
        let mut file = options.open(&path).map_err(failed)?;
        // until this process ends
        if file.try_lock().is_err() {
            return Err(journal(
                &path,
                "is written by another run: wait for its end",
            ));
        }
        let (before, complete) = read(&path)?;
        file.set_len(complete).map_err(failed)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        let mut open = Self {
            path: path.clone(),
            file,
        };
        let Some(before) = before else {
            open.append(&Line::Experiment(Box::new(header.clone())))?;
            let results = Results {
                header,
                windows: Vec::new(),
                failed: Vec::new(),
            };
            return Ok((open, results));
        };
        if before.header.spec != header.spec {
            let what = "has results of another experiment: name another folder with --output";
            return Err(journal(&path, what));
        }
        if !before.header.machine.is_same(&header.machine) {
            let what =
                "has results of another machine or kernel: name another folder with --output";
            return Err(journal(&path, what));
        }
        Ok((open, before))
    }

    /// Adds a line, which is on the disk when this returns.
    ///
    /// # Errors
    /// It cannot be written, as on a full disk: what was written before stays.
    pub(crate) fn append(&mut self, line: &Line) -> Result<(), ExperimentError> {
        let failed = |source| ExperimentError::File {
            path: self.path.clone(),
            source,
        };
        let mut text = serde_json::to_vec(line).map_err(|error| failed(error.into()))?;
        text.push(b'\n');
        self.file.write_all(&text).map_err(failed)?;
        self.file.sync_data().map_err(failed)
    }
}

#[cfg(test)]
mod tests;
