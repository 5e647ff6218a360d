//! Submitted requests that the scheduler does not know yet, in one list for each event loop.
//!
//! **Problem.** With thousands of small requests a second, handing each to the scheduler and to an
//! idle worker at once costs more than computing it: a lock that all event loops share, a system
//! call and a wake for the batch, and a notification of its end.
//!
//! **Approach.** An event loop serves all connections that are readable, then sleeps. Small
//! requests that arrived meanwhile are scheduled together when it is about to sleep
//! ([`crate::FlushHandle`]), so a lone request does not wait. While no worker is idle, any request
//! waits so. Larger requests are scheduled at once: handing them out one by one divides their work
//! among the workers. Every thread that changes the state empties all lists first.

use albacore_batching::{Nanos, QueueIndex};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::queues::QUEUES_MAX;
use super::state::{NewRequest, Pending, PendingBox};
use super::timed_lock::{TimedGuard, TimedLock};
use crate::LoopIndex;
use crate::limits::{COALESCE_DELAY_MAX, COALESCED_COMPUTE_MAX, COALESCED_REQUESTS_MAX};

/// The weight of the newest batch in the time of a row: one part in so many.
const NEWEST: u64 = 8;

/// Keys of requests differ in their loop: its index begins at this bit.
const LOOP_SHIFT: u32 = 48;

/// The lists of all event loops, and what decides whether a request waits in one.
#[derive(Debug)]
pub(super) struct Inboxes {
    loops: Box<[LoopInbox]>,
    /// Each loop flushes before it sleeps.
    is_enabled: AtomicBool,
    /// Idle workers after the last change of the state.
    idle_workers: AtomicUsize,
    /// Compute time of a row by queue, nanoseconds; 0 where it is not known.
    row_nanos: Box<[AtomicU64]>,
}

/// Aligned, so that the locks of two loops share no cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct LoopInbox {
    inbox: TimedLock<Inbox>,
    /// The inbox has requests; readable without its lock.
    has_requests: AtomicBool,
}

#[derive(Debug, Default)]
struct Inbox {
    requests: Vec<PendingBox>,
    /// Expected compute time of the requests, nanoseconds.
    compute: u64,
    since: Nanos,
    /// Rows that were submitted: each row has a key, so that any division into parts has keys.
    rows: u64,
}

/// A request that is in an inbox.
#[derive(Clone, Copy, Debug)]
pub(super) struct Submitted {
    /// The key of its first row.
    pub(super) first_key: u64,
    /// The state must be updated now.
    pub(super) must_flush: bool,
}

impl Inboxes {
    pub(super) fn new(loops: usize) -> Self {
        Self {
            loops: (0..loops).map(|_| LoopInbox::default()).collect(),
            is_enabled: AtomicBool::new(false),
            idle_workers: AtomicUsize::new(0),
            row_nanos: (0..QUEUES_MAX).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(super) fn event_loops(&self) -> usize {
        self.loops.len()
    }

    /// From now on each loop calls [`crate::FlushHandle::flush`] before it sleeps.
    pub(super) fn enable(&self) {
        self.is_enabled.store(true, Ordering::Relaxed);
    }

    fn inbox(&self, event_loop: LoopIndex) -> TimedGuard<'_, Inbox> {
        self.loops[event_loop.0].inbox.lock()
    }

    /// For how long the locks of all lists were held.
    pub(super) fn held(&self) -> Nanos {
        let held = self.loops.iter().map(|event_loop| event_loop.inbox.held());
        held.fold(Nanos(0), Nanos::saturating_add)
    }

    /// Adds a request of `queue`.
    pub(super) fn submit(
        &self,
        event_loop: LoopIndex,
        queue: QueueIndex,
        request: NewRequest,
        now: Nanos,
    ) -> Submitted {
        let row = self.row_nanos(queue);
        let compute = row.saturating_mul(request.rows as u64);
        let has_idle = self.has_idle_workers();
        let mut pending = Pending::new(request);
        let mut inbox = self.inbox(event_loop);
        if inbox.requests.is_empty() {
            (inbox.since, inbox.compute) = (now, 0);
        }
        let first_key = (event_loop.0 as u64) << LOOP_SHIFT | inbox.rows;
        pending.request.first_key = first_key;
        inbox.rows += pending.request.rows as u64;
        inbox.compute = inbox.compute.saturating_add(compute);
        inbox.requests.push(pending);
        let is_small = row > 0 && inbox.compute <= COALESCED_COMPUTE_MAX.as_nanos() as u64;
        let waited = now.saturating_sub(inbox.since);
        let may_wait = self.is_enabled.load(Ordering::Relaxed)
            && (is_small || !has_idle)
            && inbox.requests.len() < COALESCED_REQUESTS_MAX
            && waited.0 < COALESCE_DELAY_MAX.as_nanos() as u64;
        self.loops[event_loop.0]
            .has_requests
            .store(true, Ordering::Release);
        Submitted {
            first_key,
            must_flush: !may_wait,
        }
    }

    /// Whether requests of this loop wait.
    pub(super) fn has_requests(&self, event_loop: LoopIndex) -> bool {
        let event_loop = &self.loops[event_loop.0];
        event_loop.has_requests.load(Ordering::Acquire)
    }

    /// Moves the requests of all loops into `requests`.
    pub(super) fn drain_into(&self, requests: &mut Vec<PendingBox>) {
        for index in 0..self.loops.len() {
            if self.has_requests(LoopIndex(index)) {
                let mut inbox = self.inbox(LoopIndex(index));
                let event_loop = &self.loops[index];
                event_loop.has_requests.store(false, Ordering::Relaxed);
                requests.append(&mut inbox.requests);
            }
        }
    }

    /// Whether a worker was idle after the last change of the state.
    pub(super) fn has_idle_workers(&self) -> bool {
        self.idle_workers.load(Ordering::Relaxed) > 0
    }

    /// Publishes how many workers are idle.
    pub(super) fn set_idle_workers(&self, workers: usize) {
        self.idle_workers.store(workers, Ordering::Relaxed);
    }

    /// A batch of `rows` rows was computed in so much time. Called under the lock of the state.
    pub(super) fn record(&self, queue: QueueIndex, rows: usize, compute_nanos: u64) {
        let row = compute_nanos / (rows as u64).max(1) + 1;
        let row_nanos = &self.row_nanos[queue.0];
        let known = row_nanos.load(Ordering::Relaxed);
        let next = match known {
            0 => row,
            known => (known * (NEWEST - 1) + row).div_ceil(NEWEST),
        };
        row_nanos.store(next, Ordering::Relaxed);
    }

    /// Forgets the times of queues: another model has them now.
    pub(super) fn forget(&self, queues: impl Iterator<Item = QueueIndex>) {
        for queue in queues {
            self.row_nanos[queue.0].store(0, Ordering::Relaxed);
        }
    }

    /// Compute time of a row, nanoseconds; 0 if it is not known.
    pub(super) fn row_nanos(&self, queue: QueueIndex) -> u64 {
        self.row_nanos[queue.0].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use albacore_os::SharedMemory;
    use albacore_worker::EditionId;
    use tokio::sync::oneshot;

    use super::*;
    use crate::admission::RequestTerms;
    use crate::model::{Edition, Usage};
    use crate::{Kind, KindSet, ModelInfo, Priority};

    const QUEUE: QueueIndex = QueueIndex(3);

    pub(crate) fn request(rows: usize) -> NewRequest {
        let memory = SharedMemory::create("test", 4096).unwrap();
        let (input, results) = memory.map_extent().unwrap().split_at(64);
        NewRequest {
            model: 0,
            edition: Arc::new(Edition {
                id: EditionId(1),
                slot: 0,
                info: ModelInfo::default(),
                kernels: Vec::new(),
                image: Arc::new(crate::image::PlacedImage::on(None)),
                usage: Usage::default(),
            }),
            event_loop: LoopIndex(0),
            first_key: 0,
            submitted: Nanos(0),
            kinds: KindSet::only(Kind::Value),
            is_double: false,
            rows,
            input,
            results,
            reply: oneshot::channel().0,
            terms: RequestTerms {
                arrival: Nanos(0),
                deadline: None,
                priority: Priority::Normal,
            },
        }
    }

    fn must_flush(inboxes: &Inboxes, rows: usize, now: u64) -> bool {
        let submitted = inboxes.submit(LoopIndex(0), QUEUE, request(rows), Nanos(now));
        submitted.must_flush
    }

    fn drain(inboxes: &Inboxes) -> usize {
        let mut requests = Vec::new();
        inboxes.drain_into(&mut requests);
        requests.len()
    }

    #[test]
    fn only_requests_known_to_be_small_wait_while_a_worker_is_idle() {
        let inboxes = Inboxes::new(1);
        inboxes.set_idle_workers(1);
        inboxes.record(QUEUE, 10, 50_000);
        assert!(must_flush(&inboxes, 1, 0), "nobody flushes later");
        inboxes.enable();
        assert_eq!(drain(&inboxes), 1);
        assert!(!must_flush(&inboxes, 3, 0));
        assert!(must_flush(&inboxes, 1, 0), "more than 20 us in all");
        assert_eq!(drain(&inboxes), 2);
        inboxes.forget([QUEUE].into_iter());
        assert!(must_flush(&inboxes, 1, 0), "nothing is known");
        assert_eq!(drain(&inboxes), 1);
        inboxes.set_idle_workers(0);
        assert!(!must_flush(&inboxes, 1000, 0), "no worker could begin");
        let late = COALESCE_DELAY_MAX.as_nanos() as u64;
        assert!(must_flush(&inboxes, 1, late), "the first has waited");
    }

    #[test]
    fn the_number_of_requests_that_wait_is_bounded() {
        let inboxes = Inboxes::new(1);
        inboxes.enable();
        let flushes = (0..COALESCED_REQUESTS_MAX).map(|_| must_flush(&inboxes, 1, 0));
        let first = flushes.collect::<Vec<_>>().iter().position(|&flush| flush);
        assert_eq!(first, Some(COALESCED_REQUESTS_MAX - 1));
    }

    #[test]
    fn every_row_of_every_loop_has_a_key_of_its_own() {
        let inboxes = Inboxes::new(2);
        let submit = |event_loop, rows| {
            let submitted = inboxes.submit(LoopIndex(event_loop), QUEUE, request(rows), Nanos(0));
            submitted.first_key
        };
        let other = 1 << LOOP_SHIFT;
        let keys = [submit(0, 5), submit(1, 7), submit(0, 1), submit(1, 1)];
        assert_eq!(keys, [0, other, 5, other + 7]);
        assert!(inboxes.has_requests(LoopIndex(0)) && inboxes.has_requests(LoopIndex(1)));
        assert_eq!(drain(&inboxes), 4);
        assert!(!inboxes.has_requests(LoopIndex(1)));
    }
}
