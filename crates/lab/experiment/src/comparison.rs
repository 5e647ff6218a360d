//! Compares policies per setting, and over groups of settings.

use std::collections::BTreeMap;

use crate::grid::{Arm, Cell};
use crate::journal::Results;
use crate::record::Window;
use crate::spec::ComparedTime;
use albacore_statistics::{Interval, SampleMean};

/// A cell and a kind of request.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Setting {
    pub(crate) model: String,
    pub(crate) request: String,
    pub(crate) workers: u16,
    pub(crate) threads: u16,
}

impl Setting {
    pub(crate) fn of(window: &Window) -> Self {
        let Cell {
            model,
            workers,
            threads,
        } = window.id.cell.clone();
        Self {
            model,
            request: window.id.request.clone(),
            workers,
            threads,
        }
    }

    /// Name in charts.
    pub(crate) fn name(&self) -> String {
        let Self {
            model,
            request,
            workers,
            threads,
        } = self;
        format!("{model}, {request}, {workers} x {threads}")
    }
}

/// Threads of a server relative to the cpus of the machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Subscription {
    Under,
    Fully,
    Over,
}

impl Subscription {
    pub(crate) fn of(setting: &Setting, cpus: usize) -> Self {
        let threads = usize::from(setting.workers) * usize::from(setting.threads);
        match threads.cmp(&cpus) {
            std::cmp::Ordering::Less => Self::Under,
            std::cmp::Ordering::Equal => Self::Fully,
            std::cmp::Ordering::Greater => Self::Over,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Under => "undersubscribed",
            Self::Fully => "fully subscribed",
            Self::Over => "oversubscribed",
        }
    }
}

/// Comparison of two arms in a setting.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Comparison {
    pub(crate) setting: Setting,
    /// Time of the other arm divided by that of this arm: above 1 this arm is faster.
    pub(crate) interval: Interval,
    sample: SampleMean,
}

/// The 99th percentile by which arms are compared, microseconds.
pub(crate) fn compared_time(results: &Results, window: &Window) -> Option<f64> {
    let quantiles = match results.header.spec.time {
        ComparedTime::Latency => &window.latency,
        ComparedTime::Server => &window.server,
    };
    quantiles.at(0.99).filter(|&micros| micros > 0.0)
}

/// Compares two arms, paired by trial, in each setting with at least two trials of both.
pub(crate) fn compare(results: &Results, arm: Arm, other: Arm) -> Vec<Comparison> {
    let mut trials: BTreeMap<(Setting, u32), [Option<f64>; 2]> = BTreeMap::new();
    for window in &results.windows {
        let side = [arm, other].iter().position(|&of| of == window.id.arm);
        if let Some(side) = side {
            let key = (Setting::of(window), window.id.trial);
            trials.entry(key).or_default()[side] = compared_time(results, window);
        }
    }
    let mut ratios: BTreeMap<Setting, Vec<f64>> = BTreeMap::new();
    for ((setting, _), times) in trials {
        if let [Some(own), Some(other)] = times {
            ratios.entry(setting).or_default().push((other / own).ln());
        }
    }
    let comparisons = ratios.into_iter().filter_map(|(setting, logarithms)| {
        let sample = SampleMean::of(&logarithms)?;
        Some(Comparison {
            setting,
            interval: Interval::of(&[sample])?,
            sample,
        })
    });
    comparisons.collect()
}

/// Mean over settings with equal weights.
pub(crate) fn pooled<'a>(
    comparisons: impl IntoIterator<Item = &'a Comparison>,
) -> Option<Interval> {
    let samples = comparisons.into_iter().map(|one| one.sample);
    Interval::of(&samples.collect::<Vec<_>>())
}
