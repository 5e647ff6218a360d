//! Inboxes: lists of submitted requests, one per event loop, that the scheduler has not received
//! yet.
//!
//! **Problem.** With thousands of small requests per second, passing each to the scheduler and to
//! an idle worker immediately costs more than computing it: a lock shared by all event loops, a
//! system call and a wakeup for the batch, and a notification of its completion.
//!
//! **Approach.** An event loop serves all readable connections, then sleeps. Small requests that
//! arrived in the meantime are scheduled together just before it sleeps ([`crate::FlushHandle`]),
//! so a lone request does not wait. While no worker is idle, requests of any size wait in this way.
//! Larger requests are scheduled immediately: dispatching them one by one distributes their work
//! over the workers. Every thread that changes the state drains all inboxes first.

use albacore_batching::{Nanos, QueueIndex};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::queues::QUEUES_MAX;
use super::state::{NewRequest, Pending, PendingBox};
use super::timed_lock::{TimedGuard, TimedLock};
use crate::LoopIndex;
use crate::limits::{COALESCE_DELAY_MAX, COALESCED_COMPUTE_MAX, COALESCED_REQUESTS_MAX};

/// Weight of the newest batch in the average time of a row: one part in this many.
const NEWEST: u64 = 8;

/// Request keys of different loops are disjoint: the loop index starts at this bit.
const LOOP_SHIFT: u32 = 48;

/// The inboxes of all event loops, and the data that decides whether a request waits in one.
#[derive(Debug)]
pub(super) struct Inboxes {
    loops: Box<[LoopInbox]>,
    /// Whether each loop flushes before it sleeps.
    is_enabled: AtomicBool,
    /// Idle workers after the last change of the state.
    idle_workers: AtomicUsize,
    /// Compute time of a row by queue, in nanoseconds; 0 if unknown.
    row_nanos: Box<[AtomicU64]>,
}

/// Aligned, so that the locks of two loops share no cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct LoopInbox {
    inbox: TimedLock<Inbox>,
    /// Whether the inbox has requests; readable without its lock.
    has_requests: AtomicBool,
}

#[derive(Debug, Default)]
struct Inbox {
    requests: Vec<PendingBox>,
    /// Expected compute time of the requests, nanoseconds.
    compute: u64,
    since: Nanos,
    /// Number of submitted rows: each row reserves a key, so that any division into parts has
    /// enough keys.
    rows: u64,
}

/// A request that was added to an inbox.
#[derive(Clone, Copy, Debug)]
pub(super) struct Submitted {
    /// The key of its first row.
    pub(super) first_key: u64,
    /// Whether the state must be updated now.
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

    /// From now on, each loop must call [`crate::FlushHandle::flush`] before it sleeps.
    pub(super) fn enable(&self) {
        self.is_enabled.store(true, Ordering::Relaxed);
    }

    fn inbox(&self, event_loop: LoopIndex) -> TimedGuard<'_, Inbox> {
        self.loops[event_loop.0].inbox.lock()
    }

    /// Total time for which the locks of all inboxes were held.
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

    /// Whether this loop has waiting requests.
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

    /// Publishes the number of idle workers.
    pub(super) fn set_idle_workers(&self, workers: usize) {
        self.idle_workers.store(workers, Ordering::Relaxed);
    }

    /// Records the compute time of a batch of `rows` rows. Called while the state is locked.
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

    /// Resets the times of queues because another model uses them now.
    pub(super) fn reset(&self, queues: impl Iterator<Item = QueueIndex>) {
        for queue in queues {
            self.row_nanos[queue.0].store(0, Ordering::Relaxed);
        }
    }

    /// Compute time of a row in nanoseconds; 0 if unknown.
    pub(super) fn row_nanos(&self, queue: QueueIndex) -> u64 {
        self.row_nanos[queue.0].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use albacore_os::SharedMemory;
    use albacore_worker::RevisionId;
    use tokio::sync::oneshot;

    use super::*;
    use crate::admission::RequestTerms;
    use crate::model::{ModelRevision, Usage};
    use crate::{Kind, KindSet, ModelInfo, Priority};

    const QUEUE: QueueIndex = QueueIndex(3);

    pub(crate) fn request(rows: usize) -> NewRequest {
        let memory = SharedMemory::create("test", 4096).unwrap();
        let (input, results) = memory.map_extent().unwrap().split_at(64);
        NewRequest {
            model: 0,
            revision: Arc::new(ModelRevision {
                id: RevisionId(1),
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
        inboxes.reset([QUEUE].into_iter());
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
