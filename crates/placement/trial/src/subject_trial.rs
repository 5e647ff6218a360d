//! The trial of a subject with its samples: when one is taken, and what it is made of.
//!
//! A sample is due at both ends of a window. Its latency is the first report of the server that
//! comes after that moment; what the kernel counts is read when that report is there. Servers of a
//! user's own report no latency: theirs is what the kernel counts alone.

use std::time::{Duration, Instant};

use crate::limits::{LOAD_REPORT_PERIOD, REPORT_PERIOD, REPORT_WAIT_MAX};
use crate::run::{TrialRun, TrialState};
use crate::sample::{Figure, LatencyHistogram, PodUsage, Sample};

/// What the kernel and the placer say of a subject at one moment.
#[derive(Clone, Debug)]
pub struct Reading {
    pub usage: PodUsage,
    /// Hash of the mapping in force.
    pub mapping: Option<u32>,
}

/// A trial and the report that it waits for.
#[derive(Clone, Debug)]
pub struct SubjectTrial {
    run: TrialRun,
    /// Since when a sample that is due waits for a latency report.
    waits_since: Option<Instant>,
}

impl SubjectTrial {
    #[must_use]
    pub const fn new(run: TrialRun) -> Self {
        Self {
            run,
            waits_since: None,
        }
    }

    #[must_use]
    pub const fn run(&self) -> &TrialRun {
        &self.run
    }

    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.run.state(), TrialState::Over(_))
    }

    /// When the next sample is due; `None` while it waits for a report, and without one.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.run.due().filter(|_| self.waits_since.is_none())
    }

    /// Whether a sample of a window waits for a report. One of the load has time.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.waits_since.is_some() && !self.is_over()
    }

    /// Whether latency reports are used.
    #[must_use]
    pub fn takes_reports(&self) -> bool {
        self.run.figure() == Figure::Latency && self.run.due().is_some()
    }

    /// How often the server has to report its latency; `None` if it need not.
    #[must_use]
    pub fn report_period(&self) -> Option<Duration> {
        let period = match self.is_over() {
            true => LOAD_REPORT_PERIOD,
            false => REPORT_PERIOD,
        };
        self.takes_reports().then_some(period)
    }

    /// Adds a sample if one is due and its report has come, or gives up on the report; true if the
    /// trial shows that. `latency` is what was reported since the last call.
    pub fn advance(
        &mut self,
        latency: Option<&LatencyHistogram>,
        read: impl FnOnce() -> Option<Reading>,
        now: Instant,
    ) -> bool {
        if self.run.due().is_none_or(|due| due > now) {
            return false;
        }
        if self.run.figure() == Figure::RunDelay {
            return self.add(LatencyHistogram::new(), read(), now);
        }
        let Some(since) = self.waits_since else {
            // A report that came until now may describe a time before the sample was due.
            self.waits_since = Some(now);
            return false;
        };
        let is_changed = match latency {
            Some(latency) => self.add(latency.clone(), read(), now),
            None if now.duration_since(since) < REPORT_WAIT_MAX => return false,
            None => self.run.report_missing(now),
        };
        self.waits_since = None;
        is_changed
    }

    fn add(&mut self, latency: LatencyHistogram, reading: Option<Reading>, now: Instant) -> bool {
        let mapping = reading.as_ref().and_then(|reading| reading.mapping);
        let usage = reading.map(|reading| reading.usage);
        let sample = usage.map(|usage| Sample { latency, usage });
        self.run.add_sample(sample, mapping, now)
    }
}
