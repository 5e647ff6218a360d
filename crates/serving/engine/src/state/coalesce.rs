//! Coalescing: requests that cost less than waking a worker wait until the front's thread has read
//! all other readable connections.
//!
//! **Problem.** With thousands of small requests a second, handing each to an idle worker at once
//! costs more than computing it: a system call and a wake for the batch, and a notification of its
//! end.
//!
//! **Approach.** A thread of the front serves all connections that are readable, then sleeps. Small
//! requests that arrived meanwhile are scheduled together when it is about to sleep
//! ([`crate::FlushHandle`]), so a lone request does not wait. Larger requests are not coalesced:
//! handing them out one by one divides their work among the workers.

use albacore_batching::{Arrival, Event, Nanos, QueueIndex};

use super::{Outbox, State};
use crate::limits::{COALESCE_DELAY_MAX, COALESCED_COMPUTE_MAX};

/// The weight of the newest batch in the time of a row: one part in so many.
const NEWEST: u64 = 8;

#[derive(Debug, Default)]
pub(super) struct Coalescer {
    /// The front flushes before its threads sleep.
    is_enabled: bool,
    /// Since when requests wait to be flushed.
    since: Option<Nanos>,
    /// Expected compute time of the waiting requests, nanoseconds.
    compute: u64,
    /// Compute time of a row by queue, nanoseconds; 0 where it is not known.
    row_nanos: Vec<u64>,
    /// The current dispatches come from a flush.
    is_flushing: bool,
}

impl Coalescer {
    /// A batch of `rows` rows was computed in so much time.
    pub(super) fn record(&mut self, queue: QueueIndex, rows: usize, compute_nanos: u64) {
        if self.row_nanos.len() <= queue.0 {
            self.row_nanos.resize(queue.0 + 1, 0);
        }
        let row = compute_nanos / (rows as u64).max(1) + 1;
        let known = &mut self.row_nanos[queue.0];
        *known = match *known {
            0 => row,
            known => (known * (NEWEST - 1) + row).div_ceil(NEWEST),
        };
    }

    /// Forgets the times of queues: another model has them now.
    pub(super) fn forget(&mut self, queues: impl Iterator<Item = QueueIndex>) {
        for queue in queues {
            if let Some(row) = self.row_nanos.get_mut(queue.0) {
                *row = 0;
            }
        }
    }

    /// Whether such a request is coalesced with others.
    fn accepts(&mut self, queue: QueueIndex, rows: usize, now: Nanos) -> bool {
        let row = self.row_nanos.get(queue.0).copied().unwrap_or_default();
        let compute = self.compute.saturating_add(row.saturating_mul(rows as u64));
        if !self.is_enabled || row == 0 || compute > COALESCED_COMPUTE_MAX.as_nanos() as u64 {
            return false;
        }
        self.compute = compute;
        self.since.get_or_insert(now);
        true
    }

    /// The waiting requests were scheduled.
    pub(super) fn reset(&mut self) {
        (self.since, self.compute) = (None, 0);
    }

    pub(super) fn is_flushing(&self) -> bool {
        self.is_flushing
    }
}

impl State {
    /// Enables coalescing: from now on the front calls [`State::flush`].
    pub(in super::super) fn enable_coalescing(&mut self) {
        self.coalescer.is_enabled = true;
    }

    /// Whether requests wait to be flushed.
    pub(in super::super) fn has_coalesced(&self) -> bool {
        self.coalescer.since.is_some()
    }

    /// Passes an arrival to the scheduler, now or at the next flush.
    pub(super) fn enqueue(&mut self, arrival: Arrival, now: Nanos, out: &mut Outbox) {
        // While all workers are busy the request waits in its queue anyway.
        let (queue, rows) = (arrival.queue, arrival.rows);
        if self.scheduler.idle_workers() > 0 && self.coalescer.accepts(queue, rows, now) {
            self.scheduler.enqueue(arrival, now);
        } else {
            self.step(Event::Arrived(arrival), now, out);
        }
    }

    /// Schedules the coalesced requests.
    pub(in super::super) fn flush(&mut self, now: Nanos, out: &mut Outbox) {
        if self.has_coalesced() {
            self.coalescer.is_flushing = true;
            self.step(Event::Timer, now, out);
            self.coalescer.is_flushing = false;
        }
    }

    /// Flushes requests that have waited too long, because the front's thread has much to read.
    pub(in super::super) fn flush_stale(&mut self, now: Nanos, out: &mut Outbox) {
        let waited = self.coalescer.since.map(|since| now.saturating_sub(since));
        if waited.is_some_and(|waited| waited.0 >= COALESCE_DELAY_MAX.as_nanos() as u64) {
            self.flush(now, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_known_to_be_small_are_coalesced_and_a_new_model_is_not_known() {
        let (queue, now) = (QueueIndex(3), Nanos(7));
        let mut coalescer = Coalescer {
            is_enabled: true,
            ..Coalescer::default()
        };
        assert!(!coalescer.accepts(queue, 1, now), "nothing is known");
        coalescer.record(queue, 10, 50_000);
        assert_eq!(coalescer.row_nanos[3], 5_001);
        assert!(coalescer.accepts(queue, 3, now));
        assert_eq!(coalescer.since, Some(now));
        assert!(!coalescer.accepts(queue, 1, now), "more than 20 us in all");
        coalescer.reset();
        assert!(coalescer.accepts(queue, 1, now));
        coalescer.forget([QueueIndex(3), QueueIndex(99)].into_iter());
        coalescer.reset();
        assert!(!coalescer.accepts(queue, 1, now));
        coalescer.record(queue, 1, 1_000_000);
        assert!(!coalescer.accepts(queue, 1, now), "it is not small");
    }
}
