//! Trace of every batch and every drop of a run, as text: batches first, each in order of time.
//!
//! `B start=MS end=MS gpu=N model=I size=B RFIRST-RLAST` with workers counted from 1, models from 0
//! and the requests of each model from 1; `D t=MS model=I RN`. Times are in ms with nanosecond
//! digits.

use std::fmt::Write as _;

use crate::run::{Watcher, run_watched};
use crate::scenario::Scenario;
use albacore_batching::Nanos;
use albacore_batching::deadlines::DeadlineDispatch;

#[derive(Default)]
struct Trace {
    batches: String,
    drops: String,
}

impl Watcher for Trace {
    fn dispatched(&mut self, dispatch: &DeadlineDispatch, (first, last): (u64, u64)) {
        let departure = &dispatch.departure;
        // infallible: writing to a String.
        let _ = writeln!(
            self.batches,
            "B start={} end={} gpu={} model={} size={} R{first}-R{last}",
            ms(departure.start),
            ms(departure.end),
            dispatch.worker.position() + 1,
            dispatch.queue.0,
            departure.rows
        );
    }

    fn dropped(&mut self, at: Nanos, model: usize, key: u64) {
        // infallible: writing to a String.
        let _ = writeln!(self.drops, "D t={} model={model} R{key}", ms(at));
    }
}

fn ms(time: Nanos) -> String {
    format!("{}.{:06}", time.0 / 1_000_000, time.0 % 1_000_000)
}

/// The trace of a scenario.
#[must_use]
pub fn trace(scenario: &Scenario) -> String {
    let mut trace = Trace::default();
    run_watched(scenario, &mut trace);
    trace.batches + &trace.drops
}
