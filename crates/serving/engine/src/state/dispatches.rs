//! Submits the batches decided by the scheduler to workers, and records the reason of each dispatch
//! and the deferral of its requests.

use std::sync::Arc;

use albacore_batching::{Dispatch, Event, Nanos, RequestKey};
use albacore_worker::{ComputeLimits, Ring, Segment};

use super::workers::RunningBatch;
use super::{Outbox, State};
use crate::LoopIndex;
use crate::cpus;
use crate::limits::BATCH_REQUESTS_MAX;
use crate::queues::slot_of;
use crate::{DispatchReason, Kind, KindSet};

/// Total time since the start in which at least one worker was idle.
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

    pub(super) fn set(&mut self, is_idle: bool, now: Nanos) {
        if is_idle != self.since.is_some() {
            self.before = self.until(now);
            self.since = is_idle.then_some(now);
        }
    }
}

/// Properties of the requests of a batch.
struct BatchContents {
    kinds: KindSet,
    /// Every request is for the model's current revision.
    is_current: bool,
    /// The event loop of its first request.
    event_loop: LoopIndex,
}

impl State {
    pub(super) fn dispatch(
        &mut self,
        dispatch: &Dispatch,
        keys: &[RequestKey],
        event: Event,
        now: Nanos,
        out: &mut Outbox,
    ) {
        let worker = dispatch.worker.position();
        let hang_timer = self.hang_timer(dispatch.queue, dispatch.rows, dispatch.hangs, now);
        if worker >= self.workers.slots.len() {
            return;
        }
        let slot = slot_of(dispatch.queue);
        let contents = self.fill_segments(worker, slot, keys, now);
        let limits = self.compute_limits(slot, contents.event_loop);
        let kind = contents.kinds.costliest().unwrap_or(Kind::Value);
        let worker_slot = &mut self.workers.slots[worker];
        worker_slot.hang_timer = Some(hang_timer);
        worker_slot.batch = Some(RunningBatch {
            dispatched: now,
            rows: dispatch.rows,
            queue: dispatch.queue,
            kind,
            is_first: dispatch.losses == 0,
            is_current: contents.is_current,
        });
        worker_slot.sequence = Ring::next_sequence(worker_slot.sequence);
        // A worker without an incarnation is not free, so nothing is dispatched to it.
        if let Some(incarnation) = &worker_slot.incarnation {
            let segments = &self.dispatcher.segments;
            let is_asleep = incarnation
                .ring
                .submit(worker_slot.sequence, segments, limits);
            out.wakes.extend(is_asleep.then(|| Arc::clone(incarnation)));
        }
        let reason = self.dispatch_reason(dispatch, keys.len(), event);
        self.counters
            .count_dispatch(slot, kind, dispatch.rows, reason);
    }

    /// Stores the parts of a batch as its worker's members and as segments for the ring.
    fn fill_segments(
        &mut self,
        worker: usize,
        slot: usize,
        keys: &[RequestKey],
        now: Nanos,
    ) -> BatchContents {
        let idle_time = self.idle_time.until(now);
        let current = self.catalog.current_of(slot).map(|revision| revision.id);
        let worker_slot = &mut self.workers.slots[worker];
        worker_slot.members.clear();
        self.dispatcher.segments.clear();
        let mut contents = BatchContents {
            kinds: KindSet::EMPTY,
            is_current: true,
            event_loop: LoopIndex::default(),
        };
        for key in keys {
            let Some((part, pending)) = self.requests.part_mut(key.0) else {
                continue;
            };
            part.is_running = true;
            if pending.first_dispatch.is_none() {
                pending.first_dispatch = Some(now);
                pending.deferred = idle_time.saturating_sub(pending.idle_before);
            }
            let request = &pending.request;
            if worker_slot.members.is_empty() {
                contents.event_loop = request.event_loop;
            }
            worker_slot.members.push(key.0);
            contents.kinds = contents.kinds.union(request.kinds);
            contents.is_current &= Some(request.revision.id) == current;
            self.dispatcher.segments.push(Segment {
                revision: request.revision.id,
                kinds: request.kinds.bits(),
                is_double: request.is_double,
                first_row: part.first_row,
                rows: part.rows,
                request_rows: request.rows,
                input_offset: request.input.offset(),
                results_offset: request.results.offset(),
            });
        }
        contents
    }

    fn dispatch_reason(
        &self,
        dispatch: &Dispatch,
        requests: usize,
        event: Event,
    ) -> DispatchReason {
        let is_full =
            dispatch.rows >= self.batch_rows_max(dispatch.queue) || requests >= BATCH_REQUESTS_MAX;
        match event {
            _ if dispatch.losses > 0 => DispatchReason::Replay,
            _ if is_full => DispatchReason::Full,
            Event::Arrived(_) => DispatchReason::Arrival,
            Event::WorkerReady { .. }
            | Event::BatchDone { .. }
            | Event::WorkerHeld { .. }
            | Event::WorkerLost { .. } => DispatchReason::Worker,
            Event::Timer if self.coalescer.is_flushing() => DispatchReason::Arrival,
            Event::Withdrawn { .. } | Event::Timer => DispatchReason::Due,
        }
    }

    /// The limits of a batch of this model that is dispatched now, from the number of busy workers
    /// and the threads that the model may use.
    fn compute_limits(&self, slot: usize, event_loop: LoopIndex) -> ComputeLimits {
        let (busy, pool) = (self.scheduler.busy_workers(), &self.workers);
        let worker_threads = pool.slots.len() * pool.threads;
        let event_loops = self.inboxes.event_loops();
        let spin = cpus::spin_time(pool.cpus, worker_threads, event_loops, self.pending());
        let own = self.batch_threads.get(slot).copied().flatten();
        let threads = own.map_or(pool.threads, |own| own.min(pool.threads));
        ComputeLimits {
            threads: cpus::threads_for_one(pool.cpus, busy, threads),
            spin,
            event_loop,
        }
    }
}
