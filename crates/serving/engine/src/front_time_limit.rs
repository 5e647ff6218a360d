//! The fraction of a request's time that the front may take, learned from the outcomes of requests.
//!
//! **Problem.** If requests queue up before the front, rejecting some keeps the others in time. The
//! right threshold depends on the time that the front takes to read and answer, and on its
//! variation: if requests are rejected too early, requests that could be answered cost the front a
//! rejection each; if too late, replies are late, or requests of others are.
//!
//! **Approach.** Additive increase, multiplicative decrease (D.-M. Chiu, R. Jain: Analysis of the
//! increase and decrease algorithms for congestion avoidance, 1989). A period in which the front
//! made more than [`LATE_SHARE_MAX`] of the replies late lowers the fraction; a period in which
//! requests were rejected for the front's time, and hardly any was late, raises it. So does any
//! period with replies in time while the fraction is below its initial value, so that the result of
//! an overload does not cause rejections of later bursts. Requests within their share of the front
//! are judged separately from the others, so that a flood that is itself in time does not
//! compensate for them.
//!
//! **Limits.** Only the front's own time counts: a reply that would have been late without it,
//! because of the workers, has no effect.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use albacore_batching::Nanos;

use crate::LoopIndex;
use crate::limits::{
    FRONT_TIME_LIMIT_MAX, FRONT_TIME_LIMIT_MIN, FRONT_TIME_LIMIT_PERIOD, FRONT_TIME_LIMIT_START,
    LATE_SHARE_MAX,
};

/// Fixed-point unit: all of a request's time.
const WHOLE: u32 = 1024;

/// Increase per period without late replies.
const STEP: u32 = WHOLE / 128;

/// Decrease per period with late replies, as one part in this many: requests within their share of
/// the front are few, and none of them should be late because of others.
const DECREASE_WITHIN_SHARE: u32 = 2;
const DECREASE: u32 = 8;

/// Outcomes of requests since the last adaptation.
#[derive(Debug, Default)]
struct OutcomeCounters {
    ended: AtomicU64,
    /// Of these, requests that the front made late.
    late: AtomicU64,
}

impl OutcomeCounters {
    fn record(&self, is_late: bool) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        if is_late {
            self.late.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Outcomes of the requests of one event loop. Aligned, so that two loops share no cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct LoopOutcomes {
    /// Requests within their share of the front.
    within_share: OutcomeCounters,
    others: OutcomeCounters,
    /// Rejections because the front took more than its part.
    refused: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct FrontTimeLimit {
    fraction: AtomicU32,
    /// Time of the last adaptation.
    adapted: AtomicU64,
    loops: Box<[LoopOutcomes]>,
}

fn to_fixed_point(share: f64) -> u32 {
    (share * f64::from(WHOLE)) as u32
}

impl FrontTimeLimit {
    pub(crate) fn new(loops: usize) -> Self {
        Self {
            fraction: AtomicU32::new(to_fixed_point(FRONT_TIME_LIMIT_START)),
            adapted: AtomicU64::new(0),
            loops: (0..loops).map(|_| LoopOutcomes::default()).collect(),
        }
    }

    /// The part of `time` that the front may take.
    pub(crate) fn of(&self, time: Nanos) -> Nanos {
        let fraction = u64::from(self.fraction.load(Ordering::Relaxed));
        Nanos(time.0 / u64::from(WHOLE) * fraction)
    }

    /// The fraction, from 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        f64::from(self.fraction.load(Ordering::Relaxed)) / f64::from(WHOLE)
    }

    /// Records a completed request, `late_by` after its deadline, of which the front took
    /// `front_time`.
    pub(crate) fn record(
        &self,
        event_loop: LoopIndex,
        is_within_share: bool,
        late_by: Nanos,
        front_time: Nanos,
    ) {
        let of = &self.loops[event_loop.0];
        let outcomes = if is_within_share {
            &of.within_share
        } else {
            &of.others
        };
        outcomes.record(late_by > Nanos(0) && late_by <= front_time);
    }

    /// Records a rejection because the front took more than its part.
    pub(crate) fn record_refusal(&self, event_loop: LoopIndex) {
        self.loops[event_loop.0]
            .refused
            .fetch_add(1, Ordering::Relaxed);
    }

    /// Adapts the fraction if the period is over. Called while the state is locked.
    pub(crate) fn adapt(&self, now: Nanos) {
        let age = now.saturating_sub(Nanos(self.adapted.load(Ordering::Relaxed)));
        if age < Nanos::from(FRONT_TIME_LIMIT_PERIOD) {
            return;
        }
        self.adapted.store(now.0, Ordering::Relaxed);
        let take = |of: fn(&LoopOutcomes) -> &AtomicU64| -> u64 {
            let counters = self.loops.iter().map(of);
            counters.map(|it| it.swap(0, Ordering::Relaxed)).sum()
        };
        let is_late = |late: u64, ended: u64| late as f64 > LATE_SHARE_MAX * ended as f64;
        let ended = [
            take(|it| &it.within_share.ended),
            take(|it| &it.others.ended),
        ];
        let is_within_share_late = is_late(take(|it| &it.within_share.late), ended[0]);
        let are_others_late = is_late(take(|it| &it.others.late), ended[1]);
        let refused = take(|it| &it.refused);
        let fraction = self.fraction.load(Ordering::Relaxed);
        let recovers = ended != [0, 0] && fraction < to_fixed_point(FRONT_TIME_LIMIT_START);
        let next = if is_within_share_late {
            fraction - fraction / DECREASE_WITHIN_SHARE
        } else if are_others_late {
            fraction - fraction / DECREASE
        } else if refused > 0 || recovers {
            fraction + STEP
        } else {
            fraction
        };
        let next = next.clamp(
            to_fixed_point(FRONT_TIME_LIMIT_MIN),
            to_fixed_point(FRONT_TIME_LIMIT_MAX),
        );
        self.fraction.store(next, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOP: LoopIndex = LoopIndex(1);
    const MS: u64 = 1_000_000;

    /// A time limit, and the number of its periods so far.
    struct Periods(FrontTimeLimit, u64);

    impl Periods {
        fn new() -> Self {
            Self(FrontTimeLimit::new(2), 0)
        }

        /// A period of completed requests; late ones are late by 1 ms, after 2 ms in the front.
        fn end(&mut self, is_within_share: bool, in_time: u64, late: u64, refused: u64) -> f64 {
            let Self(limit, number) = self;
            (0..in_time).for_each(|_| limit.record(LOOP, is_within_share, Nanos(0), Nanos(2 * MS)));
            (0..late).for_each(|_| limit.record(LOOP, is_within_share, Nanos(MS), Nanos(2 * MS)));
            (0..refused).for_each(|_| limit.record_refusal(LOOP));
            *number += 1;
            limit.adapt(Nanos(*number * FRONT_TIME_LIMIT_PERIOD.as_nanos() as u64));
            limit.share()
        }
    }

    #[test]
    fn the_fraction_grows_while_requests_are_rejected_and_shrinks_when_replies_are_late() {
        let mut periods = Periods::new();
        let start = periods.0.share();
        assert_eq!(periods.end(false, 100, 0, 0), start, "nothing is refused");
        let grown = periods.end(false, 100, 1, 1);
        assert!(grown > start, "1 % late is what objectives allow");
        assert!(periods.end(false, 100, 2, 1) < grown);
        for _ in 0..1000 {
            periods.end(false, 100, 0, 1);
        }
        assert_eq!(periods.0.share(), FRONT_TIME_LIMIT_MAX);
        assert_eq!(periods.0.of(Nanos(1024)), Nanos(960));
        for _ in 0..1000 {
            periods.end(false, 0, 1, 1);
        }
        assert_eq!(periods.0.share(), FRONT_TIME_LIMIT_MIN);
    }

    #[test]
    fn the_fraction_recovers_to_its_initial_value_after_an_overload() {
        let mut periods = Periods::new();
        let start = periods.0.share();
        for _ in 0..100 {
            periods.end(false, 0, 1, 1);
        }
        assert_eq!(periods.0.share(), FRONT_TIME_LIMIT_MIN);
        assert_eq!(periods.end(false, 0, 0, 0), FRONT_TIME_LIMIT_MIN, "idle");
        for _ in 0..100 {
            periods.end(false, 1, 0, 0);
        }
        assert!((start..start + 0.01).contains(&periods.0.share()));
    }

    #[test]
    fn a_late_request_within_its_share_counts_regardless_of_others_in_time() {
        let mut periods = Periods::new();
        let start = periods.0.share();
        (0..10_000).for_each(|_| periods.0.record(LOOP, false, Nanos(0), Nanos(MS)));
        assert!(periods.end(true, 9, 1, 1) < start * 0.51);
    }

    #[test]
    fn lateness_caused_by_the_workers_has_no_effect() {
        let limit = FrontTimeLimit::new(1);
        let start = limit.share();
        limit.record(LoopIndex(0), true, Nanos(3 * MS), Nanos(2 * MS));
        limit.adapt(Nanos(FRONT_TIME_LIMIT_PERIOD.as_nanos() as u64));
        assert_eq!(limit.share(), start);
    }

    #[test]
    fn the_fraction_is_not_adapted_before_the_period_ends() {
        let limit = FrontTimeLimit::new(1);
        let start = limit.share();
        limit.record_refusal(LoopIndex(0));
        limit.adapt(Nanos(FRONT_TIME_LIMIT_PERIOD.as_nanos() as u64 - 1));
        assert_eq!(limit.share(), start);
        limit.adapt(Nanos(FRONT_TIME_LIMIT_PERIOD.as_nanos() as u64));
        assert!(limit.share() > start);
    }
}
