//! A trial: alternating windows with and without the plan on the live pod, and a verdict. Pure:
//! time and samples are arguments.
//!
//! The order within pairs alternates (with, without, without, with, ...), so that a load that rises
//! or falls favors neither side. A gain is claimed only where 7 of 8 pairs agree, which chance
//! alone gives in 7 of 100 trials (sign test, two-sided). Compared are the p99 of the server's own
//! latency histogram, then CPU time per request. A plan that improves neither is withdrawn.

use std::time::{Duration, Instant};

use crate::limits::{TRIAL_REQUESTS_MIN, TRIAL_SETTLE_SHARE};

/// Progress of a trial whose pod reports no latency.
pub(crate) const NO_LATENCY_REPORTS: &str = "trial: no latency is reported, so the plan stays; the server needs \
     albacore-params of its node";

/// What a deployment asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TrialSpec {
    /// Length of a window.
    pub(crate) window: Duration,
    /// Pairs of windows, one with and one without the plan.
    pub(crate) pairs: u16,
}

impl From<&albacore_api::Trial> for TrialSpec {
    fn from(trial: &albacore_api::Trial) -> Self {
        Self {
            window: trial.window.duration(),
            pairs: trial.windows,
        }
    }
}

/// A cumulative histogram: the upper bound of each bucket in seconds, and how many requests since
/// the server started took at most that long.
pub(crate) type LatencyHistogram = Vec<(f64, u64)>;

/// Counters of a pod at one moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Sample {
    /// What its server reports. Not trusted: any number must be accepted without a panic.
    pub(crate) latency: LatencyHistogram,
    pub(crate) usage: PodUsage,
}

/// The kernel's counters of a pod's workers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct PodUsage {
    /// CPU time, microseconds.
    pub(crate) cpu_micros: u64,
    /// Migrations of their threads between CPUs, where the kernel counts them.
    pub(crate) migrations: Option<u64>,
    /// The processes counted, ascending: counters of other processes cannot be compared.
    pub(crate) processes: Vec<i32>,
}

/// The measurements of one window.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct WindowStats {
    pub(crate) p99_seconds: f64,
    pub(crate) cpu_micros_per_request: f64,
    pub(crate) migrations_per_second: Option<f64>,
}

/// Whether a trial still runs, or its verdict.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum TrialState {
    /// A window with the plan, or without it.
    Window { has_plan: bool },
    /// The plan improves latency or CPU time, as this sentence says, and stays.
    Kept(String),
    /// The plan improves neither, as this sentence says.
    Withdrawn(String),
}

impl TrialState {
    /// Whether the pod is placed by its plan in this state.
    pub(crate) fn has_plan(&self) -> bool {
        matches!(self, Self::Window { has_plan: true } | Self::Kept(_))
    }
}

/// A window that counts.
#[derive(Clone, Copy, Debug)]
struct Window {
    has_plan: bool,
    stats: WindowStats,
}

/// The trial of one pod.
#[derive(Clone, Debug)]
pub(crate) struct TrialRun {
    spec: TrialSpec,
    done: Vec<Window>,
    began: Instant,
    /// The sample at the window's start, and when it was taken.
    first: Option<(Sample, Instant)>,
    lacks_reports: bool,
    verdict: Option<TrialState>,
}

impl TrialRun {
    /// The first window begins now.
    pub(crate) fn new(spec: TrialSpec, now: Instant) -> Self {
        Self {
            spec,
            done: Vec::new(),
            began: now,
            first: None,
            lacks_reports: false,
            verdict: None,
        }
    }

    pub(crate) fn state(&self) -> TrialState {
        self.verdict.clone().unwrap_or(TrialState::Window {
            has_plan: is_window_with_plan(self.done.len()),
        })
    }

    /// How far it is, for people; `None` when it is over.
    pub(crate) fn progress(&self) -> Option<String> {
        let TrialState::Window { has_plan } = self.state() else {
            return None;
        };
        if self.lacks_reports {
            return Some(NO_LATENCY_REPORTS.to_owned());
        }
        let (window, all) = (self.done.len() + 1, self.spec.pairs * 2);
        let arm = if has_plan { "with" } else { "without" };
        Some(format!("trial: window {window} of {all}, {arm} the plan"))
    }

    /// When the next sample is due: after the masks have settled, and at the window's end; `None`
    /// after the verdict.
    pub(crate) fn due(&self) -> Option<Instant> {
        if self.verdict.is_some() {
            return None;
        }
        let settled = self.began + self.spec.window / TRIAL_SETTLE_SHARE;
        let first = self.first.as_ref();
        Some(first.map_or(settled, |(_, at)| *at + self.spec.window))
    }

    /// Whether the server reported no latency when the last sample was due.
    pub(crate) fn lacks_reports(&self) -> bool {
        self.lacks_reports
    }

    /// A sample was due and the server reported no latency: the trial starts over, in a window with
    /// the plan.
    pub(crate) fn report_missing(&mut self, now: Instant) {
        self.lacks_reports = true;
        self.done.clear();
        self.restart_pair(now);
    }

    /// Adds a sample that was due; `None` if the workers could not be read. A window that cannot be
    /// measured is repeated, with the other window of its pair.
    pub(crate) fn add_sample(&mut self, sample: Option<Sample>, now: Instant) {
        self.lacks_reports = false;
        let Some(sample) = sample else {
            self.restart_pair(now);
            return;
        };
        let Some((first, at)) = self.first.take() else {
            self.first = Some((sample, now));
            return;
        };
        match measure(&first, &sample, now.duration_since(at)) {
            Some(stats) => {
                let has_plan = is_window_with_plan(self.done.len());
                self.done.push(Window { has_plan, stats });
                self.began = now;
                if self.done.len() >= usize::from(self.spec.pairs) * 2 {
                    self.verdict = Some(verdict(&self.done));
                }
            }
            None => self.restart_pair(now),
        }
    }

    fn restart_pair(&mut self, now: Instant) {
        self.first = None;
        self.began = now;
        // Two windows that lie far apart in time were measured under different loads.
        self.done.truncate(self.done.len() / 2 * 2);
    }
}

/// With, without, without, with, and so on.
fn is_window_with_plan(window: usize) -> bool {
    matches!(window % 4, 0 | 3)
}

/// The measurements between two samples; `None` if the counters were reset, belong to other
/// processes, or count too few requests.
fn measure(first: &Sample, last: &Sample, time: Duration) -> Option<WindowStats> {
    let same_ends = first.latency.len() == last.latency.len()
        && first
            .latency
            .iter()
            .zip(&last.latency)
            .all(|(a, b)| a.0 == b.0);
    if !same_ends || first.usage.processes != last.usage.processes {
        return None;
    }
    let counts: Vec<(f64, u64)> = first
        .latency
        .iter()
        .zip(&last.latency)
        .map(|(a, b)| Some((b.0, b.1.checked_sub(a.1)?)))
        .collect::<Option<_>>()?;
    let requests = counts.last()?.1;
    if requests < TRIAL_REQUESTS_MIN {
        return None;
    }
    let cpu = last.usage.cpu_micros.checked_sub(first.usage.cpu_micros)?;
    let moves = first.usage.migrations.zip(last.usage.migrations);
    let moves = moves.and_then(|(a, b)| b.checked_sub(a));
    Some(WindowStats {
        p99_seconds: percentile(&counts, 0.99),
        cpu_micros_per_request: cpu as f64 / requests as f64,
        migrations_per_second: moves.map(|moves| moves as f64 / time.as_secs_f64().max(1e-3)),
    })
}

/// The quantile `share` of cumulative counts, by linear interpolation within its bucket; the lower
/// bound of the bucket if the upper one is infinite.
fn percentile(counts: &[(f64, u64)], share: f64) -> f64 {
    let all = counts.last().map_or(0, |last| last.1);
    let rank = all as f64 * share;
    let (mut below, mut start) = (0_u64, 0.0);
    for &(end, count) in counts {
        if count as f64 >= rank {
            if !end.is_finite() {
                return start;
            }
            let inside = (count - below).max(1) as f64;
            return start + (end - start) * (rank - below as f64) / inside;
        }
        (below, start) = (count, end);
    }
    start
}

/// One measurement compared over all pairs.
struct Comparison {
    /// Pairs in which the plan is better, and worse.
    better: usize,
    worse: usize,
    /// Median of the ratios without / with: above 1 the plan is better.
    median: f64,
}

fn compare(pairs: &[Pair], of: fn(&WindowStats) -> f64) -> Comparison {
    let ratio = |pair: &Pair| of(&pair.without).max(1e-9) / of(&pair.with).max(1e-9);
    let mut ratios: Vec<f64> = pairs.iter().map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let middle = ratios.len() / 2;
    let low = ratios.get(ratios.len().saturating_sub(1) / 2);
    let high = ratios.get(middle);
    let median = low.zip(high).map_or(1.0, |(low, high)| (low * high).sqrt());
    Comparison {
        better: ratios.iter().filter(|r| **r > 1.0).count(),
        worse: ratios.iter().filter(|r| **r < 1.0).count(),
        median,
    }
}

/// Two windows next to each other.
struct Pair {
    with: WindowStats,
    without: WindowStats,
}

impl Pair {
    fn of(first: &Window, second: &Window) -> Self {
        let (with, without) = match first.has_plan {
            true => (first, second),
            false => (second, first),
        };
        Self {
            with: with.stats,
            without: without.stats,
        }
    }
}

fn verdict(windows: &[Window]) -> TrialState {
    let pairs: Vec<Pair> = windows
        .chunks_exact(2)
        .map(|pair| Pair::of(&pair[0], &pair[1]))
        .collect();
    let all = pairs.len();
    let latency = compare(&pairs, |stats| stats.p99_seconds);
    let cpu = compare(&pairs, |stats| stats.cpu_micros_per_request);
    let figures = format!(
        "p99 without the plan is {:.2} times that with it (better in {} of {all} pairs), cpu time for a \
         request {:.2} times (better in {}){}",
        latency.median,
        latency.better,
        cpu.median,
        cpu.better,
        migrations(windows).unwrap_or_default()
    );
    // 7 of 8 pairs, and by more than the width of a histogram's bucket can cause.
    let agree = |count: usize| count * 8 >= all * 7;
    let gains = |c: &Comparison| agree(c.better) && c.median > 1.02;
    let loses = |c: &Comparison| agree(c.worse) && c.median < 0.98;
    if gains(&latency) || (gains(&cpu) && !loses(&latency)) {
        return TrialState::Kept(format!("the trial shows a gain: {figures}"));
    }
    TrialState::Withdrawn(format!("withdrawn, the trial shows no gain: {figures}"))
}

/// Mean migrations with and without the plan, for people, where the kernel counts them.
fn migrations(windows: &[Window]) -> Option<String> {
    let mean = |has_plan: bool| {
        let side = windows.iter().filter(|window| window.has_plan == has_plan);
        let rates: Vec<f64> = side
            .filter_map(|window| window.stats.migrations_per_second)
            .collect();
        (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64)
    };
    let (with, without) = mean(true).zip(mean(false))?;
    Some(format!(
        ", {with:.0} instead of {without:.0} moves of threads a second"
    ))
}

#[cfg(test)]
mod tests;
