//! Detects whether the load of a pod differs from that of its trial.

use std::time::{Duration, Instant};

use crate::limits::{LOAD_FACTOR, LOAD_WINDOWS};
use crate::sample::{Sample, TrialMetric, measure};

/// Load averages after the verdict, per window.
#[derive(Clone, Debug)]
pub(crate) struct LoadWatch {
    metric: TrialMetric,
    /// Mean load of the trial's windows.
    trial_load: f64,
    window: Duration,
    due: Instant,
    window_start: Option<(Sample, Instant)>,
    /// Number of consecutive windows outside of the factor, and the load of the last window.
    windows_outside: u32,
    last_load: f64,
}

impl LoadWatch {
    pub(crate) fn new(metric: TrialMetric, load: f64, window: Duration, now: Instant) -> Self {
        Self {
            metric,
            trial_load: load,
            window,
            due: now,
            window_start: None,
            windows_outside: 0,
            last_load: load,
        }
    }

    /// Time of the next sample.
    pub(crate) const fn due(&self) -> Instant {
        self.due
    }

    /// Adds a due sample, or `None` if it is unavailable. A window with too little load for a trial
    /// is ignored.
    pub(crate) fn add_sample(&mut self, sample: Option<Sample>, now: Instant) {
        self.due = now + self.window;
        let first = self.window_start.take();
        let Some(sample) = sample else {
            return;
        };
        let stats = first
            .and_then(|(first, at)| measure(self.metric, &first, &sample, now.duration_since(at)));
        self.window_start = Some((sample, now));
        let Some(stats) = stats else {
            return;
        };
        self.last_load = stats.load;
        let factor = (stats.load / self.trial_load).max(self.trial_load / stats.load);
        self.windows_outside = match factor > LOAD_FACTOR {
            true => self.windows_outside.saturating_add(1),
            false => 0,
        };
    }

    /// Reason to repeat the trial, human-readable.
    pub(crate) fn change(&self) -> Option<String> {
        let what = match self.metric {
            TrialMetric::Latency => "requests/s",
            TrialMetric::RunDelay => "cpu s/s",
        };
        let number = |load: f64| match load >= 10.0 {
            true => format!("{load:.0}"),
            false => format!("{load:.2}"),
        };
        let (last, before) = (number(self.last_load), number(self.trial_load));
        let text = || format!("the load is {last} {what}, was {before}");
        (self.windows_outside >= LOAD_WINDOWS).then(text)
    }
}
