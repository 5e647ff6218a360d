//! What the front adds to the time of a request: from the moment when the engine has its results
//! until the reply is written.
//!
//! **Problem.** The door knows what workers have to do. Where replies are long, or many requests
//! come that are refused, not the workers are busy but the front, and what is let in is answered
//! late.
//!
//! **Approach.** Each reply says how long it took from the workers to its text. The estimate
//! follows longer times at once by half, as one may be a stall, and forgets them soon: while
//! everything is refused nothing teaches it that the crowd is gone. While few requests are on their
//! way a long time was a stall, not a crowd, and says nothing of the next one.
//!
//! How early the front has to refuse depends on what a refusal saves. Where a reply is printed as
//! fast as a refusal is, that is nothing: what could still be in time had better be answered. Where
//! it is ten times as long, each one that is let in keeps many others from being refused in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use albacore_batching::Nanos;

use crate::limits::{CROWDED_REQUESTS_MIN, REPLY_LATENCY_HALF_LIFE, SLOW_SERIALIZATION_MIN};

/// The share of a shorter time in the estimate: one of so many.
const SHORTER: u64 = 16;

/// By such a part of itself the usual time of printing moves with each reply.
const SERIALIZATION_STEP: u64 = 16;

/// The estimate. Written without a lock: of two threads that write at once one is not heard.
#[derive(Debug, Default)]
pub(super) struct ReplyLatency {
    nanos: AtomicU64,
    at: AtomicU64,
    /// How long printing a reply takes: about as many took longer as took less.
    serialization: AtomicU64,
    /// Requests that were let in and whose reply is not written.
    in_flight: AtomicUsize,
}

/// A request from the moment when it was let in until its reply is written.
#[derive(Debug)]
pub(super) struct InFlight(Arc<ReplyLatency>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ReplyLatency {
    /// A request is let in.
    pub(super) fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    /// Whether so many requests are on their way that they could be in each other's.
    pub(super) fn is_crowded(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) >= CROWDED_REQUESTS_MIN
    }

    /// A reply took so long.
    pub(super) fn note(&self, took: Nanos, now: Nanos) {
        let known = self.expected(now).0;
        let next = match took.0.checked_sub(known) {
            Some(longer) => known + longer / 2,
            None => known - (known - took.0) / SHORTER,
        };
        self.nanos.store(next, Ordering::Relaxed);
        self.at.store(now.0, Ordering::Relaxed);
    }

    /// Printing a reply took so long. One in which the thread lost its cpu counts as any longer
    /// one.
    pub(super) fn record_serialization(&self, took: Nanos) {
        let known = self.serialization.load(Ordering::Relaxed);
        let step = known / SERIALIZATION_STEP + 1;
        let next = match took.0 > known {
            true => known + step,
            false => known.saturating_sub(step),
        };
        self.serialization.store(next, Ordering::Relaxed);
    }

    /// Whether printing a reply takes the front much longer than a refusal.
    pub(super) fn is_serialization_slow(&self) -> bool {
        self.serialization.load(Ordering::Relaxed) >= SLOW_SERIALIZATION_MIN.as_nanos() as u64
    }

    /// How long a reply of now should take.
    pub(super) fn expected(&self, now: Nanos) -> Nanos {
        let nanos = self.nanos.load(Ordering::Relaxed);
        let age = now.0.saturating_sub(self.at.load(Ordering::Relaxed));
        let half_life = REPLY_LATENCY_HALF_LIFE.as_nanos() as u64;
        let halves = age / half_life;
        if halves >= u64::from(u64::BITS) {
            return Nanos(0);
        }
        // Between two halves a straight line.
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
    fn it_follows_a_crowd_at_once_and_forgets_it_soon() {
        let reply_latency = ReplyLatency::default();
        let at = |ms| reply_latency.expected(Nanos(ms * MS)).0;
        assert_eq!(at(0), 0);
        for _ in 0..5 {
            reply_latency.note(Nanos(8 * MS), Nanos(MS));
        }
        assert_eq!(at(1), 7_750_000);
        let half_life = REPLY_LATENCY_HALF_LIFE.as_millis() as u64;
        assert_eq!(at(1 + half_life), 3_875_000);
        assert!(at(1 + half_life / 2) < 7 * MS && at(1 + half_life / 2) > 4 * MS);
        assert_eq!(at(1 + 1000 * half_life), 0);
    }

    #[test]
    fn few_that_are_on_their_way_are_no_crowd() {
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
            // One of ten had lost its cpu.
            let took = if stall % 10 == 0 {
                Nanos(4 * MS)
            } else {
                Nanos(2_000)
            };
            reply_latency.record_serialization(took);
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
        reply_latency.note(Nanos(16 * MS), Nanos(0));
        let before = reply_latency.expected(Nanos(0)).0;
        reply_latency.note(Nanos(0), Nanos(0));
        assert_eq!(before, 8 * MS);
        assert_eq!(
            reply_latency.expected(Nanos(0)).0,
            before - before / SHORTER
        );
    }
}
