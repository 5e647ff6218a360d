//! Admission control: whether a request can be answered in time behind the waiting ones. Takes no
//! lock.
//!
//! A request's time is divided between the front, which reads it and writes its reply, and the
//! workers. The front's part is estimated from the time that the request waited to be read and from
//! the time to write replies ([`ReplyLatency`]); the rest must be sufficient for the queued work
//! that the scheduler has published ([`QueueAdmission`]). If the front takes more than its part
//! ([`FrontTimeLimit`]), requests are rejected even if a worker is idle: those of models that use
//! more than their share of the front's time (front shares of [`crate::state`]).
//!
//! **Bounds.** The overshoot of rows and work is bounded by [`QueueAdmission`]. Other values
//! published by the state (shares, pace of errors, workers) are at most [`ADMISSION_PERIOD`] old,
//! or as old as the lock of the state has been held: a request that finds older values refreshes
//! them, unless the lock is held. Counters of admission reach metrics with the same delay, or when
//! they are read.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use albacore_batching::{Nanos, QueueAdmission, RowsAhead, admit_early};

use crate::LoopIndex;
use crate::front_time_limit::FrontTimeLimit;
use crate::limits::{
    ADMISSION_PERIOD, ERRORS_AT_ONCE, HOLD_MAX, RETRY_AFTER_MAX, RETRY_AFTER_MIN, SLOTS_MAX,
    WAITED_MIN,
};
use crate::min_cost::MinCost;
use crate::queues::{CLASSES, QUEUES_MAX, class_of, queue_of, queues_of};
use crate::reply_latency::ReplyLatency;
use crate::{Kind, KindSet, Priority, Refusal};

/// Timing requirements of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestTerms {
    pub(crate) arrival: Nanos,
    /// Deadline set by the request itself, if any.
    pub(crate) deadline: Option<Nanos>,
    pub(crate) priority: Priority,
}

impl RequestTerms {
    /// Time limit from arrival to reply.
    fn time_limit(&self, objective: Option<Nanos>) -> Option<Nanos> {
        let own = self
            .deadline
            .map(|deadline| deadline.saturating_sub(self.arrival));
        [objective, own].into_iter().flatten().min()
    }

    /// Time left until its own deadline or, if it has waited for at least [`WAITED_MIN`], until the
    /// objective. `None`: the whole objective.
    pub(crate) fn remaining(&self, objective: Option<Nanos>, now: Nanos) -> Option<Nanos> {
        let waited = now.saturating_sub(self.arrival);
        let has_waited = waited.0 >= WAITED_MIN.as_nanos() as u64;
        let objective = objective.filter(|_| has_waited);
        let left = objective.map(|objective| objective.saturating_sub(waited));
        let own = self.deadline.map(|deadline| deadline.saturating_sub(now));
        [left, own].into_iter().flatten().min()
    }

    fn is_expired(&self, now: Nanos) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// The queued requests that run before one of this priority.
    pub(crate) fn ahead(priority: Priority) -> RowsAhead {
        match priority {
            Priority::High | Priority::Normal => RowsAhead::InTime,
            Priority::Low => RowsAhead::All,
        }
    }
}

/// A request of known size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmissionRequest {
    /// The slot of its model.
    pub(crate) slot: usize,
    pub(crate) rows: usize,
    pub(crate) kinds: KindSet,
    pub(crate) terms: RequestTerms,
}

/// Time limits used to judge a request.
#[derive(Clone, Copy, Debug)]
struct TimeLimits {
    /// From its arrival to its reply.
    request: Nanos,
    /// Time that the front may take: for a queue that exceeds its share of the front, a fraction of
    /// the shortest objective, its own or that of another model. `None` if there is no crowd, and
    /// for a queue within its share: it is not rejected because of the front's work for others.
    front: Option<Nanos>,
}

/// Output kinds, plus unread bodies.
const SHED_KINDS: usize = Kind::ALL.len() + 1;

/// Values that admission reads and counts per model. Aligned, so that two models share no cache
/// line.
#[derive(Debug)]
#[repr(align(128))]
struct SlotAdmission {
    /// Requests that were read, by output class.
    requests: [AtomicU64; CLASSES],
    /// Requests with unknown outputs.
    unread: AtomicU64,
    /// Rejections by kind, the last for unread bodies.
    shed: [AtomicU64; SHED_KINDS],
    /// A bit for each class within its share of the front's time, and [`MAY_BE_WITHIN_SHARE`].
    within_share: AtomicUsize,
    /// Earliest time of the next error, and the time between two errors; 0 if they are not held.
    next_error: AtomicU64,
    error_period: AtomicU64,
    /// Minimum cost of its requests.
    min_cost: MinCost,
}

/// A request with unknown outputs may be within its share of the front.
const MAY_BE_WITHIN_SHARE: usize = 1 << CLASSES;

impl SlotAdmission {
    fn new() -> Self {
        Self {
            requests: [const { AtomicU64::new(0) }; CLASSES],
            unread: AtomicU64::new(0),
            shed: [const { AtomicU64::new(0) }; SHED_KINDS],
            within_share: AtomicUsize::new(MAY_BE_WITHIN_SHARE),
            next_error: AtomicU64::new(0),
            error_period: AtomicU64::new(0),
            min_cost: MinCost::default(),
        }
    }
}

/// Counts of a model since they were last taken.
#[derive(Debug)]
pub(crate) struct AdmissionCounts {
    pub(crate) requests: [u64; CLASSES],
    pub(crate) unread: u64,
    /// Rejections by kind; `None` for unread bodies.
    pub(crate) shed: Vec<(Option<Kind>, u64)>,
}

impl AdmissionCounts {
    /// Number of rejections and other errors.
    pub(crate) fn errors(&self) -> u64 {
        // A request with an unread body is counted only if it fails.
        let read = self.shed.iter().filter(|(kind, _)| kind.is_some());
        self.unread + read.map(|&(_, count)| count).sum::<u64>()
    }
}

/// Values that the state publishes about a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrontShare {
    /// Whether each class uses less than its share of the front's time.
    pub(crate) within_share: [bool; CLASSES],
    pub(crate) may_be_within_share: bool,
    /// Time between two errors; `None` if they are not held.
    pub(crate) error_period: Option<Nanos>,
}

/// Values that the state publishes about the workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkersShape {
    pub(crate) ready: usize,
    pub(crate) is_crash_looping: bool,
    /// Time of one row on one worker.
    pub(crate) nanos_per_row: u64,
}

#[derive(Debug)]
pub(crate) struct Admission {
    /// Admission of the queues of slots in use.
    queues: Box<[OnceLock<Arc<QueueAdmission>>]>,
    slots: Box<[SlotAdmission]>,
    /// Fraction of a request's time that the front may take.
    pub(crate) front_time_limit: FrontTimeLimit,
    is_closed: AtomicBool,
    is_crash_looping: AtomicBool,
    ready: AtomicUsize,
    nanos_per_row: AtomicU64,
    /// Time of the last refresh by the state.
    refreshed: AtomicU64,
}

impl Admission {
    pub(crate) fn new(loops: usize) -> Self {
        Self {
            queues: (0..QUEUES_MAX).map(|_| OnceLock::new()).collect(),
            slots: (0..SLOTS_MAX).map(|_| SlotAdmission::new()).collect(),
            front_time_limit: FrontTimeLimit::new(loops),
            is_closed: AtomicBool::new(false),
            is_crash_looping: AtomicBool::new(false),
            ready: AtomicUsize::new(0),
            nanos_per_row: AtomicU64::new(0),
            refreshed: AtomicU64::new(0),
        }
    }

    // ---- for the state ----

    /// Adds the admission of a queue of a slot.
    pub(crate) fn add_queue(&self, queue: usize, queue_admission: &Arc<QueueAdmission>) {
        self.queues[queue].get_or_init(|| Arc::clone(queue_admission));
    }

    /// Resets a slot because another model uses it now.
    pub(crate) fn start_slot(&self, slot: usize) {
        let slot_admission = &self.slots[slot];
        self.take_counts(slot);
        slot_admission
            .within_share
            .store(MAY_BE_WITHIN_SHARE, Ordering::Relaxed);
        slot_admission.next_error.store(0, Ordering::Relaxed);
        slot_admission.min_cost.reset();
    }

    /// Rejects every request from now on.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Whether the state should publish its shares again.
    pub(crate) fn is_due(&self, now: Nanos) -> bool {
        let at = Nanos(self.refreshed.load(Ordering::Relaxed));
        now.saturating_sub(at).0 >= ADMISSION_PERIOD.as_nanos() as u64
    }

    pub(crate) fn set_refreshed(&self, now: Nanos) {
        self.refreshed.store(now.0, Ordering::Relaxed);
    }

    pub(crate) fn publish_workers(&self, workers: WorkersShape) {
        self.ready.store(workers.ready, Ordering::Relaxed);
        self.is_crash_looping
            .store(workers.is_crash_looping, Ordering::Relaxed);
        self.nanos_per_row
            .store(workers.nanos_per_row, Ordering::Relaxed);
    }

    pub(crate) fn publish_share(&self, slot: usize, share: &FrontShare) {
        let slot_admission = &self.slots[slot];
        let classes = share.within_share.iter().enumerate();
        let bits: usize = classes.map(|(class, &is)| usize::from(is) << class).sum();
        let may_be = if share.may_be_within_share {
            MAY_BE_WITHIN_SHARE
        } else {
            0
        };
        slot_admission
            .within_share
            .store(bits | may_be, Ordering::Relaxed);
        let period = share.error_period.map_or(0, |period| period.0.max(1));
        slot_admission.error_period.store(period, Ordering::Relaxed);
    }

    pub(crate) fn take_counts(&self, slot: usize) -> AdmissionCounts {
        let slot_admission = &self.slots[slot];
        // Most counters are 0; reading first avoids exclusive access to their cache line.
        let take = |counter: &AtomicU64| match counter.load(Ordering::Relaxed) {
            0 => 0,
            _ => counter.swap(0, Ordering::Relaxed),
        };
        let shed = slot_admission.shed.iter().enumerate();
        let shed = shed.map(|(index, shed)| (Kind::ALL.get(index).copied(), take(shed)));
        AdmissionCounts {
            requests: slot_admission.requests.each_ref().map(take),
            unread: take(&slot_admission.unread),
            shed: shed.filter(|&(_, count)| count > 0).collect(),
        }
    }

    // ---- for requests ----

    fn queue(&self, slot: usize, kinds: KindSet) -> Option<&QueueAdmission> {
        let queue_admission = self.queues.get(queue_of(slot, kinds).0)?;
        queue_admission.get().map(Arc::as_ref)
    }

    fn queues(&self, slot: usize) -> impl Iterator<Item = &QueueAdmission> + Clone {
        queues_of(slot).filter_map(|queue| self.queues.get(queue.0)?.get().map(Arc::as_ref))
    }

    fn is_within_share(&self, slot: usize, bit: usize) -> bool {
        self.slots[slot].within_share.load(Ordering::Relaxed) & bit != 0
    }

    /// Whether requests for these outputs use less than their share of the front's time.
    pub(crate) fn is_within_front_share(&self, slot: usize, kinds: KindSet) -> bool {
        self.is_within_share(slot, 1 << class_of(queue_of(slot, kinds)))
    }

    /// Counts a rejected request; `kind` is `None` if its body was not read.
    fn count_shed(&self, slot: usize, kind: Option<Kind>) {
        let index = kind.map_or(SHED_KINDS - 1, |kind| kind as usize);
        self.slots[slot].shed[index].fetch_add(1, Ordering::Relaxed);
    }

    /// Admits a request of which only the model is known, assuming the minimum cost of recent
    /// requests. Rejecting before the body is read saves most of the cost of a rejection.
    ///
    /// # Errors
    /// [`Refusal::Late`]; it is counted.
    pub(crate) fn admit_early(
        &self,
        event_loop: LoopIndex,
        slot: usize,
        terms: &RequestTerms,
        reply_latency: &ReplyLatency,
        now: Nanos,
    ) -> Result<(), Refusal> {
        // The outputs are not known yet: the longest objective is used.
        let objectives = self.queues(slot).map(|queue| queue.profile().objective);
        let Some(time_limit) = terms.time_limit(objectives.max().flatten()) else {
            return Ok(());
        };
        // An expired request is rejected as such when it reserves its rows.
        if terms.is_expired(now) {
            return Ok(());
        }
        let shortest_other = self
            .queues(slot)
            .next()
            .and_then(QueueAdmission::shortest_other_objective);
        let is_within_share = self.is_within_share(slot, MAY_BE_WITHIN_SHARE);
        let limits = self.time_limits(time_limit, shortest_other, is_within_share, reply_latency);
        let admitted = self
            .worker_budget(event_loop, terms, &limits, reply_latency, now)
            .and_then(|budget| {
                let min_cost = self.slots[slot].min_cost.estimate();
                admit_early(self.queues(slot), budget.saturating_sub(min_cost), now)
            });
        admitted.map_err(|excess| {
            self.slots[slot].unread.fetch_add(1, Ordering::Relaxed);
            self.count_shed(slot, None);
            Refusal::late(excess, time_limit)
        })
    }

    /// Admits a request and reserves its rows in the queue; returns the deadline of its reply.
    ///
    /// # Errors
    /// A [`Refusal`]; it is counted, and nothing is reserved.
    pub(crate) fn admit(
        &self,
        event_loop: LoopIndex,
        request: &AdmissionRequest,
        reply_latency: &ReplyLatency,
        now: Nanos,
    ) -> Result<Option<Nanos>, Refusal> {
        let Some(queue) = self.queue(request.slot, request.kinds) else {
            // A slot has its queues before its model can be found.
            return Err(Refusal::Draining);
        };
        let class = class_of(queue_of(request.slot, request.kinds));
        self.slots[request.slot].requests[class].fetch_add(1, Ordering::Relaxed);
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Refusal::Draining);
        }
        queue.record_request(now);
        let admitted = self
            .check_workers(queue)
            .and_then(|()| check_deadline(&request.terms, now))
            .and_then(|()| self.check_time(event_loop, request, queue, reply_latency, now))
            .and_then(|due| self.reserve_rows(request, queue).map(|()| due));
        admitted.inspect_err(|_| self.count_shed(request.slot, request.kinds.costliest()))
    }

    /// Releases the rows of an admitted request that was not submitted.
    pub(crate) fn unreserve(&self, slot: usize, rows: usize, kinds: KindSet) {
        if let Some(queue) = self.queue(slot, kinds) {
            queue.release(rows);
        }
    }

    /// Rejects an admitted request because memory is exhausted.
    pub(crate) fn refuse_memory(&self, slot: usize, rows: usize, kinds: KindSet) -> Refusal {
        self.unreserve(slot, rows, kinds);
        self.count_shed(slot, kinds.costliest());
        let queued = self.queue(slot, kinds).map_or(0, QueueAdmission::all_rows);
        Refusal::MemoryFull {
            retry_after: self.retry_after(queued),
            rows,
        }
    }

    /// Records a request of this model that ends without a result; returns how long to hold its
    /// reply. `is_counted`: it was rejected, and counted, by admission.
    pub(crate) fn error_reply_delay(&self, slot: usize, is_counted: bool, now: Nanos) -> Duration {
        let slot_admission = &self.slots[slot];
        if !is_counted {
            slot_admission.unread.fetch_add(1, Ordering::Relaxed);
        }
        let period = slot_admission.error_period.load(Ordering::Relaxed);
        if period == 0 {
            return Duration::ZERO;
        }
        let earliest = now.0.saturating_sub(period.saturating_mul(ERRORS_AT_ONCE));
        let latest = now.saturating_add(Nanos::from(HOLD_MAX)).0;
        let leaves = |next: u64| next.max(earliest).saturating_add(period).min(latest);
        let order = Ordering::Relaxed;
        let next = &slot_admission.next_error;
        let before = next.fetch_update(order, order, |next| Some(leaves(next)));
        let (Ok(before) | Err(before)) = before;
        Duration::from_nanos(leaves(before).saturating_sub(now.0))
    }

    /// The part of a request's time that the front leaves to the workers.
    ///
    /// # Errors
    /// The front takes more than its part; contains the excess.
    fn worker_budget(
        &self,
        event_loop: LoopIndex,
        terms: &RequestTerms,
        limits: &TimeLimits,
        reply_latency: &ReplyLatency,
        now: Nanos,
    ) -> Result<Nanos, Nanos> {
        let waited = now.saturating_sub(terms.arrival);
        let front_time = waited.saturating_add(reply_latency.expected(now));
        let Some(front_limit) = limits.front else {
            return Ok(limits.request.saturating_sub(waited));
        };
        match front_time.saturating_sub(front_limit) {
            Nanos(0) => Ok(limits.request.saturating_sub(front_time)),
            excess => {
                self.front_time_limit.record_refusal(event_loop);
                Err(excess)
            }
        }
    }

    /// Estimated time of the workers for the queued rows.
    fn retry_after(&self, rows: usize) -> Duration {
        let nanos = self.nanos_per_row.load(Ordering::Relaxed);
        let nanos = nanos.saturating_mul(rows as u64);
        let ready = self.ready.load(Ordering::Relaxed).max(1);
        Duration::from_nanos(nanos / ready as u64).clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX)
    }

    fn check_workers(&self, queue: &QueueAdmission) -> Result<(), Refusal> {
        match self.is_crash_looping.load(Ordering::Relaxed) {
            true => Err(Refusal::NoWorkers {
                retry_after: self.retry_after(queue.all_rows()),
            }),
            false => Ok(()),
        }
    }

    /// Checks that the request can be answered within its time behind queued ones; returns its
    /// deadline.
    fn check_time(
        &self,
        event_loop: LoopIndex,
        request: &AdmissionRequest,
        queue: &QueueAdmission,
        reply_latency: &ReplyLatency,
        now: Nanos,
    ) -> Result<Option<Nanos>, Refusal> {
        let AdmissionRequest {
            slot,
            rows,
            kinds,
            ref terms,
        } = *request;
        let objective = queue.profile().objective;
        if let Some(cost) = queue.cost_of(rows as u64) {
            self.slots[slot].min_cost.record(cost);
        }
        let Some(time_limit) = terms.time_limit(objective) else {
            return Ok(None);
        };
        let ahead = RequestTerms::ahead(terms.priority);
        let is_within_share = self.is_within_front_share(slot, kinds);
        let shortest_other = queue.shortest_other_objective();
        let limits = self.time_limits(time_limit, shortest_other, is_within_share, reply_latency);
        let admitted = self
            .worker_budget(event_loop, terms, &limits, reply_latency, now)
            .and_then(|budget| queue.admit(rows, ahead, budget, now));
        // The front is judged by objectives: a client that sets very short deadlines must not make
        // it reject requests of others.
        let due = objective.unwrap_or(time_limit);
        match admitted {
            Ok(()) => Ok(Some(terms.arrival.saturating_add(due))),
            Err(excess) => {
                if is_within_share && due == time_limit {
                    let waited = now.saturating_sub(terms.arrival);
                    self.front_time_limit
                        .record(event_loop, true, excess, waited);
                }
                Err(Refusal::late(excess, time_limit))
            }
        }
    }

    /// `is_within_share`: the request may be within its share of the front's time.
    fn time_limits(
        &self,
        request: Nanos,
        shortest_other: Option<Nanos>,
        is_within_share: bool,
        reply_latency: &ReplyLatency,
    ) -> TimeLimits {
        let is_judged = reply_latency.is_crowded() && !is_within_share;
        let shortest = request.min(shortest_other.unwrap_or(request));
        TimeLimits {
            request,
            front: is_judged.then(|| self.front_time_limit.of(shortest)),
        }
    }

    fn reserve_rows(
        &self,
        request: &AdmissionRequest,
        queue: &QueueAdmission,
    ) -> Result<(), Refusal> {
        let reserved = queue.reserve(request.rows);
        reserved.map_err(|full| Refusal::QueueFull {
            retry_after: self.retry_after(queue.all_rows()),
            queued_rows: full.queued_rows,
            rows_max: full.rows_max,
        })
    }
}

fn check_deadline(terms: &RequestTerms, now: Nanos) -> Result<(), Refusal> {
    match terms.is_expired(now) {
        true => Err(Refusal::Expired),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
