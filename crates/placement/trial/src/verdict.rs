//! Evaluates the windows of a trial.
//!
//! The deployment's own arm is kept unless another one beats it; if no arm beats the kernel's
//! placement, placement is withdrawn. One arm beats another by the primary metric (p99, or the
//! waiting time), or by the CPU time per request if the primary metric is not worse; in both cases
//! by more than the noise, and by more than a user would notice.

use albacore_statistics::{EQUIVALENCE_RATIO, Interval, SpeedDifference, compare};

use crate::arm::Arm;
use crate::limits::FALSE_CLAIMS;
use crate::sample::{TrialMetric, WindowStats};

/// Result for the deployment's own arm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// No arm beats it, and some arm beats the kernel's placement.
    Kept,
    /// Another placement beats it.
    Changed,
    /// No placement beats the kernel's.
    Withdrawn,
}

/// Final result of a trial.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The arm that is kept.
    pub winner: Arm,
    pub outcome: Outcome,
    /// Human-readable: each arm with its ratio and interval, the deciding metric first.
    pub text: String,
}

/// Reason for the elimination of an arm.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Elimination {
    /// Worse than the leader at that time by this ratio.
    Behind(Interval),
    /// Places every thread like this arm.
    SameAs(Arm),
}

/// An arm and its windows, one per round until it was eliminated.
#[derive(Clone, Debug)]
pub(crate) struct ArmRecord {
    pub(crate) arm: Arm,
    pub(crate) windows: Vec<WindowStats>,
    pub(crate) elimination: Option<Elimination>,
}

impl ArmRecord {
    pub(crate) const fn new(arm: Arm) -> Self {
        Self {
            arm,
            windows: Vec::new(),
            elimination: None,
        }
    }

    /// Negative logarithms of the primary metric; larger is better.
    pub(crate) fn scores(&self) -> Vec<f64> {
        let score = |window: &WindowStats| -window.primary.max(1e-9).ln();
        self.windows.iter().map(score).collect()
    }

    /// The same for the CPU time per request; empty if requests are unknown.
    fn cpu_scores(&self) -> Vec<f64> {
        let windows = self.windows.iter();
        let times = windows.filter_map(|window| window.cpu_per_request);
        times.map(|time| -time.max(1e-9).ln()).collect()
    }

    fn is_behind(&self) -> bool {
        matches!(self.elimination, Some(Elimination::Behind(interval)) if interval.ratio > EQUIVALENCE_RATIO)
    }

    fn is_same(&self) -> bool {
        matches!(self.elimination, Some(Elimination::SameAs(_)))
    }

    fn migrations(&self) -> Option<f64> {
        let windows = self.windows.iter();
        let rates: Vec<f64> = windows.filter_map(|w| w.migrations_per_second).collect();
        (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64)
    }
}

/// Confidence of each comparison in a trial with these arms.
pub(crate) fn confidence(arms: &[ArmRecord]) -> f64 {
    let measured = arms.iter().filter(|arm| !arm.is_same()).count();
    1.0 - FALSE_CLAIMS / measured.saturating_sub(1).max(1) as f64
}

/// Metric by which one arm beats another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DecidingMetric {
    Primary,
    CpuTime,
}

/// The arms of a trial, the deployment's own first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comparison<'a> {
    pub(crate) arms: &'a [ArmRecord],
    pub(crate) metric: TrialMetric,
}

impl Comparison<'_> {
    /// The ratio of a metric of `other` to that of `one`: above 1, `one` is better.
    fn ratio(&self, by: DecidingMetric, one: usize, other: usize) -> Option<Interval> {
        let scores = [one, other].map(|index| match by {
            DecidingMetric::Primary => self.arms[index].scores(),
            DecidingMetric::CpuTime => self.arms[index].cpu_scores(),
        });
        compare(&scores[0], &scores[1], confidence(self.arms))
    }

    fn beats(&self, one: usize, other: usize) -> Option<DecidingMetric> {
        let is_gain = |i: Interval| {
            i.speed_difference() == SpeedDifference::Faster && i.ratio > EQUIVALENCE_RATIO
        };
        let is_loss = |i: Interval| {
            i.speed_difference() == SpeedDifference::Slower && i.ratio < 1.0 / EQUIVALENCE_RATIO
        };
        let first = self.ratio(DecidingMetric::Primary, one, other);
        if first.is_some_and(is_gain) {
            return Some(DecidingMetric::Primary);
        }
        let cpu = self.ratio(DecidingMetric::CpuTime, one, other)?;
        (is_gain(cpu) && !first.is_some_and(is_loss)).then_some(DecidingMetric::CpuTime)
    }

    /// Arms that were not eliminated, best first by the primary metric.
    pub(crate) fn candidates(&self) -> Vec<usize> {
        let mean = |index: &usize| {
            let scores = self.arms[*index].scores();
            scores.iter().sum::<f64>() / scores.len().max(1) as f64
        };
        let all = 0..self.arms.len();
        let mut candidates: Vec<usize> = all
            .filter(|&index| self.arms[index].elimination.is_none())
            .collect();
        candidates.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
        candidates
    }

    /// The arm that beats the deployment's own, which is the first.
    fn better_than_own(&self) -> Option<(usize, DecidingMetric)> {
        let candidates = self.candidates();
        let others = candidates.iter().filter(|&&index| index != 0);
        let beating: Vec<(usize, DecidingMetric)> = others
            .filter_map(|&index| Some((index, self.beats(index, 0)?)))
            .collect();
        let by_first = beating
            .iter()
            .find(|(_, by)| *by == DecidingMetric::Primary);
        let leader = candidates.first().filter(|_| self.arms[0].is_behind());
        by_first
            .or(beating.first())
            .copied()
            .or(leader.map(|&leader| (leader, DecidingMetric::Primary)))
    }

    /// The verdict after the last window.
    pub(crate) fn judge(&self) -> Verdict {
        let (mut winner, mut by) = self
            .better_than_own()
            .unwrap_or((0, DecidingMetric::Primary));
        let kernel = self.arms.iter().position(|arm| arm.arm == Arm::None);
        let all = 0..self.arms.len();
        if let Some(kernel) = kernel.filter(|&kernel| !self.arms[kernel].is_behind()) {
            match all.into_iter().find_map(|index| self.beats(index, kernel)) {
                None => winner = kernel,
                Some(beats) if winner == 0 => by = beats,
                Some(_) => {}
            }
        }
        let (own, name) = (self.arms[0].arm, self.arms[winner].arm);
        let (outcome, head) = match (winner, name) {
            (0, _) if self.arms.len() < 2 => {
                let head =
                    format!("trial: {own} stays; no other arm places its threads differently");
                (Outcome::Kept, head)
            }
            (0, _) => (Outcome::Kept, format!("trial: {own} stays")),
            (_, Arm::None) => {
                let head = "withdrawn, the trial shows no gain".to_owned();
                (Outcome::Withdrawn, head)
            }
            _ => (Outcome::Changed, format!("trial: {name} instead of {own}")),
        };
        let figures = self.figures(winner, by == DecidingMetric::CpuTime);
        Verdict {
            winner: name,
            outcome,
            text: format!("{head}{figures}"),
        }
    }

    /// `; p99 relative to X: Y 1.20 (1.10 to 1.31)`, and likewise for each metric.
    pub(crate) fn figures(&self, base: usize, is_cpu_first: bool) -> String {
        let name = match self.metric {
            TrialMetric::Latency => "p99",
            TrialMetric::RunDelay => "time waited for a cpu (no latency)",
        };
        let to = self.arms[base].arm;
        let mut parts = vec![
            self.ratios(DecidingMetric::Primary, base)
                .map(|ratios| format!("; {name} relative to {to}: {ratios}")),
            self.ratios(DecidingMetric::CpuTime, base)
                .map(|ratios| format!("; cpu time per request: {ratios}")),
        ];
        if is_cpu_first {
            parts.reverse();
        }
        parts.push(self.same());
        parts.push(self.migrations());
        parts.into_iter().flatten().collect()
    }

    fn ratios(&self, by: DecidingMetric, base: usize) -> Option<String> {
        let others = (0..self.arms.len()).filter(|&index| index != base);
        let texts = others.filter_map(|index| {
            let Interval {
                ratio, low, high, ..
            } = self.ratio(by, base, index)?;
            let arm = self.arms[index].arm;
            Some(format!("{arm} {ratio:.2} ({low:.2} to {high:.2})"))
        });
        let texts: Vec<String> = texts.collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    }

    fn same(&self) -> Option<String> {
        let same = self.arms.iter().filter_map(|arm| match arm.elimination {
            Some(Elimination::SameAs(other)) => Some(format!("; {} places as {other}", arm.arm)),
            _ => None,
        });
        let same: String = same.collect();
        (!same.is_empty()).then_some(same)
    }

    /// Mean migrations per arm, human-readable, if counted by the kernel.
    fn migrations(&self) -> Option<String> {
        let migrations = self.arms.iter().filter_map(|arm| {
            let migrations = arm.migrations()?;
            Some(format!("{} {migrations:.0}", arm.arm))
        });
        let migrations: Vec<String> = migrations.collect();
        let list = migrations.join(", ");
        (!migrations.is_empty()).then(|| format!("; moves of threads per second: {list}"))
    }
}
