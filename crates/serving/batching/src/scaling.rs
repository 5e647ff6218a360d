//! How many pods a load needs.
//!
//! Problem: pods report over a window what share of their requests was bad (late, shed or failed)
//! and what share of their workers' time was idle. N pods of which the share r of the work was not
//! done in time need N + N r/(1-r) = N/(1-r) pods; with nothing bad and the share f of the time
//! idle they need N - N f = N (1-f).
//!
//! Approach: the shares are taken over all pods together, because an average of factors grows too
//! much (1/(1-r) is convex). Of several models the worst decides (`worst_model`). r counts at most
//! as 0.9; up to [`NEGLIGIBLE_MAX`] it counts as none; above [`ALERT`] of what the objective's
//! percentile allows it counts as at least one step beyond the dead band, so that pods are on their
//! way before the objective is missed. Then damping: a factor within the dead band changes nothing;
//! after a growth the next one waits until the window, or its newest part where that says enough,
//! holds no request from before its pods were there; one step at most doubles or adds
//! [`GROWTH_PODS_FREE`]; less is taken only when every pod reported and as much less was advised
//! for [`SHRINK_DELAY`] without a break, and only so far that as much stays idle as has to: the
//! dead band, and more than what was idle when requests were bad in the last hours. At the peak of
//! real loads some 5 to 13 % of the time is idle, of few workers 20 %.
//!
//! Limits: the rule knows no cold start and no forecast: it grows by bad requests, so some must
//! have come, and a load that doubles in less time than a pod takes to start is answered late. Pods
//! are taken as equal.

mod consolidation;
mod worst_model;

use std::collections::VecDeque;

pub use consolidation::{
    BUSY_MAX, BUSY_TARGET, Consolidation, Consolidator, ServingAdvice, ServingCause,
};
pub use worst_model::{DeploymentLoad, EVIDENCE_MIN, ModelLoad, RequestCounts};

use crate::Nanos;

/// The share of bad requests counts as at most this: a factor of 10.
pub const BAD_RATE_MAX: f64 = 0.9;

/// A factor this near to one changes nothing; the same tolerance as that of a stock autoscaler.
pub const DEAD_BAND: f64 = 0.1;

/// The part of the bad requests that the objective allows above which more pods are asked for. Near
/// the peak the bad share grows from half of 1 % to 1 % with 3 % more load.
pub const ALERT: f64 = 0.5;

/// The same where no more of the workers' time is idle than what has to be: what is bad then comes
/// of the load, and single intervals are worse than their mean.
pub const ALERT_BUSY: f64 = 0.2;

/// A share of bad requests up to this, and to [`ALERT_BUSY`], counts as none: where thousands are
/// answered in a second, one in a minute is always bad, and pods that are idle could never go.
pub const NEGLIGIBLE_MAX: f64 = 0.002;

/// What was idle while requests were bad counts up to this share as what has to be: few workers
/// need more of it than many. Beyond, requests were bad for another reason than the load.
const SPARE_MAX: f64 = 0.3;

/// What few workers need, where nobody remembers more: with less, a stock autoscaler takes pods
/// away and adds them again for as long as the load stays.
pub const SPARE_OF_FEW: f64 = 0.2;

/// Idle time beyond what was found not to be enough.
const SPARE_MORE: f64 = 0.03;

/// How long a spare share is remembered.
const SPARE_MEMORY: Nanos = Nanos(6 * 3_600_000_000_000);

/// The least factor when more than [`ALERT`] is bad: just outside the dead band.
pub const FACTOR_MISSED: f64 = 1.11;

/// Pods that one growth may add even where that is more than doubling.
pub const GROWTH_PODS_FREE: u32 = 4;

/// How long after a growth, and after its pods are there, the next one waits: the window that
/// servers measure over, so that no bad request is answered twice.
pub const GROWTH_PAUSE: Nanos = Nanos(60_000_000_000);

/// The same where the newest part of the window is enough to go by: it is up to 20 s long, and its
/// report up to 10 s old. Before those pods are there nothing has to wait: what is asked for
/// follows from the pods that reported.
pub const RECENT_PAUSE: Nanos = Nanos(30_000_000_000);

/// With so many requests, or so many bad ones, the newest part of the window decides: a rush is
/// judged by itself, not by its mean with the minute before.
pub const RECENT_REQUESTS_MIN: u64 = 1000;
/// See [`RECENT_REQUESTS_MIN`].
pub const RECENT_BAD_MIN: u64 = 10;

/// How long fewer pods must have been enough before pods are taken away.
pub const SHRINK_DELAY: Nanos = Nanos(300_000_000_000);

/// Recommendations closer together than this are kept as one, which bounds what is remembered.
const MEMORY_STEP: Nanos = Nanos(5_000_000_000);

/// The fewest and the most pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaBounds {
    /// At least 1.
    pub min: u32,
    /// Not below `min`.
    pub max: u32,
}

impl ReplicaBounds {
    /// `replicas`, or the nearest bound.
    pub fn clamp(&self, replicas: u32) -> u32 {
        // Not `u32::clamp`, which panics where the bounds are crossed.
        replicas.min(self.max).max(self.min).max(1)
    }
}

/// What the pods reported of the last window, together: of all requests, or of those of one model
/// or kind.
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
    /// Mean share of the workers' time without work, 0 to 1.
    pub idle_share: f64,
    /// The share of bad requests that the objective's percentile allows, 0 to 1.
    pub bad_rate_allowed: f64,
}

/// Why a number of pods is advised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The number was outside its bounds.
    Bounds,
    /// No pod reported: the number stays.
    NoReport,
    /// Bad requests ask for more.
    BadRate,
    /// As for bad requests, but less than one window has passed since the last growth.
    Growing,
    /// Idle workers allow less.
    Idle,
    /// Idle workers would allow less, but not yet for long enough or not known of every pod.
    Stabilizing,
    Steady,
}

/// How many pods there should be, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The number, within the bounds.
    pub replicas: u32,
    pub cause: Cause,
}

/// The autoscaling rule with its memory; one for each deployment.
#[derive(Clone, Debug, Default)]
pub struct Autoscaler {
    /// When the first report came: before, nothing is known of the need.
    since: Option<Nanos>,
    grown_at: Option<Nanos>,
    /// The most pods that reported since fewer were wanted, and when they became so many.
    most: u32,
    most_at: Option<Nanos>,
    /// What was idle while requests were bad, and when.
    spare: f64,
    spare_at: Option<Nanos>,
    /// Sizes that would have been enough, falling from front to back, with their times.
    enough: VecDeque<(Nanos, u32)>,
}

impl Load {
    /// Whether the newest part of the window is enough to decide by.
    fn is_recent_enough(&self) -> bool {
        self.recent_requests >= RECENT_REQUESTS_MIN || self.recent_bad >= RECENT_BAD_MIN
    }

    /// The load of the newest part alone, if that is enough to decide by.
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

/// The factor by which a load asks for more (above 1) or less pods, for whoever multiplies the pods
/// by it without a memory, as a stock autoscaler does: what stays is as idle as few workers need.
pub fn load_factor(load: &Load) -> f64 {
    match factor_where(load, DEAD_BAND) {
        fewer if fewer < 1.0 => (fewer / (1.0 - SPARE_OF_FEW)).min(1.0),
        more => more,
    }
}

/// The same where so much of the workers' time has to be idle.
fn factor_where(load: &Load, spare: f64) -> f64 {
    let bad_rate = bad_rate(load);
    if bad_rate > NEGLIGIBLE_MAX.min(load.bad_rate_allowed * ALERT_BUSY) {
        let factor = 1.0 / (1.0 - bad_rate.min(BAD_RATE_MAX));
        return match bad_rate > load.bad_rate_allowed * alert(load, spare) {
            true => factor.max(FACTOR_MISSED),
            false => factor,
        };
    }
    // NaN counts as no idle time: a broken report does not shrink anything.
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
    /// How many pods `load` needs when `current` are wanted now. Times never go back.
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
            // What stays is as idle as it has to be.
            change if change < 0.0 => bounds.clamp(pods_for(load.pods, factor / (1.0 - spare))),
            // A rush is met by as many as it takes, and those that have to be idle beside them.
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
        let enough = self.enough.front().map_or(current, |&(_, size)| size);
        let is_known = load.pods >= current && now.saturating_sub(since) >= SHRINK_DELAY;
        if !is_known || enough >= current {
            return advice(current, Cause::Stabilizing);
        }
        advice(enough, Cause::Idle)
    }

    /// The share of the workers' time that has to be idle.
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
        self.most = self.most.min(current);
        if pods > self.most {
            // Of the first ones it is not known since when they are there: nothing waits for them.
            if self.since.is_some() {
                self.most_at = Some(now);
            }
            self.most = pods;
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
            true => within(self.most_at, RECENT_PAUSE),
            false => within(self.most_at.max(self.grown_at), GROWTH_PAUSE),
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

    /// Keeps the largest sizes of the last [`SHRINK_DELAY`]: its front is their maximum.
    fn remember(&mut self, now: Nanos, needed: u32) {
        let is_old = |at: Nanos| now.saturating_sub(at) > SHRINK_DELAY;
        while self.enough.front().is_some_and(|&(at, _)| is_old(at)) {
            self.enough.pop_front();
        }
        while self.enough.back().is_some_and(|&(_, size)| size <= needed) {
            self.enough.pop_back();
        }
        let is_close = |at: Nanos| now.saturating_sub(at) < MEMORY_STEP;
        // The larger of two that lie close together stands for both.
        if !self.enough.back().is_some_and(|&(at, _)| is_close(at)) {
            self.enough.push_back((now, needed));
        }
    }
}

fn advice(replicas: u32, cause: Cause) -> Advice {
    Advice { replicas, cause }
}

/// The whole number of pods that are `factor` times `pods`; at least 1.
fn pods_for(pods: u32, factor: f64) -> u32 {
    // 10 pods with a factor of 1.1 are 11, whatever the last bit of the product says.
    let pods = (f64::from(pods) * factor - 1e-9).ceil();
    pods.clamp(1.0, f64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests;
