//! Consolidation: how many of the existing pods receive requests.
//!
//! Problem: a Service spreads requests evenly, so at low load every pod is slightly busy and none
//! can be removed easily. Fewer pods with more load each do the same work; the others are idle,
//! ready, and back within moments.
//!
//! Approach: the work is the busy time of the pods, in whole pods. `work / BUSY_TARGET`, rounded
//! up, are sufficient. Pods are taken out only after that number was sufficient for a whole delay,
//! with at most a negligible fraction of bad requests; then the delay starts again, so that the
//! next step is based on the reports of the remaining pods. Pods are added back without delay: as
//! many as the work needs above [`BUSY_MAX`], all of them as soon as requests are bad. The
//! utilization at which that happened is avoided for an hour.
//!
//! Limits: a burst shorter than the reporting delay is served by the serving pods alone;
//! [`BUSY_TARGET`] leaves headroom for it. Pods are assumed to be equal.

use super::{FACTOR_MISSED, pods_for};
use crate::Nanos;

/// Utilization that serving pods may reach when one is taken out. The load can grow by two thirds
/// before they are saturated.
pub const BUSY_TARGET: f64 = 0.6;

/// Utilization that they may reach by more load before further pods serve. A third more load than
/// [`BUSY_TARGET`], so that noise does not cause changes.
pub const BUSY_MAX: f64 = 0.8;

/// Margin below a utilization that was too high.
const DISTANCE: f64 = 0.05;

/// How long such a utilization is avoided.
const MEMORY: Nanos = Nanos(3_600_000_000_000);

/// One step takes out at most one in this many serving pods, but at least one.
const STEP: u32 = 4;

/// Reports of the ready pods for the last window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Consolidation {
    /// Number of ready pods.
    pub ready: u32,
    /// Of these: pods that receive requests.
    pub serving: u32,
    /// Minimum number of serving pods, if that many are ready.
    pub least: u32,
    /// Sum over all ready pods of the fraction of their time in which they worked, 0 to 1 each.
    pub work: f64,
    /// Factor by which the load requires more (above 1) or fewer pods, see [`super::load_factor`].
    pub factor: f64,
}

/// Reason for the number of serving pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServingCause {
    /// Requests were bad: all pods serve.
    BadRate,
    /// The serving pods are nearly saturated.
    Busy,
    /// Fewer are sufficient, but not for long enough yet.
    Measuring,
    /// Fewer are sufficient.
    Idle,
    Steady,
}

/// Advised number of serving pods, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServingAdvice {
    /// At most the number of ready pods.
    pub serving: u32,
    pub cause: ServingCause,
}

/// The consolidation rule with its history; one per deployment.
#[derive(Clone, Debug, Default)]
pub struct Consolidator {
    /// Since when fewer pods have been sufficient without interruption.
    sufficient_since: Option<Nanos>,
    /// Utilization of the pods when requests were bad, and when that was.
    overload_utilization: Option<(Nanos, f64)>,
}

impl Consolidation {
    /// Utilization of the serving pods if `pods` of them did all of the work.
    fn busy_with(&self, pods: u32) -> f64 {
        self.work / f64::from(pods.max(1))
    }
}

impl Consolidator {
    /// Restarts the delay because something other than the load changed.
    pub fn restart(&mut self) {
        self.sufficient_since = None;
    }

    /// Number of pods that should serve at `now`. Fewer than now only after they were sufficient
    /// for `delay`, which should cover a whole window of the servers. Times never decrease.
    pub fn advise(&mut self, now: Nanos, delay: Nanos, of: &Consolidation) -> ServingAdvice {
        let advice = self.judge(now, delay, of);
        if advice.cause != ServingCause::Measuring {
            self.restart();
        }
        advice
    }

    fn judge(&mut self, now: Nanos, delay: Nanos, of: &Consolidation) -> ServingAdvice {
        if of.serving == 0 {
            return advice(of.ready, ServingCause::Busy);
        }
        let busy = of.busy_with(of.serving);
        // NaN counts as bad: a malformed report takes no pod out.
        let is_good = of.factor < FACTOR_MISSED && busy.is_finite();
        if !is_good {
            if of.serving < of.ready && busy.is_finite() {
                self.overload_utilization = Some((now, busy));
            }
            return advice(of.ready, ServingCause::BadRate);
        }
        let sufficient = pods_for(1, of.work / self.target(now));
        let sufficient = sufficient.max(of.least).min(of.ready);
        if busy > BUSY_MAX && of.serving < of.ready {
            let more = sufficient.max(of.serving + 1);
            return advice(more, ServingCause::Busy);
        }
        if sufficient >= of.serving || of.factor >= 1.0 {
            return advice(of.serving.min(of.ready), ServingCause::Steady);
        }
        let since = *self.sufficient_since.get_or_insert(now);
        if now.saturating_sub(since) < delay {
            return advice(of.serving, ServingCause::Measuring);
        }
        let step = (of.serving / STEP).max(1).min(of.serving - sufficient);
        advice(of.serving - step, ServingCause::Idle)
    }

    /// Utilization that the remaining pods may reach.
    fn target(&mut self, now: Nanos) -> f64 {
        let is_old = |at: Nanos| now.saturating_sub(at) > MEMORY;
        self.overload_utilization = self.overload_utilization.filter(|&(at, _)| !is_old(at));
        let reached = self
            .overload_utilization
            .map_or(1.0, |(_, busy)| busy - DISTANCE);
        // Not zero, which no number of pods could satisfy.
        reached.clamp(f64::MIN_POSITIVE, BUSY_TARGET)
    }
}

fn advice(serving: u32, cause: ServingCause) -> ServingAdvice {
    ServingAdvice { serving, cause }
}

#[cfg(test)]
mod tests;
