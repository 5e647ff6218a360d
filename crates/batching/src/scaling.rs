//! How many pods a load needs.
//!
//! Problem: pods report over a window what share of their requests was bad (late, shed or failed)
//! and what share of their workers' time was idle. N pods of which the share r of the work was not
//! done in time need N + N r/(1-r) = N/(1-r) pods; with nothing bad and the share f of the time
//! idle they need N - N f = N (1-f).
//!
//! Approach: the shares are taken over all pods together, because an average of factors grows too
//! much (1/(1-r) is convex). r counts at most as 0.9; above [`ALERT`] of what the objective's
//! percentile allows it counts as at least one step beyond the dead band, so that pods are on their
//! way before the objective is missed. Then damping: a factor within the dead band changes nothing;
//! after a growth the next one waits until the window holds no request from before it; one step at
//! most doubles or adds [`GROWTH_PODS_FREE`]; less is taken only when every pod reported and as much
//! less was advised for [`SHRINK_DELAY`] without a break, and only so far that the dead band stays
//! idle: at the peak of real loads some 5 to 13 % of the time is idle, and a size without any is too
//! small at once.
//!
//! Limits: the rule knows no cold start and no forecast: it grows by bad requests, so some must have
//! come, and a load that doubles in less time than a pod takes to start is answered late. Pods are
//! taken as equal.

use std::collections::VecDeque;

use crate::units::Nanos;

/// The share of bad requests counts as at most this: a factor of 10.
pub const BAD_RATE_MAX: f64 = 0.9;

/// A factor this near to one changes nothing; the same tolerance as that of a stock autoscaler.
pub const DEAD_BAND: f64 = 0.1;

/// The part of the bad requests that the objective allows above which more pods are asked for. Near
/// the peak the bad share grows from half of 1 % to 1 % with 3 % more load.
pub const ALERT: f64 = 0.5;

/// The least factor when more than [`ALERT`] is bad: just outside the dead band.
pub const FACTOR_MISSED: f64 = 1.11;

/// Pods that one growth may add even where that is more than doubling.
pub const GROWTH_PODS_FREE: u32 = 4;

/// How long after a growth the next one waits: the window that servers measure over, so that no
/// bad request is answered twice.
pub const GROWTH_PAUSE: Nanos = Nanos(60_000_000_000);

/// How long fewer pods must have been enough before pods are taken away.
pub const SHRINK_DELAY: Nanos = Nanos(300_000_000_000);

/// Advices closer together than this are kept as one, which bounds what is remembered.
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

/// What the pods reported of the last window, together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Pods that reported.
    pub pods: u32,
    /// Requests of the window.
    pub requests: u64,
    /// Of these: late, shed or failed.
    pub bad: u64,
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
    /// No pod reported: nothing is known, nothing changes.
    NoReport,
    /// Bad requests ask for more.
    BadRate,
    /// As for bad requests, but less than one window has passed since the last growth.
    Growing,
    /// Idle workers allow less.
    Idle,
    /// Idle workers would allow less, but not yet for long enough or not known of every pod.
    Stabilizing,
    /// The load fits.
    Steady,
}

/// How many pods there should be, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The number, within the bounds.
    pub replicas: u32,
    /// Where it comes from.
    pub cause: Cause,
}

/// The rule with its memory; one for each deployment.
#[derive(Clone, Debug, Default)]
pub struct Autoscaler {
    /// When the first report was seen: before, nothing is known of how much was needed.
    since: Option<Nanos>,
    grown_at: Option<Nanos>,
    /// Sizes that would have been enough, falling from front to back, with their times.
    enough: VecDeque<(Nanos, u32)>,
}

/// The factor by which a load asks for more (above 1) or less pods, before any damping.
pub fn load_factor(load: &Load) -> f64 {
    let bad_rate = bad_rate(load);
    if bad_rate > 0.0 {
        let factor = 1.0 / (1.0 - bad_rate.min(BAD_RATE_MAX));
        return match bad_rate > load.bad_rate_allowed * ALERT {
            true => factor.max(FACTOR_MISSED),
            false => factor,
        };
    }
    // A share that is no number counts as no idle time: nothing shrinks by a broken report.
    match load.idle_share.is_nan() {
        true => 1.0,
        false => 1.0 - load.idle_share.clamp(0.0, 1.0),
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
        let factor = load_factor(load);
        let needed = match factor - 1.0 {
            change if change.abs() <= DEAD_BAND => current,
            // What stays is as idle as the dead band is wide.
            change if change < 0.0 => bounds.clamp(pods_for(load.pods, factor / (1.0 - DEAD_BAND))),
            _ => bounds.clamp(pods_for(load.pods, factor)),
        };
        let since = *self.since.get_or_insert(now);
        self.remember(now, needed);
        if factor > 1.0 {
            return self.grow(now, current, needed);
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

    fn grow(&mut self, now: Nanos, current: u32, needed: u32) -> Advice {
        if needed <= current {
            return advice(current, Cause::Steady);
        }
        let is_recent = |at: Nanos| now.saturating_sub(at) < GROWTH_PAUSE;
        if self.grown_at.is_some_and(is_recent) {
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
