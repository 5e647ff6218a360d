//! What the scheduler decides goes to a worker, and is counted: why now, and how long it was waited
//! on purpose.

use std::sync::Arc;
use std::time::Duration;

use albacore_batching::{Dispatch, Event, Nanos, RequestKey};

use super::super::cpus;
use super::super::queues::slot_of;
use super::super::{DispatchReason, Kind, KindSet};
use super::{Outbox, RunningBatch, State};
use crate::limits::BATCH_REQUESTS_MAX;
use crate::ring::{Ring, Segment};

/// For how long some worker was free, since the start.
#[derive(Debug, Default)]
pub(super) struct IdleTime {
    before: Nanos,
    since: Option<Nanos>,
}

impl IdleTime {
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
        let terms = self.compute_limits();
        let free = self.free.until(now);
        let hang_timer = self.hang_timer(dispatch.queue, dispatch.rows, dispatch.losses, now);
        let Some(worker_slot) = self.worker_slots.get_mut(worker) else {
            return;
        };
        worker_slot.members.clear();
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
            worker_slot.members.push(key.0);
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
        worker_slot.hang_timer = Some(hang_timer);
        worker_slot.batch = Some(RunningBatch {
            dispatched: now,
            rows: dispatch.rows,
            queue: dispatch.queue,
            kind,
            is_first: dispatch.losses == 0,
            is_current,
        });
        worker_slot.sequence = Ring::next_sequence(worker_slot.sequence);
        // A worker_slot without a incarnation is not free, so nothing is dispatched to it.
        if let Some(incarnation) = &worker_slot.incarnation {
            let sleeps = incarnation
                .ring
                .submit(worker_slot.sequence, &self.segments, terms);
            out.wakes.extend(sleeps.then(|| Arc::clone(incarnation)));
        }
        let left = self.dispatch_reason(dispatch, keys.len(), event);
        self.counters.dispatched(slot, kind, dispatch.rows, left);
    }

    fn dispatch_reason(
        &self,
        dispatch: &Dispatch,
        requests: usize,
        event: Event,
    ) -> DispatchReason {
        let is_full = dispatch.rows >= self.batch_rows_max || requests >= BATCH_REQUESTS_MAX;
        match event {
            _ if dispatch.losses > 0 => DispatchReason::Replay,
            _ if is_full => DispatchReason::Full,
            Event::Arrived { .. } | Event::ArrivedAhead { .. } | Event::ArrivedBehind { .. } => {
                DispatchReason::Arrival
            }
            Event::WorkerReady { .. }
            | Event::BatchDone { .. }
            | Event::WorkerHeld { .. }
            | Event::WorkerLost { .. } => DispatchReason::Worker,
            Event::Timer if self.coalescer.is_flushing() => DispatchReason::Arrival,
            Event::Withdrawn { .. } | Event::Timer => DispatchReason::Due,
        }
    }

    /// How many threads may compute the batch that is dispatched now, and for how long its worker
    /// looks for the next one.
    fn compute_limits(&self) -> (usize, Duration) {
        let busy = self.scheduler.busy_workers();
        let threads = cpus::threads_for_one(self.cpus, busy, self.threads);
        let of_all = self.worker_slots.len() * self.threads;
        (threads, cpus::spin_time(self.cpus, of_all))
    }
}
