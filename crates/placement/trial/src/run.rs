//! Trial of one pod: schedules the windows of the arms and the samples.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use albacore_plan::SubjectPolicy;
use albacore_statistics::{ArmComparison, compare, comparison_rounds};

use crate::arm::Arm;
use crate::limits::{LOAD_WINDOW_MIN, REPEAT_PAUSE, SETTLE_SHARE};
use crate::load_watch::LoadWatch;
use crate::order::Order;
use crate::sample::{Sample, TrialMetric, WindowStats, measure};
use crate::verdict::{ArmRecord, Comparison, Elimination, Verdict, confidence};

/// Configuration of a trial by a deployment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TrialSpec {
    pub window: Duration,
    /// Maximum rounds, each with one window for every remaining arm.
    pub rounds: u16,
    /// The arms in addition to the deployment's own.
    pub arms: Vec<Arm>,
    pub metric: TrialMetric,
}

/// State of a trial: running, or its verdict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TrialState {
    /// The window of this arm is being measured.
    Window(Arm),
    Over(Verdict),
}

impl TrialState {
    /// The arm that places the pod in this state.
    #[must_use]
    pub const fn arm(&self) -> Arm {
        match self {
            Self::Window(arm) => *arm,
            Self::Over(verdict) => verdict.winner,
        }
    }
}

/// A window of the current round.
#[derive(Clone, Copy, Debug)]
struct Window {
    arm: usize,
    stats: WindowStats,
    /// Hash of the active mapping.
    mapping: Option<u32>,
}

/// The trial of one pod.
#[derive(Clone, Debug)]
pub struct TrialRun {
    spec: TrialSpec,
    /// The deployment's own arm first.
    arms: Vec<ArmRecord>,
    order: Order,
    /// The arm in force while nothing can be measured, and the one at the start of the trial.
    resting_arm: usize,
    initial_arm: usize,
    /// Number of completed rounds.
    rounds: usize,
    /// Arms without a window in this round so far; the first one is being measured.
    pending_arms: VecDeque<usize>,
    round: Vec<Window>,
    /// Start of the trial, and start of its current window.
    trial_started_at: Instant,
    window_started_at: Instant,
    /// The sample at the start of the window, and its time.
    window_start: Option<(Sample, Instant)>,
    is_missing_reports: bool,
    verdict: Option<Verdict>,
    /// Set after the verdict.
    load_watch: Option<LoadWatch>,
    repeat_reason: Option<String>,
}

impl TrialRun {
    /// Starts the first window with the arm of `policy`. Equal seeds result in equal orders of
    /// arms.
    #[must_use]
    pub fn new(spec: TrialSpec, policy: &SubjectPolicy, seed: u64, now: Instant) -> Self {
        let arms = Arm::of_trial(policy, &spec.arms);
        let mut run = Self {
            spec,
            arms: arms.into_iter().map(ArmRecord::new).collect(),
            order: Order::new(seed),
            resting_arm: 0,
            initial_arm: 0,
            rounds: 0,
            pending_arms: VecDeque::new(),
            round: Vec::new(),
            trial_started_at: now,
            window_started_at: now,
            window_start: None,
            is_missing_reports: false,
            verdict: None,
            load_watch: None,
            repeat_reason: None,
        };
        run.restart(now);
        run
    }

    /// The arm that currently places the pod, or the verdict.
    #[must_use]
    pub fn state(&self) -> TrialState {
        match &self.verdict {
            Some(verdict) => TrialState::Over(verdict.clone()),
            None => TrialState::Window(self.arms[self.current()].arm),
        }
    }

    fn current(&self) -> usize {
        self.pending_arms
            .front()
            .copied()
            .unwrap_or(self.resting_arm)
    }

    fn comparison(&self) -> Comparison<'_> {
        Comparison {
            arms: &self.arms,
            metric: self.spec.metric,
        }
    }

    /// Human-readable progress; `None` after the verdict.
    #[must_use]
    pub fn progress(&self) -> Option<String> {
        if self.verdict.is_some() {
            return None;
        }
        let arm = self.arms[self.current()].arm;
        if self.is_missing_reports {
            return Some(format!(
                "trial: no latency is reported, so {arm} stays; the server needs albacore-params of \
                 its node"
            ));
        }
        let repeated = self.repeat_reason.as_ref();
        let repeated = repeated.map_or_else(String::new, |why| format!(" repeated, {why}"));
        let (round, all) = (self.rounds + 1, self.spec.rounds);
        let figures = self.comparison().figures(0, false);
        let head = format!("trial{repeated}: round {round} of {all}, {arm}");
        Some(format!("{head}{figures}"))
    }

    /// Time of the next sample: after the masks have settled and at the end of the window; after
    /// the verdict, when the load is measured next.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        if self.verdict.is_some() {
            return self.load_watch.as_ref().map(LoadWatch::due);
        }
        let settled = self.window_started_at + self.spec.window / SETTLE_SHARE;
        let first = self.window_start.as_ref();
        Some(first.map_or(settled, |(_, at)| *at + self.spec.window))
    }

    /// True if the server had reported no latency when the last sample was due.
    #[must_use]
    pub const fn is_missing_reports(&self) -> bool {
        self.is_missing_reports
    }

    /// The metric that is compared.
    #[must_use]
    pub const fn metric(&self) -> TrialMetric {
        self.spec.metric
    }

    /// Handles a due sample without a latency report: restarts the trial without changing the
    /// placement. True if the state or its text changed.
    pub fn handle_missing_report(&mut self, now: Instant) -> bool {
        if let Some(watch) = &mut self.load_watch {
            watch.add_sample(None, now);
            return false;
        }
        self.is_missing_reports = true;
        self.restart(now);
        true
    }

    /// Adds a due sample; `None` if the workers could not be read. `mapping` is a hash of the
    /// active mapping. A window that cannot be measured is repeated together with its round. True
    /// if the state or its text changed.
    pub fn add_sample(
        &mut self,
        sample: Option<Sample>,
        mapping: Option<u32>,
        now: Instant,
    ) -> bool {
        if self.verdict.is_some() {
            return self.add_load(sample, now);
        }
        self.is_missing_reports = false;
        let Some(sample) = sample else {
            self.restart_round(now);
            return true;
        };
        let Some((first, at)) = self.window_start.take() else {
            self.window_start = Some((sample, now));
            return true;
        };
        match measure(self.spec.metric, &first, &sample, now.duration_since(at)) {
            Some(stats) => {
                let arm = self.current();
                self.pending_arms.pop_front();
                self.round.push(Window {
                    arm,
                    stats,
                    mapping,
                });
                self.window_started_at = now;
                if self.pending_arms.is_empty() {
                    self.finish_round(now);
                }
            }
            None => self.restart_round(now),
        }
        true
    }

    /// Adds a sample after the verdict; true if the trial is repeated.
    fn add_load(&mut self, sample: Option<Sample>, now: Instant) -> bool {
        let Some(watch) = &mut self.load_watch else {
            return false;
        };
        watch.add_sample(sample, now);
        let may_repeat = now.duration_since(self.trial_started_at) >= REPEAT_PAUSE;
        let Some(why) = watch.change().filter(|_| may_repeat) else {
            return false;
        };
        let winner = self.verdict.take().map(|verdict| verdict.winner);
        let is_winner = |record: &ArmRecord| Some(record.arm) == winner;
        self.initial_arm = self.arms.iter().position(is_winner).unwrap_or(0);
        self.load_watch = None;
        self.repeat_reason = Some(why);
        self.trial_started_at = now;
        self.restart(now);
        true
    }

    /// Discards all windows.
    fn restart(&mut self, now: Instant) {
        for record in &mut self.arms {
            *record = ArmRecord::new(record.arm);
        }
        self.rounds = 0;
        self.resting_arm = self.initial_arm;
        match self.arms.len() {
            // No other arm to compare with.
            1 => self.verdict = Some(self.comparison().judge()),
            _ => self.restart_round(now),
        }
    }

    /// Restarts the round, because windows far apart in time are measured under different loads. It
    /// starts with the arm in force, in case nothing can be measured.
    fn restart_round(&mut self, now: Instant) {
        self.begin_round(now);
        self.pending_arms.retain(|&arm| arm != self.resting_arm);
        self.pending_arms.push_front(self.resting_arm);
    }

    fn begin_round(&mut self, now: Instant) {
        self.window_start = None;
        self.window_started_at = now;
        self.round.clear();
        self.pending_arms = self.order.next(self.remaining()).into();
    }

    fn remaining(&self) -> Vec<usize> {
        let arms = 0..self.arms.len();
        arms.filter(|&index| self.arms[index].elimination.is_none())
            .collect()
    }

    fn finish_round(&mut self, now: Instant) {
        if self.rounds == 0 {
            self.eliminate_same();
        }
        for window in std::mem::take(&mut self.round) {
            let record = &mut self.arms[window.arm];
            if record.elimination.is_none() {
                record.windows.push(window.stats);
            }
        }
        self.rounds += 1;
        let is_comparison_round =
            comparison_rounds(usize::from(self.spec.rounds)).contains(&self.rounds);
        let is_decided = is_comparison_round && self.eliminate_worse();
        if self.arms[self.resting_arm].elimination.is_some() {
            self.resting_arm = self.comparison().candidates().first().copied().unwrap_or(0);
        }
        let is_last = self.rounds >= usize::from(self.spec.rounds);
        if is_decided || is_last || self.remaining().len() < 2 {
            self.finish(now);
        } else {
            self.begin_round(now);
        }
    }

    /// Eliminates arms that place every thread like an earlier one.
    fn eliminate_same(&mut self) {
        let mapping = |arm: usize| {
            let window = self.round.iter().find(|window| window.arm == arm);
            window.and_then(|window| window.mapping)
        };
        let mappings: Vec<Option<u32>> = (0..self.arms.len()).map(mapping).collect();
        for (index, mapping) in mappings.iter().enumerate() {
            let first = mappings.iter().position(|other| other == mapping);
            if let Some(first) = first.filter(|&first| mapping.is_some() && first < index) {
                self.arms[index].elimination = Some(Elimination::SameAs(self.arms[first].arm));
            }
        }
    }

    /// Eliminates arms that are significantly worse than the leader; true if that decides the
    /// trial.
    fn eliminate_worse(&mut self) -> bool {
        let remaining = |record: &ArmRecord| record.elimination.is_none().then(|| record.scores());
        let scores: Vec<Option<Vec<f64>>> = self.arms.iter().map(remaining).collect();
        let confidence = confidence(&self.arms);
        let Some(comparison) = ArmComparison::of(&scores, confidence) else {
            return false;
        };
        let leader = self.arms[comparison.leader].scores();
        for &index in &comparison.behind {
            let interval = compare(&leader, &self.arms[index].scores(), confidence);
            self.arms[index].elimination = interval.map(Elimination::Behind);
        }
        comparison.is_decided
    }

    fn finish(&mut self, now: Instant) {
        self.verdict = Some(self.comparison().judge());
        self.repeat_reason = None;
        let windows = self.arms.iter().flat_map(|record| &record.windows);
        let loads: Vec<f64> = windows.map(|window| window.load).collect();
        let load = loads.iter().sum::<f64>() / loads.len().max(1) as f64;
        let window = self.spec.window.max(LOAD_WINDOW_MIN);
        self.load_watch = Some(LoadWatch::new(self.spec.metric, load, window, now));
    }
}

#[cfg(test)]
mod tests;
