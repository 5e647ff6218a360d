//! What the scheduler decides goes to a worker, and is counted: why now, and how long it was waited
//! on purpose.

use std::sync::Arc;
use std::time::Duration;

use albacore_batching::{Dispatch, Event, Nanos, RequestKey};

use super::super::cpus;
use super::super::queues::slot_of;
use super::super::{Kind, KindSet, Left};
use super::{Outbox, Running, State};
use crate::limits::BATCH_REQUESTS_MAX;
use crate::ring::{Ring, Segment};

/// For how long some worker was free, since the start.
#[derive(Debug, Default)]
pub(super) struct FreeTime {
    before: Nanos,
    since: Option<Nanos>,
}

impl FreeTime {
    pub(super) fn until(&self, now: Nanos) -> Nanos {
        let present = self.since.map(|since| now.saturating_sub(since));
        self.before.saturating_add(present.unwrap_or(Nanos(0)))
    }

    pub(super) fn set(&mut self, is_free: bool, now: Nanos) {
        if is_free != self.since.is_some() {
            self.before = self.until(now);
            self.since = is_free.then_some(now);
        }
    }
}

impl State {
    pub(super) fn dispatch(
        &mut self,
        dispatch: &Dispatch,
        keys: &[RequestKey],
        (event, now): (Event, Nanos),
        out: &mut Outbox,
    ) {
        let worker = dispatch.worker.0;
        let terms = self.terms_of_one();
        let free = self.free.until(now);
        let patience = self.patience(dispatch.queue, dispatch.rows, dispatch.losses, now);
        let Some(seat) = self.seats.get_mut(worker) else {
            return;
        };
        seat.members.clear();
        self.segments.clear();
        let slot = slot_of(dispatch.queue);
        let current = self.catalog.current_of(slot);
        let current = current.map(|edition| edition.id);
        let mut kinds = KindSet::EMPTY;
        let mut is_current = true;
        for key in keys {
            let Some(part) = self.parts.get_mut(&key.0) else {
                continue;
            };
            let Some(pending) = self.pending.get_mut(&part.request) else {
                continue;
            };
            part.is_running = true;
            if pending.first_dispatch.is_none() {
                pending.first_dispatch = Some(now);
                pending.deferred = free.saturating_sub(pending.free_before);
            }
            seat.members.push(key.0);
            kinds = kinds.union(pending.kinds);
            is_current &= Some(pending.edition) == current;
            self.segments.push(Segment {
                edition: pending.edition,
                kinds: pending.kinds.bits(),
                is_double: pending.is_double,
                first_row: part.first_row,
                rows: part.rows,
                request_rows: pending.rows,
                input_offset: pending.input.offset(),
                results_offset: pending.results.offset(),
            });
        }
        let kind = kinds.costliest().unwrap_or(Kind::Value);
        seat.patience = Some(patience);
        seat.batch = Some(Running {
            dispatched: now,
            rows: dispatch.rows,
            queue: dispatch.queue,
            kind,
            is_first: dispatch.losses == 0,
            is_current,
        });
        seat.sequence = Ring::next_sequence(seat.sequence);
        // A seat without a life is not free, so nothing is dispatched to it.
        if let Some(life) = &seat.life {
            let sleeps = life.ring.submit(seat.sequence, &self.segments, terms);
            out.wakes.extend(sleeps.then(|| Arc::clone(life)));
        }
        let left = self.why_it_left(dispatch, keys.len(), event);
        self.counters.dispatched(slot, kind, dispatch.rows, left);
    }

    fn why_it_left(&self, dispatch: &Dispatch, requests: usize, event: Event) -> Left {
        let is_full = dispatch.rows >= self.batch_rows_max || requests >= BATCH_REQUESTS_MAX;
        match event {
            _ if dispatch.losses > 0 => Left::Replay,
            _ if is_full => Left::Full,
            Event::Arrived { .. } | Event::ArrivedAhead { .. } | Event::ArrivedBehind { .. } => {
                Left::Arrival
            }
            Event::WorkerReady { .. }
            | Event::BatchDone { .. }
            | Event::WorkerHeld { .. }
            | Event::WorkerLost { .. } => Left::Worker,
            Event::Timer if self.gathering.is_releasing() => Left::Arrival,
            Event::Withdrawn { .. } | Event::Timer => Left::Due,
        }
    }

    /// How many threads may compute the batch that is dispatched now, and for how long its worker
    /// looks for the next one.
    fn terms_of_one(&self) -> (usize, Duration) {
        let busy = self.scheduler.busy_workers();
        let threads = cpus::threads_for_one(self.cpus, busy, self.threads);
        let of_all = self.seats.len() * self.threads;
        (threads, cpus::spin_time(self.cpus, of_all))
    }
}
