//! Autoscaling: the number of pods that a load needs.
//!
//! Problem: pods report over a window the fraction of bad requests (late, shed or failed) and the
//! fraction of their workers' time that was idle. If N pods fail to do a fraction r of the work in
//! time, N + N r/(1-r) = N/(1-r) pods are needed; with no bad requests and a fraction f of the time
//! idle, N - N f = N (1-f) pods are needed.
//!
//! Approach: the fractions are computed over all pods together, because averaging factors
//! overestimates the growth (1/(1-r) is convex). Of several models the worst decides
//! (`worst_model`). r is capped at 0.9; up to [`NEGLIGIBLE_MAX`] it counts as zero; above [`ALERT`]
//! of the fraction that the objective's percentile allows, it counts as at least one step beyond
//! the dead band, so that new pods start before the objective is missed. Then damping: a factor
//! within the dead band changes nothing; after a growth the next one waits until the window, or its
//! newest part if that is sufficient evidence, contains no request from before the new pods were
//! there; one step at most doubles the number of pods or adds [`GROWTH_PODS_FREE`]; pods are
//! removed only if every pod reported and the same reduction was advised for [`SHRINK_DELAY`]
//! without interruption, and only so many that the required spare time stays idle: the dead band,
//! and more than the idle time at which requests were bad in the last hours. At the peak of real
//! loads 5 to 13 % of the time is idle, with few workers 20 %.
//!
//! Limits: the rule models no cold start and makes no forecast: it grows in response to bad
//! requests, so some must have occurred, and a load that doubles in less time than a pod takes to
//! start is answered late. Pods are assumed to be equal.

mod consolidation;
mod worst_model;

use std::collections::VecDeque;

pub use consolidation::{
    BUSY_MAX, BUSY_TARGET, Consolidation, Consolidator, ServingAdvice, ServingCause,
};
pub use worst_model::{DeploymentLoad, EVIDENCE_MIN, ModelLoad, RequestCounts};

use crate::Nanos;

/// Cap of the fraction of bad requests: a factor of 10.
pub const BAD_RATE_MAX: f64 = 0.9;

/// A factor within this distance of one changes nothing; the tolerance of a stock autoscaler.
pub const DEAD_BAND: f64 = 0.1;

/// Pods are added when bad requests exceed this part of the fraction that the objective allows.
/// Near the peak, 3 % more load raises the bad fraction from half of 1 % to 1 %.
pub const ALERT: f64 = 0.5;

/// Replaces [`ALERT`] when no more than the required spare time of the workers is idle: bad
/// requests are then caused by the load, and single intervals are worse than their mean.
pub const ALERT_BUSY: f64 = 0.2;

/// A fraction of bad requests up to this, and up to [`ALERT_BUSY`] of the allowed fraction, counts
/// as zero: with thousands of requests per second, one per minute is always bad, and idle pods
/// could never be removed.
pub const NEGLIGIBLE_MAX: f64 = 0.002;

/// Idle time at which requests were bad counts as required spare time up to this fraction: few
/// workers need more than many. Above it, requests were bad for another reason than the load.
const SPARE_MAX: f64 = 0.3;

/// Spare time that few workers need, used where no history is kept: with less, a stock autoscaler
/// removes pods and adds them again for as long as the load stays the same.
pub const SPARE_OF_FEW: f64 = 0.2;

/// Added to the idle time that was found to be insufficient.
const SPARE_MORE: f64 = 0.03;

/// How long an insufficient idle time is remembered.
const SPARE_MEMORY: Nanos = Nanos(6 * 3_600_000_000_000);

/// Least factor when more than [`ALERT`] is bad: just outside the dead band.
pub const FACTOR_MISSED: f64 = 1.11;

/// Pods that one growth may add even if that more than doubles them.
pub const GROWTH_PODS_FREE: u32 = 4;

/// Pause after a growth, and after its pods are there: the window that servers measure over, so
/// that no bad request causes two growths.
pub const GROWTH_PAUSE: Nanos = Nanos(60_000_000_000);

/// Replaces [`GROWTH_PAUSE`] if the newest part of the window is sufficient evidence: it is up to
/// 20 s long, and its report up to 10 s old. There is no pause before the new pods are there,
/// because the advice is computed from the pods that reported.
pub const RECENT_PAUSE: Nanos = Nanos(30_000_000_000);

/// With this many requests, or this many bad ones ([`RECENT_BAD_MIN`]), the newest part of the
/// window decides: a sudden surge is not averaged with the minute before.
pub const RECENT_REQUESTS_MIN: u64 = 1000;
/// See [`RECENT_REQUESTS_MIN`].
pub const RECENT_BAD_MIN: u64 = 10;

/// How long fewer pods must have been sufficient before pods are removed.
pub const SHRINK_DELAY: Nanos = Nanos(300_000_000_000);

/// Recommendations closer together than this are merged, which bounds the history.
const MEMORY_STEP: Nanos = Nanos(5_000_000_000);

/// Minimum and maximum number of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaBounds {
    /// At least 1.
    pub min: u32,
    /// Not below `min`.
    pub max: u32,
}

impl ReplicaBounds {
    /// Clamps `replicas` to the bounds.
    pub fn clamp(&self, replicas: u32) -> u32 {
        // Not `u32::clamp`, which panics if the bounds are inverted.
        replicas.min(self.max).max(self.min).max(1)
    }
}

/// Load that the pods reported for the last window, together: of all requests, or of one model or
/// kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    pub pods: u32,
    /// Requests of the window.
    pub requests: u64,
    /// Of these: late, shed or failed.
    pub bad: u64,
    /// Requests of the newest part of the window, 15 to 20 s; 0 if it was not reported.
    pub recent_requests: u64,
    /// Of these: late, shed or failed.
    pub recent_bad: u64,
    /// Mean fraction of the workers' time that was idle, 0 to 1.
    pub idle_share: f64,
    /// Fraction of bad requests that the objective's percentile allows, 0 to 1.
    pub bad_rate_allowed: f64,
}

/// Reason for the advised number of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The number was outside its bounds.
    Bounds,
    /// No pod reported; the number is unchanged.
    NoReport,
    /// Bad requests require more pods.
    BadRate,
    /// Bad requests require more pods, but the pause after the last growth is not over.
    Growing,
    /// Idle workers allow fewer pods.
    Idle,
    /// Idle workers allow fewer pods, but not for long enough yet, or some pods did not report.
    Stabilizing,
    Steady,
}

/// Advised number of pods, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The number, within the bounds.
    pub replicas: u32,
    pub cause: Cause,
}

/// The autoscaling rule with its history; one per deployment.
#[derive(Clone, Debug, Default)]
pub struct Autoscaler {
    /// Time of the first report; the need before it is unknown.
    since: Option<Nanos>,
    grown_at: Option<Nanos>,
    /// Largest number of reporting pods since fewer were requested, and when it was reached.
    max_pods: u32,
    max_pods_at: Option<Nanos>,
    /// Required spare time: idle time at which requests were bad plus [`SPARE_MORE`], and when.
    spare: f64,
    spare_at: Option<Nanos>,
    /// Numbers of pods that would have been sufficient, decreasing from front to back, with their
    /// times.
    sufficient: VecDeque<(Nanos, u32)>,
}

impl Load {
    /// Whether the newest part of the window is sufficient evidence to decide.
    fn is_recent_enough(&self) -> bool {
        self.recent_requests >= RECENT_REQUESTS_MIN || self.recent_bad >= RECENT_BAD_MIN
    }

    /// The load of the newest part of the window alone, if it is sufficient evidence.
    fn newest(&self) -> Self {
        match self.is_recent_enough() {
            true => Self {
                requests: self.recent_requests,
                bad: self.recent_bad,
                ..*self
            },
            false => *self,
        }
    }
}

/// The factor by which a load requires more (above 1) or fewer pods, for callers that multiply the
/// number of pods by it without a history, as a stock autoscaler does: it leaves the spare time
/// that few workers need.
pub fn load_factor(load: &Load) -> f64 {
    match factor_where(load, DEAD_BAND) {
        fewer if fewer < 1.0 => (fewer / (1.0 - SPARE_OF_FEW)).min(1.0),
        more => more,
    }
}

/// The factor if the fraction `spare` of the workers' time must stay idle.
fn factor_where(load: &Load, spare: f64) -> f64 {
    let bad_rate = bad_rate(load);
    if bad_rate > NEGLIGIBLE_MAX.min(load.bad_rate_allowed * ALERT_BUSY) {
        let factor = 1.0 / (1.0 - bad_rate.min(BAD_RATE_MAX));
        return match bad_rate > load.bad_rate_allowed * alert(load, spare) {
            true => factor.max(FACTOR_MISSED),
            false => factor,
        };
    }
    // NaN counts as no idle time: a malformed report does not remove pods.
    match load.idle_share.is_nan() {
        true => 1.0,
        false => 1.0 - load.idle_share.clamp(0.0, 1.0),
    }
}

fn alert(load: &Load, spare: f64) -> f64 {
    match load.idle_share < spare {
        true => ALERT_BUSY,
        false => ALERT,
    }
}

fn bad_rate(load: &Load) -> f64 {
    match load.requests {
        0 => 0.0,
        requests => load.bad.min(requests) as f64 / requests as f64,
    }
}

impl Autoscaler {
    /// Number of pods that `load` needs when `current` are requested now. Times never decrease.
    pub fn advise(
        &mut self,
        now: Nanos,
        bounds: &ReplicaBounds,
        current: u32,
        load: &Load,
    ) -> Advice {
        let inside = bounds.clamp(current);
        if inside != current {
            return advice(inside, Cause::Bounds);
        }
        if load.pods == 0 {
            return advice(current, Cause::NoReport);
        }
        self.count_pods(now, current, load.pods);
        let newest = load.newest();
        let spare = self.spare_for(now, &newest);
        let factor = factor_where(&newest, spare);
        let needed = match factor - 1.0 {
            change if change.abs() <= DEAD_BAND => current,
            // The remaining pods keep the required spare time.
            change if change < 0.0 => bounds.clamp(pods_for(load.pods, factor / (1.0 - spare))),
            // A surge is answered with all pods that it needs at once, plus spare time.
            _ if load.is_recent_enough() && factor > FACTOR_MISSED => {
                bounds.clamp(pods_for(load.pods, factor / (1.0 - DEAD_BAND)))
            }
            _ => bounds.clamp(pods_for(load.pods, factor)),
        };
        let since = *self.since.get_or_insert(now);
        self.remember(now, needed);
        if factor > 1.0 {
            return self.grow(now, current, needed, load.is_recent_enough());
        }
        if needed >= current {
            return advice(current, Cause::Steady);
        }
        let sufficient = self.sufficient.front().map_or(current, |&(_, size)| size);
        let is_known = load.pods >= current && now.saturating_sub(since) >= SHRINK_DELAY;
        if !is_known || sufficient >= current {
            return advice(current, Cause::Stabilizing);
        }
        advice(sufficient, Cause::Idle)
    }

    /// Fraction of the workers' time that must stay idle.
    fn spare_for(&mut self, now: Nanos, load: &Load) -> f64 {
        let is_old = |at: Nanos| now.saturating_sub(at) > SPARE_MEMORY;
        if self.spare_at.is_some_and(is_old) {
            (self.spare, self.spare_at) = (0.0, None);
        }
        let spare = DEAD_BAND.max(self.spare);
        let is_bad = bad_rate(load) > load.bad_rate_allowed * alert(load, spare);
        if is_bad && (0.0..SPARE_MAX).contains(&load.idle_share) {
            self.spare = self.spare.max(load.idle_share + SPARE_MORE);
            self.spare_at = Some(now);
        }
        DEAD_BAND.max(self.spare)
    }

    fn count_pods(&mut self, now: Nanos, current: u32, pods: u32) {
        self.max_pods = self.max_pods.min(current);
        if pods > self.max_pods {
            // The start times of the first pods are unknown, so growth does not wait for them.
            if self.since.is_some() {
                self.max_pods_at = Some(now);
            }
            self.max_pods = pods;
        }
    }

    fn grow(&mut self, now: Nanos, current: u32, needed: u32, is_by_newest: bool) -> Advice {
        if needed <= current {
            return advice(current, Cause::Steady);
        }
        let within = |at: Option<Nanos>, pause: Nanos| {
            at.is_some_and(|at: Nanos| now.saturating_sub(at) < pause)
        };
        let must_wait = match is_by_newest {
            true => within(self.max_pods_at, RECENT_PAUSE),
            false => within(self.max_pods_at.max(self.grown_at), GROWTH_PAUSE),
        };
        if must_wait {
            return advice(current, Cause::Growing);
        }
        self.grown_at = Some(now);
        let step_max = current
            .saturating_mul(2)
            .max(current.saturating_add(GROWTH_PODS_FREE));
        advice(needed.min(step_max), Cause::BadRate)
    }

    /// Keeps the largest recommendations of the last [`SHRINK_DELAY`]; the front is their maximum.
    fn remember(&mut self, now: Nanos, needed: u32) {
        let is_old = |at: Nanos| now.saturating_sub(at) > SHRINK_DELAY;
        while self.sufficient.front().is_some_and(|&(at, _)| is_old(at)) {
            self.sufficient.pop_front();
        }
        while self
            .sufficient
            .back()
            .is_some_and(|&(_, size)| size <= needed)
        {
            self.sufficient.pop_back();
        }
        let is_close = |at: Nanos| now.saturating_sub(at) < MEMORY_STEP;
        // Of two recommendations that are close in time only the larger is kept.
        if !self.sufficient.back().is_some_and(|&(at, _)| is_close(at)) {
            self.sufficient.push_back((now, needed));
        }
    }
}

fn advice(replicas: u32, cause: Cause) -> Advice {
    Advice { replicas, cause }
}

/// `pods` times `factor`, rounded up; at least 1.
fn pods_for(pods: u32, factor: f64) -> u32 {
    // 10 pods with a factor of 1.1 are 11, regardless of rounding errors in the product.
    let pods = (f64::from(pods) * factor - 1e-9).ceil();
    pods.clamp(1.0, f64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests;
