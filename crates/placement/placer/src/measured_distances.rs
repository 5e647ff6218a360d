//! Measured distances of this machine, from a file that may be created, changed and removed while
//! the placer runs (a ConfigMap mounted by the kubelet).

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::SystemTime;

use albacore_topology::{Distances, DistancesFile, Topology};
use albacore_values::sentence;

use crate::limits::DISTANCES_FILE_BYTES_MAX;
use crate::report::Report;

/// Path of the file, and state of the last reading.
#[derive(Debug)]
pub(crate) struct MeasuredDistances {
    /// A file, or a directory with one file per kind of machine.
    path: Option<PathBuf>,
    /// Stamp of the last file read.
    stamp: Option<Stamp>,
    problem: Option<String>,
    /// A file was read, or removed, since the last report.
    has_unreported_change: bool,
}

/// Metadata that changes when a file is written or replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
}

impl MeasuredDistances {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self {
            path,
            stamp: None,
            problem: None,
            has_unreported_change: false,
        }
    }

    /// Report on the file, once after each change.
    pub(crate) fn take_report(&mut self) -> Option<Report> {
        let report = Report::Distances {
            problem: self.problem.clone(),
        };
        std::mem::take(&mut self.has_unreported_change).then_some(report)
    }

    /// True if the file of the machine differs from the last one read.
    pub(crate) fn has_changed(&self, machine: &Topology) -> bool {
        self.file_of(machine).and_then(|path| stamp(&path)) != self.stamp
    }

    /// Applies the distances of the machine's file; unchanged if the file is missing or rejected.
    pub(crate) fn apply(&mut self, machine: Topology) -> Topology {
        let before = self.stamp.take();
        self.problem = None;
        let Some(path) = self.file_of(&machine) else {
            return machine;
        };
        self.stamp = stamp(&path);
        self.has_unreported_change = before.is_some() || self.stamp.is_some();
        if self.stamp.is_none() {
            return machine;
        }
        match read(&path, &machine) {
            Ok(distances) => machine.with_distances(distances),
            Err(problem) => {
                self.problem = Some(format!("{}: {problem}", path.display()));
                machine
            }
        }
    }

    fn file_of(&self, machine: &Topology) -> Option<PathBuf> {
        let path = self.path.as_ref()?;
        Some(match path.is_dir() {
            true => path.join(format!("{}.json", machine.hash_hex())),
            false => path.clone(),
        })
    }
}

/// `None` if the file does not exist.
fn stamp(path: &PathBuf) -> Option<Stamp> {
    let of = |metadata: Metadata| Stamp {
        modified: metadata.modified().ok(),
        bytes: metadata.len(),
    };
    std::fs::metadata(path).ok().map(of)
}

fn read(path: &PathBuf, machine: &Topology) -> Result<Distances, String> {
    let text = read_bounded(path).map_err(|error| error.to_string())?;
    let file = DistancesFile::parse(&text).map_err(|error| sentence(&error))?;
    file.distances_of(machine).map_err(|error| sentence(&error))
}

fn read_bounded(path: &PathBuf) -> io::Result<String> {
    let mut text = String::new();
    let read = File::open(path)?
        .take(DISTANCES_FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)?;
    if read as u64 > DISTANCES_FILE_BYTES_MAX {
        let what = format!("the file is larger than {DISTANCES_FILE_BYTES_MAX} bytes");
        return Err(io::Error::other(what));
    }
    Ok(text)
}
