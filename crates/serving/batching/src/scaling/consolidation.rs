//! How many of the pods that are there get requests.
//!
//! Problem: a Service spreads requests evenly, so at low load every pod is a little busy and none
//! can be taken away without a thought. Fewer pods with more load each have the same work; the
//! others are idle, ready, and back within moments.
//!
//! Approach: the pods' busy time, in whole pods, is the work. `work / BUSY_TARGET`, rounded up, are
//! enough. Only when so few were enough for a whole delay, with no more than a negligible share
//! of bad requests, some are taken out; then the delay begins again, so that the next step goes by
//! what the pods that are left reported. They come back without any delay: as many as the work
//! needs above [`BUSY_MAX`], all as soon as requests are bad. How busy they were then is remembered
//! for an hour, and stays out of reach.
//!
//! Limits: a burst that is shorter than reports take is answered by the pods that get requests; the
//! room that [`BUSY_TARGET`] leaves is for it. Pods are taken as equal.

use super::{FACTOR_MISSED, pods_for};
use crate::Nanos;

/// How busy the pods that get requests may become by taking one out. The load can grow by two
/// thirds before they are full.
pub const BUSY_TARGET: f64 = 0.6;

/// How busy they may become by more load before further ones get requests. As far from
/// [`BUSY_TARGET`] as a third more load: what follows from noise changes nothing.
pub const BUSY_MAX: f64 = 0.8;

/// What was too much is avoided by this distance.
const DISTANCE: f64 = 0.05;

/// For how long it is avoided.
const MEMORY: Nanos = Nanos(3_600_000_000_000);

/// One step takes at most this part of the pods that get requests, or one.
const STEP: u32 = 4;

/// What the ready pods reported of the last window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Consolidation {
    /// Pods that are ready.
    pub ready: u32,
    /// Of these: pods that get requests.
    pub serving: u32,
    /// So many get requests however little there is to do, if they are ready.
    pub least: u32,
    /// The sum over all ready pods of the share of their time in which they worked, 0 to 1 each.
    pub work: f64,
    /// The factor by which the load asks for more (above 1) or less pods, see
    /// [`super::load_factor`].
    pub factor: f64,
}

/// Why so many pods get requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServingCause {
    /// Requests were bad: all get some.
    BadRate,
    /// The pods that get requests are nearly full.
    Busy,
    /// Fewer are enough, but not yet for long enough.
    Measuring,
    /// Fewer are enough.
    Idle,
    Steady,
}

/// How many pods should get requests, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServingAdvice {
    /// At most as many as are ready.
    pub serving: u32,
    pub cause: ServingCause,
}

/// The rule with its memory; one for each deployment.
#[derive(Clone, Debug, Default)]
pub struct Consolidator {
    /// Since when fewer pods have been enough without a break.
    enough_since: Option<Nanos>,
    /// How busy the pods were when requests were bad, and when.
    too_busy: Option<(Nanos, f64)>,
}

impl Consolidation {
    /// How busy the pods that get requests would be with all of the work, if `pods` got them.
    fn busy_with(&self, pods: u32) -> f64 {
        self.work / f64::from(pods.max(1))
    }
}

impl Consolidator {
    /// Forgets since when fewer pods have been enough: something else than the load changed.
    pub fn restart(&mut self) {
        self.enough_since = None;
    }

    /// How many pods should get requests at `now`. Fewer than now only after they were enough for
    /// `delay`, which should hold a whole window of the servers. Times never go back.
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
        // NaN is bad: a broken report takes no pod out.
        let is_good = of.factor < FACTOR_MISSED && busy.is_finite();
        if !is_good {
            if of.serving < of.ready && busy.is_finite() {
                self.too_busy = Some((now, busy));
            }
            return advice(of.ready, ServingCause::BadRate);
        }
        let enough = pods_for(1, of.work / self.target(now));
        let enough = enough.max(of.least).min(of.ready);
        if busy > BUSY_MAX && of.serving < of.ready {
            let more = enough.max(of.serving + 1);
            return advice(more, ServingCause::Busy);
        }
        if enough >= of.serving || of.factor >= 1.0 {
            return advice(of.serving.min(of.ready), ServingCause::Steady);
        }
        let since = *self.enough_since.get_or_insert(now);
        if now.saturating_sub(since) < delay {
            return advice(of.serving, ServingCause::Measuring);
        }
        let step = (of.serving / STEP).max(1).min(of.serving - enough);
        advice(of.serving - step, ServingCause::Idle)
    }

    /// How busy the pods that are left may become.
    fn target(&mut self, now: Nanos) -> f64 {
        let is_old = |at: Nanos| now.saturating_sub(at) > MEMORY;
        self.too_busy = self.too_busy.filter(|&(at, _)| !is_old(at));
        let reached = self.too_busy.map_or(1.0, |(_, busy)| busy - DISTANCE);
        // Not zero, which no number of pods would keep.
        reached.clamp(f64::MIN_POSITIVE, BUSY_TARGET)
    }
}

fn advice(serving: u32, cause: ServingCause) -> ServingAdvice {
    ServingAdvice { serving, cause }
}

#[cfg(test)]
mod tests;
