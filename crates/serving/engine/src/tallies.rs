//! Answered and failed requests, counted by the event loops without the lock of the state.
//!
//! A loop counts in its own tally. [`Counters`] drain all tallies before they are read, before
//! another model uses a slot, and when the span of a tally is older than that of the request to
//! count. So a tally belongs to one span, and need not be drained at other times.
//!
//! Memory: about 4 KiB per model, kind and loop with counts that are not drained yet.

use albacore_batching::Nanos;

use super::counters::Counters;
use super::model_window::Latencies;
use super::state::{Pending, PendingBox};
use super::timed_lock::TimedLock;
use super::window::{Outcomes, number};
use super::{Histogram, Kind};
use crate::LoopIndex;

/// Requests of one model and kind.
#[derive(Debug)]
pub(super) struct KindTally {
    pub(super) outcomes: Outcomes,
    pub(super) queue_nanos: Histogram,
    pub(super) defer_nanos: Histogram,
    pub(super) compute_nanos: Histogram,
    pub(super) total_nanos: Histogram,
    /// In microseconds.
    pub(super) latencies: Latencies,
}

impl KindTally {
    fn new() -> Self {
        Self {
            outcomes: Outcomes::default(),
            queue_nanos: Histogram::durations(),
            defer_nanos: Histogram::durations(),
            compute_nanos: Histogram::durations(),
            total_nanos: Histogram::durations(),
            latencies: Latencies::default(),
        }
    }

    fn count(&mut self, ended: &Pending, now: Nanos) {
        if ended.failure.is_some() {
            self.outcomes.failed += 1;
            return;
        }
        let timing = ended.timing(now);
        let total = now.saturating_sub(ended.request.submitted);
        self.queue_nanos.record(Nanos::from(timing.queue).0);
        self.defer_nanos.record(Nanos::from(timing.deferred).0);
        self.compute_nanos.record(Nanos::from(timing.compute).0);
        self.total_nanos.record(total.0);
        self.latencies.record(total.0 / 1000);
        match ended.is_late(total) {
            true => self.outcomes.late += 1,
            false => self.outcomes.good += 1,
        }
    }
}

/// Counts of one event loop.
#[derive(Debug, Default)]
struct Tally {
    /// Time of its last count.
    at: Nanos,
    /// By slot and kind.
    kinds: Vec<Option<Box<KindTally>>>,
}

impl Tally {
    /// Whether its requests belong to another span of the window than `now`.
    fn is_of_other_span(&self, now: Nanos) -> bool {
        !self.kinds.is_empty() && number(self.at) != number(now)
    }

    fn count(&mut self, ended: &Pending, now: Nanos) {
        let kind = ended.request.kinds.costliest().unwrap_or(Kind::Value);
        let index = ended.request.model * Kind::ALL.len() + kind as usize;
        if self.kinds.len() <= index {
            self.kinds.resize_with(index + 1, || None);
        }
        let tally = self.kinds[index].get_or_insert_with(|| Box::new(KindTally::new()));
        tally.count(ended, now);
        self.at = now;
    }

    fn drain_into(&mut self, counters: &mut Counters) {
        for (index, tally) in self.kinds.drain(..).enumerate() {
            if let Some(tally) = tally {
                let (slot, kind) = (index / Kind::ALL.len(), index % Kind::ALL.len());
                counters.add_tally(slot, Kind::ALL[kind], &tally, self.at);
            }
        }
    }
}

/// Aligned, so that the tallies of two loops share no cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct LoopTally(TimedLock<Tally>);

/// The tallies of all event loops.
#[derive(Debug)]
pub(super) struct Tallies(Box<[LoopTally]>);

impl Tallies {
    pub(super) fn new(loops: usize) -> Self {
        Self((0..loops).map(|_| LoopTally::default()).collect())
    }

    /// Counts requests completed at `now`, except those whose clients went away. `drain` must
    /// drain the tallies.
    pub(super) fn count(
        &self,
        event_loop: LoopIndex,
        ended: &[PendingBox],
        now: Nanos,
        drain: impl FnOnce(),
    ) {
        let lock = || self.0[event_loop.0].0.lock();
        let mut tally = lock();
        if tally.is_of_other_span(now) {
            drop(tally);
            drain();
            tally = lock();
        }
        let answerable = ended.iter().filter(|ended| ended.has_client);
        answerable.for_each(|ended| tally.count(ended, now));
    }

    pub(super) fn drain_into(&self, counters: &mut Counters) {
        for tally in &self.0 {
            tally.0.lock().drain_into(counters);
        }
    }

    /// Total time for which the locks of all tallies were held.
    pub(super) fn held(&self) -> Nanos {
        let held = self.0.iter().map(|tally| tally.0.held());
        held.fold(Nanos(0), Nanos::saturating_add)
    }
}

#[cfg(test)]
mod tests;
