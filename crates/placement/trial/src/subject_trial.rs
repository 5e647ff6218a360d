//! Trial of a subject, including the collection of its samples.
//!
//! A sample is due at both ends of a window. Its latency is the server's first report after that
//! moment; the kernel counters are read when that report arrives. User-provided servers report no
//! latency, so their samples contain kernel counters only.

use std::time::{Duration, Instant};

use crate::limits::{LOAD_REPORT_PERIOD, REPORT_PERIOD, REPORT_WAIT_MAX};
use crate::run::{TrialRun, TrialState};
use crate::sample::{LatencyHistogram, PodUsage, Sample, TrialMetric};

/// Kernel counters and active mapping of a subject at one moment.
#[derive(Clone, Debug)]
pub struct SubjectSnapshot {
    pub usage: PodUsage,
    /// Hash of the active mapping.
    pub mapping: Option<u32>,
}

/// A trial, and whether it waits for a report.
#[derive(Clone, Debug)]
pub struct SubjectTrial {
    run: TrialRun,
    /// When the pending sample started to wait for a latency report.
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
    pub fn is_finished(&self) -> bool {
        matches!(self.run.state(), TrialState::Over(_))
    }

    /// Time of the next sample; `None` while it waits for a report, and if none is due.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.run.due().filter(|_| self.waits_since.is_none())
    }

    /// True if a sample of a window waits for a report. Samples of the load are not urgent.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.waits_since.is_some() && !self.is_finished()
    }

    /// True if latency reports are used.
    #[must_use]
    pub fn uses_latency_reports(&self) -> bool {
        self.run.metric() == TrialMetric::Latency && self.run.due().is_some()
    }

    /// Required latency report interval of the server; `None` if no reports are needed.
    #[must_use]
    pub fn report_period(&self) -> Option<Duration> {
        let period = match self.is_finished() {
            true => LOAD_REPORT_PERIOD,
            false => REPORT_PERIOD,
        };
        self.uses_latency_reports().then_some(period)
    }

    /// Adds a sample if one is due and its report has arrived, or stops waiting for the report;
    /// true if the state of the trial changed. `latency` is the last report since the previous
    /// call.
    pub fn advance(
        &mut self,
        latency: Option<&LatencyHistogram>,
        read: impl FnOnce() -> Option<SubjectSnapshot>,
        now: Instant,
    ) -> bool {
        if self.run.due().is_none_or(|due| due > now) {
            return false;
        }
        if self.run.metric() == TrialMetric::RunDelay {
            return self.add(LatencyHistogram::new(), read(), now);
        }
        let Some(since) = self.waits_since else {
            // A report that arrived before this call may describe a time before the sample was due.
            self.waits_since = Some(now);
            return false;
        };
        let is_changed = match latency {
            Some(latency) => self.add(latency.clone(), read(), now),
            None if now.duration_since(since) < REPORT_WAIT_MAX => return false,
            None => self.run.handle_missing_report(now),
        };
        self.waits_since = None;
        is_changed
    }

    fn add(
        &mut self,
        latency: LatencyHistogram,
        reading: Option<SubjectSnapshot>,
        now: Instant,
    ) -> bool {
        let mapping = reading.as_ref().and_then(|reading| reading.mapping);
        let usage = reading.map(|reading| reading.usage);
        let sample = usage.map(|usage| Sample { latency, usage });
        self.run.add_sample(sample, mapping, now)
    }
}
