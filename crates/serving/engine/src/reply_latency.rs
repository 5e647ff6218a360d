//! Estimates the reply latency, the time that the front adds to a request: from the completion of
//! its results until the reply is written.
//!
//! **Problem.** The scheduler accounts for the work of the workers. If replies are long, or many
//! requests are rejected, the front is the bottleneck, and requests that the workers could serve in
//! time are answered late.
//!
//! **Approach.** Each reply reports its time from the workers to its serialized form. The estimate
//! follows longer times by half of the difference at once, because one of them may be a stall, and
//! decays soon: while everything is rejected, no reply can show that the crowd is over. While few
//! requests are in flight, a long time was a stall rather than a crowd, and is not used.
//!
//! If serialization of most replies is slow, requests that the loop has already read are submitted
//! first, because workers would be idle during the serialization.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use albacore_batching::Nanos;

use crate::limits::{CROWDED_REQUESTS_MIN, REPLY_LATENCY_HALF_LIFE, SLOW_SERIALIZATION_MIN};

/// Weight of a shorter time in the estimate: one part in this many.
const SHORTER: u64 = 16;

/// Relative step of the estimated serialization time per reply: one part in this many.
const SERIALIZATION_STEP: u64 = 16;

/// Written without a lock: one of two concurrent updates may be lost.
#[derive(Debug, Default)]
pub(super) struct ReplyLatency {
    nanos: AtomicU64,
    at: AtomicU64,
    /// Estimated median time to serialize a reply, in nanoseconds.
    serialization: AtomicU64,
    /// Number of admitted requests whose replies are not written yet.
    in_flight: AtomicUsize,
}

/// Counts a request as in flight until it is dropped, when the reply is written.
#[derive(Debug)]
pub(super) struct InFlight(Arc<ReplyLatency>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ReplyLatency {
    /// Counts an admitted request as in flight.
    pub(super) fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    /// Whether enough requests are in flight to delay each other.
    pub(super) fn is_crowded(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) >= CROWDED_REQUESTS_MIN
    }

    /// Records the time of a reply from the workers to its serialized form.
    pub(super) fn record(&self, time: Nanos, now: Nanos) {
        let known = self.expected(now).0;
        let next = match time.0.checked_sub(known) {
            Some(longer) => known + longer / 2,
            None => known - (known - time.0) / SHORTER,
        };
        self.nanos.store(next, Ordering::Relaxed);
        self.at.store(now.0, Ordering::Relaxed);
    }

    /// Records the time to serialize a reply. A preempted thread counts like any longer time.
    pub(super) fn record_serialization(&self, time: Nanos) {
        let known = self.serialization.load(Ordering::Relaxed);
        let step = known / SERIALIZATION_STEP + 1;
        let next = match time.0 > known {
            true => known + step,
            false => known.saturating_sub(step),
        };
        self.serialization.store(next, Ordering::Relaxed);
    }

    /// Whether serializing a reply takes much longer than a rejection.
    pub(super) fn is_serialization_slow(&self) -> bool {
        self.serialization.load(Ordering::Relaxed) >= SLOW_SERIALIZATION_MIN.as_nanos() as u64
    }

    /// The expected latency of a reply that starts now.
    pub(super) fn expected(&self, now: Nanos) -> Nanos {
        let nanos = self.nanos.load(Ordering::Relaxed);
        let age = now.0.saturating_sub(self.at.load(Ordering::Relaxed));
        let half_life = REPLY_LATENCY_HALF_LIFE.as_nanos() as u64;
        let halves = age / half_life;
        if halves >= u64::from(u64::BITS) {
            return Nanos(0);
        }
        // Linear between two half-lives.
        let whole = nanos >> halves;
        let part = whole / 2 * (age % half_life) / half_life;
        Nanos(whole - part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_latency_rises_at_once_with_a_crowd_and_decays_soon() {
        let reply_latency = ReplyLatency::default();
        let at = |ms| reply_latency.expected(Nanos(ms * MS)).0;
        assert_eq!(at(0), 0);
        for _ in 0..5 {
            reply_latency.record(Nanos(8 * MS), Nanos(MS));
        }
        assert_eq!(at(1), 7_750_000);
        let half_life = REPLY_LATENCY_HALF_LIFE.as_millis() as u64;
        assert_eq!(at(1 + half_life), 3_875_000);
        assert!(at(1 + half_life / 2) < 7 * MS && at(1 + half_life / 2) > 4 * MS);
        assert_eq!(at(1 + 1000 * half_life), 0);
    }

    #[test]
    fn few_requests_in_flight_are_no_crowd() {
        let reply_latency = Arc::new(ReplyLatency::default());
        let mut few: Vec<_> = (1..CROWDED_REQUESTS_MIN)
            .map(|_| reply_latency.begin())
            .collect();
        assert!(!reply_latency.is_crowded());
        few.push(reply_latency.begin());
        assert!(reply_latency.is_crowded());
        few.pop();
        assert!(!reply_latency.is_crowded());
    }

    #[test]
    fn a_long_print_is_one_that_most_replies_need() {
        let reply_latency = ReplyLatency::default();
        let long = Nanos(SLOW_SERIALIZATION_MIN.as_nanos() as u64 * 2);
        for stall in 0..1000 {
            // One in ten had been preempted.
            let time = if stall % 10 == 0 {
                Nanos(4 * MS)
            } else {
                Nanos(2_000)
            };
            reply_latency.record_serialization(time);
            assert!(!reply_latency.is_serialization_slow());
        }
        (0..100).for_each(|_| reply_latency.record_serialization(long));
        assert!(reply_latency.is_serialization_slow());
        (0..100).for_each(|_| reply_latency.record_serialization(Nanos(2_000)));
        assert!(!reply_latency.is_serialization_slow());
    }

    #[test]
    fn short_replies_bring_it_down_slowly() {
        let reply_latency = ReplyLatency::default();
        reply_latency.record(Nanos(16 * MS), Nanos(0));
        let before = reply_latency.expected(Nanos(0)).0;
        reply_latency.record(Nanos(0), Nanos(0));
        assert_eq!(before, 8 * MS);
        assert_eq!(
            reply_latency.expected(Nanos(0)).0,
            before - before / SHORTER
        );
    }
}
