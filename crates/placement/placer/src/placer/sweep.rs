//! Reads masks back: all of them after an event that may have changed many, otherwise in slices.

use std::time::Duration;

use albacore_os::{Micros, OsError, Pid};

use super::{Placer, after};
use crate::limits::{
    BUDGET_PERIOD, BUDGET_PERMILLE_LOW, BUDGET_PERMILLE_MAX, SLOWDOWN_MAX, SWEEP_PERIOD_MIN,
    SWEEP_PERIOD_PER_THREAD, SWEEP_SLICE,
};
use crate::{PlacerError, SubjectId};

/// Position of the sweep.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// All masks must be read in one go.
    pub(super) is_whole: bool,
    /// The last process read.
    at: Option<(SubjectId, Option<Pid>)>,
}

/// CPU usage of the loop.
#[derive(Debug, Default)]
pub(super) struct Budget {
    checked_at: Micros,
    /// [`crate::PlacerCounters::cpu_micros`] at that time, without checks for expected spawns.
    used: u64,
}

impl Placer {
    /// Reads all masks with the next check.
    pub(super) fn sweep_soon(&mut self) {
        self.sweep.is_whole = true;
        self.due.sweep = Micros(0);
    }

    /// Reads the masks that are due; true if one has changed.
    pub(super) fn sweep(&mut self, now: Micros) -> Result<bool, OsError> {
        let (read, differs) = if std::mem::take(&mut self.sweep.is_whole) {
            (SWEEP_SLICE, self.sweep_all()?)
        } else {
            self.sweep_some()?
        };
        // infallible: at most a slice plus the threads of one process.
        let period = (SWEEP_PERIOD_PER_THREAD * read as u32).max(SWEEP_PERIOD_MIN);
        self.due.sweep = after(now, period * self.slowdown());
        Ok(differs)
    }

    fn sweep_all(&mut self) -> Result<bool, OsError> {
        let mut differs = false;
        for subject in self.subjects.values_mut() {
            if subject.tree.read_masks()? {
                subject.schedule.request();
                differs = true;
                // A thread that exited may have been replaced immediately.
                subject.tree.read_new_threads()?;
            }
            subject.record_verified();
        }
        self.figures.sweeps += 1;
        Ok(differs)
    }

    /// Reads the next slice; returns the number of masks read, and whether one has changed.
    fn sweep_some(&mut self) -> Result<(usize, bool), OsError> {
        let (mut left, mut differs) = (SWEEP_SLICE, false);
        let (from, mut process) = self.sweep.at.take().unwrap_or((SubjectId(0), None));
        for (&id, subject) in self.subjects.range_mut(from..) {
            let start = process.take().filter(|_| id == from);
            let (at, read, changed) = subject.tree.read_some_masks(start, left)?;
            left = left.saturating_sub(read);
            if changed {
                subject.schedule.request();
                differs = true;
                subject.tree.read_new_threads()?;
            }
            if at.is_none() {
                subject.record_verified();
            }
            if left == 0 {
                self.sweep.at = Some((id, at));
                return Ok((SWEEP_SLICE, differs));
            }
        }
        self.figures.sweeps += 1;
        Ok((SWEEP_SLICE - left, differs))
    }

    /// Factor by which periods are lengthened.
    pub(super) fn slowdown(&self) -> u32 {
        self.figures.slowdown.max(1)
    }

    /// Lengthens all periods while the loop exceeds its CPU budget, and shortens them afterwards.
    pub(super) fn keep_budget(&mut self, now: Micros) -> Result<(), PlacerError> {
        let time = Duration::from_micros(now.0.saturating_sub(self.budget.checked_at.0));
        if time < BUDGET_PERIOD {
            return Ok(());
        }
        let used = self
            .figures
            .cpu_micros
            .saturating_sub(self.spawns.expected_micros());
        let more = used.saturating_sub(self.budget.used);
        let is_first = self.budget.checked_at == Micros(0);
        self.budget = Budget {
            checked_at: now,
            used,
        };
        let permille = more * 1_000 / (time.as_micros() as u64).max(1);
        self.figures.slowdown = match self.slowdown() {
            slowdown if is_first => slowdown,
            slowdown if permille > BUDGET_PERMILLE_MAX => (slowdown * 2).min(SLOWDOWN_MAX),
            slowdown if permille < BUDGET_PERMILLE_LOW => (slowdown / 2).max(1),
            slowdown => slowdown,
        };
        match permille > BUDGET_PERMILLE_MAX && !is_first {
            true => self.pause_spawn_events(now),
            false => Ok(()),
        }
    }
}
