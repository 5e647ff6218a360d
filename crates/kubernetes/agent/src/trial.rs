//! A trial: windows with the plan and without it, in turns, on the live pod, and a verdict. Pure:
//! time and readings come in.
//!
//! Pairs change their order (with, without, without, with, ...), so that a load that rises or falls
//! favors neither. A gain is claimed only where 7 of 8 pairs agree, which chance alone gives in 7
//! of 100 trials. What is compared: the p99 of the server's own latency histogram, then cpu time
//! for each request. A plan that helps in neither is withdrawn.

use std::time::{Duration, Instant};

use crate::limits::{TRIAL_REQUESTS_MIN, TRIAL_SETTLE_SHARE};

/// What is said of a trial whose pod reports nothing.
pub(crate) const NO_FIGURES: &str = "trial: no latency is reported, so the plan stays; the server needs \
     albacore-params of its node";

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TrialSpec {
    /// Length of a window.
    pub(crate) window: Duration,
    pub(crate) pairs: u16,
}

/// A latency histogram: upper ends of its buckets in seconds, and how many requests were not above
/// each.
pub(crate) type Latency = Vec<(f64, u64)>;

/// Counters of a pod at one moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Reading {
    /// What its server reports. Nothing in it is trusted: any numbers are taken, and none of them
    /// can do harm.
    pub(crate) latency: Latency,
    /// What the kernel says of its workers.
    pub(crate) usage: Usage,
}

/// What the kernel counted of a pod's workers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Usage {
    /// Cpu time of the pod's workers, microseconds.
    pub(crate) cpu_micros: u64,
    /// Moves of their threads between cpus, where the kernel tells.
    pub(crate) migrations: Option<u64>,
    /// Which processes this is of: figures of others cannot be compared.
    pub(crate) processes: Vec<i32>,
}

/// What one window came to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Figures {
    pub(crate) p99_seconds: f64,
    pub(crate) cpu_micros_per_request: f64,
    pub(crate) migrations_per_second: Option<f64>,
}

/// What the trial of a pod does now.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Doing {
    /// A window with the plan, or without it.
    Window { has_plan: bool },
    /// The plan helps, as this sentence says, and stays.
    Kept(String),
    /// The plan does not help, as this sentence says.
    Withdrawn(String),
}

/// The trial of one pod.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    spec: TrialSpec,
    /// Windows that counted so far: with the plan first where the pair's number is even.
    done: Vec<(bool, Figures)>,
    began: Instant,
    /// The reading at the window's start, and when it was taken.
    first: Option<(Reading, Instant)>,
    is_without_figures: bool,
    verdict: Option<Doing>,
}

impl Trial {
    /// The first window begins now.
    pub(crate) fn new(spec: TrialSpec, now: Instant) -> Self {
        Self {
            spec,
            done: Vec::new(),
            began: now,
            first: None,
            is_without_figures: false,
            verdict: None,
        }
    }

    /// What it does now.
    pub(crate) fn doing(&self) -> Doing {
        self.verdict.clone().unwrap_or(Doing::Window {
            has_plan: has_plan(self.done.len()),
        })
    }

    /// How far it is, for people; `None` when it is over.
    pub(crate) fn progress(&self) -> Option<String> {
        let Doing::Window { has_plan } = self.doing() else {
            return None;
        };
        if self.is_without_figures {
            return Some(NO_FIGURES.to_owned());
        }
        let (window, all) = (self.done.len() + 1, self.spec.pairs * 2);
        let arm = if has_plan { "with" } else { "without" };
        Some(format!("trial: window {window} of {all}, {arm} the plan"))
    }

    /// When something is to be done: a reading is wanted after the masks have settled, and at the
    /// window's end.
    pub(crate) fn due(&self) -> Option<Instant> {
        if self.verdict.is_some() {
            return None;
        }
        let settled = self.began + self.spec.window / TRIAL_SETTLE_SHARE;
        let first = self.first.as_ref();
        Some(first.map_or(settled, |(_, at)| *at + self.spec.window))
    }

    /// Whether the server reported nothing when it was last asked for.
    pub(crate) fn is_without_figures(&self) -> bool {
        self.is_without_figures
    }

    /// A reading was due and the server reported nothing: the trial starts over, with the plan in
    /// force.
    pub(crate) fn miss(&mut self, now: Instant) {
        self.is_without_figures = true;
        self.done.clear();
        self.again(now);
    }

    /// Takes a reading that was due; `None`: the workers could not be read. A window that cannot be
    /// judged begins again, and one that spoils its pair begins the pair again.
    pub(crate) fn take(&mut self, reading: Option<Reading>, now: Instant) {
        self.is_without_figures = false;
        let Some(reading) = reading else {
            self.again(now);
            return;
        };
        let Some((first, at)) = self.first.take() else {
            self.first = Some((reading, now));
            return;
        };
        match difference(&first, &reading, now.duration_since(at)) {
            Some(figures) => {
                self.done.push((has_plan(self.done.len()), figures));
                self.began = now;
                if self.done.len() >= usize::from(self.spec.pairs) * 2 {
                    self.verdict = Some(judge(&self.done));
                }
            }
            None => self.again(now),
        }
    }

    fn again(&mut self, now: Instant) {
        self.first = None;
        self.began = now;
        // Halves of a pair that lie far apart in time compare two loads.
        self.done.truncate(self.done.len() / 2 * 2);
    }
}

/// With, without, without, with.
fn has_plan(window: usize) -> bool {
    matches!(window % 4, 0 | 3)
}

/// What happened between two readings; `None` if it cannot be compared with others.
fn difference(first: &Reading, last: &Reading, time: Duration) -> Option<Figures> {
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
    Some(Figures {
        p99_seconds: percentile(&counts, 0.99),
        cpu_micros_per_request: cpu as f64 / requests as f64,
        migrations_per_second: moves.map(|moves| moves as f64 / time.as_secs_f64().max(1e-3)),
    })
}

/// The time that a share of the requests did not exceed, straight between the ends of its bucket.
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

/// How often and how much the second of two beats the first.
struct Comparison {
    better: usize,
    worse: usize,
    median: f64,
}

/// Without over with, pair by pair: above 1 the plan is better.
fn compare(pairs: &[(Figures, Figures)], of: fn(&Figures) -> f64) -> Comparison {
    let ratio = |(with, without): &(Figures, Figures)| of(without).max(1e-9) / of(with).max(1e-9);
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

fn judge(windows: &[(bool, Figures)]) -> Doing {
    let pairs: Vec<(Figures, Figures)> = windows
        .chunks_exact(2)
        .map(|pair| match pair[0].0 {
            true => (pair[0].1, pair[1].1),
            false => (pair[1].1, pair[0].1),
        })
        .collect();
    let all = pairs.len();
    let latency = compare(&pairs, |figures| figures.p99_seconds);
    let cpu = compare(&pairs, |figures| figures.cpu_micros_per_request);
    // 7 of 8, and more than what a histogram's buckets alone can make.
    let agree = |count: usize| count * 8 >= all * 7;
    let gains = |c: &Comparison| agree(c.better) && c.median > 1.02;
    let loses = |c: &Comparison| agree(c.worse) && c.median < 0.98;
    let moved = |has_plan: bool| {
        let arm = windows.iter().filter(|(has, _)| *has == has_plan);
        let told: Vec<f64> = arm.filter_map(|(_, f)| f.migrations_per_second).collect();
        (!told.is_empty()).then(|| told.iter().sum::<f64>() / told.len() as f64)
    };
    let moves = moved(true).zip(moved(false)).map(|(with, without)| {
        format!(", {with:.0} instead of {without:.0} moves of threads a second")
    });
    let figures = format!(
        "p99 without the plan is {:.2} times that with it (better in {} of {all} pairs), cpu time for a \
         request {:.2} times (better in {}){}",
        latency.median,
        latency.better,
        cpu.median,
        cpu.better,
        moves.unwrap_or_default()
    );
    if gains(&latency) || (gains(&cpu) && !loses(&latency)) {
        return Doing::Kept(format!("the trial shows a gain: {figures}"));
    }
    Doing::Withdrawn(format!("withdrawn, the trial shows no gain: {figures}"))
}

#[cfg(test)]
mod tests;
