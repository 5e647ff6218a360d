//! `experiment.jsonl`: append-only results, read to resume an experiment.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, ErrorKind, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use crate::ExperimentError;
use crate::grid::{Cell, WindowId, windows_of_cell};
use crate::record::{FORMAT, Failed, Header, Line, Window};

/// File name.
pub const JOURNAL: &str = "experiment.jsonl";

/// Path of the file in a folder of results.
pub(crate) fn journal_file(folder: &Path) -> PathBuf {
    folder.join(JOURNAL)
}

const NO_RESULTS: &str = "has no results: run `albacore experiment -f FILE --output FOLDER` first, or name another folder";

/// Contents of the file.
#[derive(Clone, PartialEq, Debug)]
pub struct Results {
    pub header: Header,
    /// In the order of measurement.
    pub windows: Vec<Window>,
    /// The last failure of each incomplete cell.
    pub failed: Vec<Failed>,
}

impl Results {
    /// Reads a folder of results.
    ///
    /// # Errors
    /// There are no results, or the file has another format.
    pub fn read(folder: &Path) -> Result<Self, ExperimentError> {
        let path = journal_file(folder);
        let (results, _) = read(&path)?;
        results.ok_or_else(|| journal(&path, NO_RESULTS))
    }

    /// Drops failures of cells that were completed later, and all but the last failure of the
    /// others.
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

/// Results of a file, and the length of its complete lines.
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
        // after a crash the last line is incomplete
        if !text.ends_with(b"\n") {
            break;
        }
        complete += bytes as u64;
        let line = serde_json::from_slice(&text)
            .map_err(|error| journal(path, &format!("cannot parse line {number}: {error}")))?;
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
                let what = format!("line {number} is from another version of this program");
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

/// The journal of a run.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Opens the journal of a folder, creating both if needed, and returns its results. These must
    /// be of the same experiment on the same machine. Failed cells are measured again.
    ///
    /// # Errors
    /// The folder or file cannot be written, or contains results of another experiment or machine.
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
        // held until this process exits
        if file.try_lock().is_err() {
            return Err(journal(
                &path,
                "is locked by another run: wait until it ends",
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

    /// Appends a line and syncs it to the disk.
    ///
    /// # Errors
    /// It cannot be written, for example on a full disk: the lines before it are kept.
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
