//! Detects whether the load of a pod differs from that of its trial.

use std::time::{Duration, Instant};

use crate::limits::{LOAD_FACTOR, LOAD_WINDOWS};
use crate::sample::{Figure, Sample, measure};

/// Load averages after the verdict, per window.
#[derive(Clone, Debug)]
pub(crate) struct LoadWatch {
    figure: Figure,
    /// Mean load of the trial's windows.
    load: f64,
    window: Duration,
    due: Instant,
    first: Option<(Sample, Instant)>,
    /// Number of consecutive windows outside of the factor, and the load of the last window.
    outside: u32,
    last: f64,
}

impl LoadWatch {
    pub(crate) fn new(figure: Figure, load: f64, window: Duration, now: Instant) -> Self {
        Self {
            figure,
            load,
            window,
            due: now,
            first: None,
            outside: 0,
            last: load,
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
        let first = self.first.take();
        let Some(sample) = sample else {
            return;
        };
        let stats = first
            .and_then(|(first, at)| measure(self.figure, &first, &sample, now.duration_since(at)));
        self.first = Some((sample, now));
        let Some(stats) = stats else {
            return;
        };
        self.last = stats.load;
        let factor = (stats.load / self.load).max(self.load / stats.load);
        self.outside = match factor > LOAD_FACTOR {
            true => self.outside.saturating_add(1),
            false => 0,
        };
    }

    /// Reason to repeat the trial, human-readable.
    pub(crate) fn change(&self) -> Option<String> {
        let what = match self.figure {
            Figure::Latency => "requests/s",
            Figure::RunDelay => "cpu s/s",
        };
        let number = |load: f64| match load >= 10.0 {
            true => format!("{load:.0}"),
            false => format!("{load:.2}"),
        };
        let (last, before) = (number(self.last), number(self.load));
        let text = || format!("the load is {last} {what}, was {before}");
        (self.outside >= LOAD_WINDOWS).then(text)
    }
}
