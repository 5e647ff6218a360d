//! Requests that cost less than wake_latency a worker wait until the front's thread has read whatever
//! else is there.
//!
//! **Problem.** With thousands of small requests a second, handing each to an idle worker at once
//! costs more than computing it: a system call here, a wake there, and a word back.
//!
//! **Approach.** A thread of the front takes all connections that are readable, then sleeps. What
//! came meanwhile is decided together when it is about to ([`crate::FlushHandle`]), so a lone request
//! waits for nothing. What has work for a worker does not wait for others: computing is divided
//! among workers by handing it out one by one.

use albacore_batching::{Event, Nanos, QueueIndex};

use super::{Outbox, State};
use crate::limits::{COALESCE_DELAY_MAX, COALESCED_COMPUTE_MAX};

/// The weight of the last batch in what a row takes: one of so many.
const NEWEST: u64 = 8;

#[derive(Debug, Default)]
pub(super) struct Coalescer {
    /// Somebody says when it is over.
    is_on: bool,
    /// Since when requests wait for the others.
    since: Option<Nanos>,
    /// What all of them should take to compute, in nanoseconds.
    compute: u64,
    /// By queue: what computing a row takes, in nanoseconds; 0 where it is not known.
    of_row: Vec<u64>,
    /// What is dispatched now had been gathered.
    is_flushing: bool,
}

impl Coalescer {
    /// Computing so many rows took so long.
    pub(super) fn note(&mut self, queue: QueueIndex, rows: usize, compute_nanos: u64) {
        if self.of_row.len() <= queue.0 {
            self.of_row.resize(queue.0 + 1, 0);
        }
        let row = compute_nanos / (rows as u64).max(1) + 1;
        let known = &mut self.of_row[queue.0];
        *known = match *known {
            0 => row,
            known => (known * (NEWEST - 1) + row).div_ceil(NEWEST),
        };
    }

    /// Another model has these queues now.
    pub(super) fn forget(&mut self, queues: impl Iterator<Item = QueueIndex>) {
        for queue in queues {
            if let Some(row) = self.of_row.get_mut(queue.0) {
                *row = 0;
            }
        }
    }

    /// Whether such a request waits for others.
    fn takes(&mut self, queue: QueueIndex, rows: usize, now: Nanos) -> bool {
        let row = self.of_row.get(queue.0).copied().unwrap_or_default();
        let compute = self.compute.saturating_add(row.saturating_mul(rows as u64));
        if !self.is_on || row == 0 || compute > COALESCED_COMPUTE_MAX.as_nanos() as u64 {
            return false;
        }
        self.compute = compute;
        self.since.get_or_insert(now);
        true
    }

    /// All that waits is decided.
    pub(super) fn reset(&mut self) {
        (self.since, self.compute) = (None, 0);
    }

    pub(super) fn is_flushing(&self) -> bool {
        self.is_flushing
    }
}

impl State {
    /// From now on somebody says when nothing more is to be gathered: [`State::flush`].
    pub(in super::super) fn gather(&mut self) {
        self.coalescer.is_on = true;
    }

    /// Whether requests wait for others.
    pub(in super::super) fn has_coalesced(&self) -> bool {
        self.coalescer.since.is_some()
    }

    /// A request arrived: it is decided now, or with others.
    pub(super) fn arrive(
        &mut self,
        event: Event,
        (queue, rows): (QueueIndex, usize),
        (now, out): (Nanos, &mut Outbox),
    ) {
        // Where all are busy it waits anyway.
        if self.scheduler.idle_workers() > 0 && self.coalescer.takes(queue, rows, now) {
            self.scheduler.gather(event, now);
        } else {
            self.step(event, now, out);
        }
    }

    /// What was gathered is decided.
    pub(in super::super) fn flush(&mut self, now: Nanos, out: &mut Outbox) {
        if self.has_coalesced() {
            self.coalescer.is_flushing = true;
            self.step(Event::Timer, now, out);
            self.coalescer.is_flushing = false;
        }
    }

    /// As [`State::flush`], if it has waited for too long: the thread that gathered has much to
    /// do.
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
    fn only_what_is_known_to_be_small_waits_and_a_new_model_is_not_known() {
        let (queue, now) = (QueueIndex(3), Nanos(7));
        let mut coalescer = Coalescer {
            is_on: true,
            ..Coalescer::default()
        };
        assert!(!coalescer.takes(queue, 1, now), "nothing is known");
        coalescer.note(queue, 10, 50_000);
        assert_eq!(coalescer.of_row[3], 5_001);
        assert!(coalescer.takes(queue, 3, now));
        assert_eq!(coalescer.since, Some(now));
        assert!(!coalescer.takes(queue, 1, now), "more than 20 us in all");
        coalescer.reset();
        assert!(coalescer.takes(queue, 1, now));
        coalescer.forget([QueueIndex(3), QueueIndex(99)].into_iter());
        coalescer.reset();
        assert!(!coalescer.takes(queue, 1, now));
        coalescer.note(queue, 1, 1_000_000);
        assert!(!coalescer.takes(queue, 1, now), "it is not small");
    }
}
