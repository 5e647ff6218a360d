//! Measures the missing windows, cell by cell.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use albacore_os::Signals;

use crate::ExperimentError;
use crate::grid::{Cell, WindowId, windows};
use crate::journal::{Journal, Results};
use crate::machine::Machine;
use crate::record::{FORMAT, Failed, Header, Line, Window};
use crate::server::{CellError, Servers};
use crate::spec::Spec;
use crate::window::measure;

/// Maximum number of repetitions of a disturbed window; after these it is kept and marked.
pub(crate) const REPEATS_MAX: u32 = 2;

/// Maximum number of starts of a cell's servers: one restart after a window without an answer.
pub(crate) const STARTS_MAX: usize = 2;

/// Progress of a run.
#[derive(Debug)]
pub enum Progress<'a> {
    /// Before the first window.
    Start {
        done: usize,
        all: usize,
        left: Duration,
    },
    Window {
        window: &'a Window,
        done: usize,
        all: usize,
        left: Duration,
    },
    /// A cell could not be measured; the run continues with the others.
    Failed(&'a Failed),
}

/// Runs or resumes an experiment, with results in a folder.
///
/// # Errors
/// The folder cannot be written or contains results of another experiment or machine; a signal was
/// received.
pub fn run(
    spec: &Spec,
    folder: &Path,
    on_progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Results, ExperimentError> {
    let header = Header {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: crate::seconds_since_epoch(),
        spec: spec.clone(),
        machine: Machine::read()?,
    };
    let (journal, results) = Journal::open(folder, header)?;
    let cells = windows(spec);
    let all = cells.iter().map(|(_, windows)| windows.len()).sum();
    let mut run = Run {
        spec,
        folder,
        done: results.done(),
        all,
        journal,
        results,
        signals: Signals::install()?,
        begin: Instant::now(),
        measured: 0,
        on_progress,
    };
    let left = run.left();
    (run.on_progress)(Progress::Start {
        done: run.done.len(),
        all,
        left,
    });
    for (cell, windows) in cells {
        run.measure_cell(&cell, &windows)?;
    }
    Ok(run.results)
}

struct Run<'a> {
    spec: &'a Spec,
    folder: &'a Path,
    done: BTreeSet<WindowId>,
    all: usize,
    journal: Journal,
    results: Results,
    signals: Signals,
    begin: Instant,
    /// Number of windows measured in this run.
    measured: u32,
    on_progress: &'a mut dyn FnMut(Progress<'_>),
}

impl Run<'_> {
    fn measure_cell(&mut self, cell: &Cell, windows: &[WindowId]) -> Result<(), ExperimentError> {
        let mut what = CellError::new();
        for _ in 0..STARTS_MAX {
            self.stop_if_interrupted()?;
            let windows = windows.iter().filter(|id| !self.done.contains(id));
            let missing: Vec<WindowId> = windows.cloned().collect();
            if missing.is_empty() {
                return Ok(());
            }
            let Some(mut servers) = Servers::new(self.spec, cell, self.folder) else {
                return Ok(());
            };
            let measured = self.measure_windows(&missing, &mut servers);
            let stopped = servers.stop();
            match measured? {
                Ok(()) => match stopped {
                    Ok(()) => return Ok(()),
                    Err(error) => what = error,
                },
                Err(error) => what = error,
            }
        }
        let missing = windows.iter().filter(|id| !self.done.contains(id)).count();
        let failed = Failed {
            cell: cell.clone(),
            windows: missing,
            what,
        };
        (self.on_progress)(Progress::Failed(&failed));
        self.journal.append(&Line::Failed(failed.clone()))?;
        self.results.failed.push(failed);
        Ok(())
    }

    /// Measures these windows of a cell. The outer error aborts the experiment, the inner one the
    /// cell.
    fn measure_windows(
        &mut self,
        missing: &[WindowId],
        servers: &mut Servers<'_>,
    ) -> Result<Result<(), CellError>, ExperimentError> {
        for id in missing {
            let mut repeats = 0;
            // bound: REPEATS_MAX repeats
            let window = loop {
                self.stop_if_interrupted()?;
                let measured = servers.with_policy(id.arm.policy()).and_then(|running| {
                    let measured = measure(self.spec, id, running, repeats);
                    measured.map_err(|error| error.to_string())
                });
                let window = match measured {
                    Ok(Some(window)) if window.answered > 0 => window,
                    Ok(_) => {
                        let what = "the server answered no request of a window with status 200";
                        return Ok(Err(what.to_owned()));
                    }
                    Err(what) => return Ok(Err(what)),
                };
                if window.disturbed.is_none() || repeats == REPEATS_MAX {
                    break window;
                }
                repeats += 1;
            };
            // after a signal the server exits together with this process, so the window is invalid
            self.stop_if_interrupted()?;
            self.keep(window)?;
        }
        Ok(Ok(()))
    }

    fn keep(&mut self, window: Window) -> Result<(), ExperimentError> {
        self.journal
            .append(&Line::Window(Box::new(window.clone())))?;
        self.done.insert(window.id.clone());
        self.measured += 1;
        let left = self.left();
        (self.on_progress)(Progress::Window {
            window: &window,
            done: self.done.len(),
            all: self.all,
            left,
        });
        self.results.windows.push(window);
        Ok(())
    }

    /// Estimated time of the missing windows, from those measured so far.
    fn left(&self) -> Duration {
        let each = match self.measured {
            0 => self.spec.window.0 + self.spec.settle.0,
            measured => self.begin.elapsed() / measured,
        };
        each.saturating_mul((self.all - self.done.len()) as u32)
    }

    fn stop_if_interrupted(&self) -> Result<(), ExperimentError> {
        match self.signals.termination_count() {
            0 => Ok(()),
            _ => Err(ExperimentError::Interrupted {
                done: self.done.len(),
                all: self.all,
            }),
        }
    }
}
