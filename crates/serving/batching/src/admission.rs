//! Admission control without a lock, on any thread: whether a request could be answered in time
//! behind running batches and waiting requests of its queue, and whether its rows fit.
//!
//! **Problem.** Each request must pass admission, but the scheduler's state is owned by one thread
//! at a time. Admission must neither wait for it nor admit more than can be in time because several
//! threads decide concurrently.
//!
//! **Approach.** After each step the scheduler publishes the numbers that admission needs; they are
//! read one by one ([`QueueAdmission`]). Rows are counted when they are reserved, by the thread
//! that admits them, so the next thread sees them. A request is judged by the waiting requests of
//! its own queue, on the queue's share of the workers; of other queues only running batches count.
//! If nothing waits and a worker is free, every request is admitted: the known costs may be wrong,
//! and only batches correct them.
//!
//! **Bounds.** The rows of all queues never exceed their bound, and those of a group never exceed
//! its share of it, except for a request that arrives when its group has no rows. A thread decides
//! by the rows that it read before it adds its own: with n threads at most n - 1 requests more are
//! admitted than a single thread would have admitted. Published values are as old as the last step
//! of the scheduler, and a reader may see one value from before a step and another from after it;
//! rates and shares are as old as [`crate::Scheduler::refresh`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::deadlines::AtomicCost;
use crate::{Nanos, Profile};

/// The waiting requests that run before a request that arrives now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsAhead {
    /// Requests that can be in time.
    InTime,
    All,
}

/// The rows exceed the queue's bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{queued_rows} of {rows_max} rows are queued: {rows} more do not fit")]
pub struct QueueFull {
    /// Number of rows requested.
    pub rows: usize,
    /// Rows reserved or waiting.
    pub queued_rows: usize,
    pub rows_max: usize,
}

/// An optional time.
#[derive(Debug)]
struct AtomicTime(AtomicU64);

impl AtomicTime {
    const NONE: u64 = u64::MAX;

    const fn new() -> Self {
        Self(AtomicU64::new(Self::NONE))
    }

    fn get(&self) -> Option<Nanos> {
        match self.0.load(Ordering::Relaxed) {
            Self::NONE => None,
            nanos => Some(Nanos(nanos)),
        }
    }

    fn set(&self, time: Option<Nanos>) {
        let nanos = time.map_or(Self::NONE, |time| time.0);
        self.0.store(nanos, Ordering::Relaxed);
    }
}

/// State that all queues share: the workers, and the bound of all rows.
#[derive(Debug)]
pub(crate) struct SharedAdmission {
    present: AtomicUsize,
    idle: AtomicUsize,
    /// Expected completion time of the first of the running batches.
    next_end: AtomicTime,
    /// Rows reserved or waiting.
    rows: AtomicUsize,
    rows_max: AtomicUsize,
}

impl SharedAdmission {
    pub(crate) fn new(rows_max: usize) -> Self {
        Self {
            present: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            next_end: AtomicTime::new(),
            rows: AtomicUsize::new(0),
            rows_max: AtomicUsize::new(rows_max),
        }
    }

    pub(crate) fn publish(&self, present: usize, idle: usize, next_end: Option<Nanos>) {
        self.present.store(present, Ordering::Relaxed);
        self.idle.store(idle, Ordering::Relaxed);
        self.next_end.set(next_end);
    }

    pub(crate) fn set_rows_max(&self, rows_max: usize) {
        self.rows_max.store(rows_max, Ordering::Relaxed);
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows.load(Ordering::Relaxed)
    }

    /// Expected time until a worker is free.
    fn until_free(&self, now: Nanos) -> Nanos {
        match self.idle.load(Ordering::Relaxed) {
            0 => {
                let end = self.next_end.get();
                end.map_or(Nanos(0), |end| end.saturating_sub(now))
            }
            _ => Nanos(0),
        }
    }
}

/// State that the queues of one group (the kinds of output of a model) share.
#[derive(Debug)]
pub(crate) struct GroupAdmission {
    rows: AtomicUsize,
    /// The share of the group in the bound of rows.
    rows_max: AtomicUsize,
    /// The shortest objective of the active queues of other groups.
    shortest_other_objective: AtomicTime,
}

impl GroupAdmission {
    pub(crate) fn new() -> Self {
        Self {
            rows: AtomicUsize::new(0),
            rows_max: AtomicUsize::new(usize::MAX),
            shortest_other_objective: AtomicTime::new(),
        }
    }

    pub(crate) fn publish(&self, rows_max: usize, shortest_other_objective: Option<Nanos>) {
        self.rows_max.store(rows_max, Ordering::Relaxed);
        self.shortest_other_objective.set(shortest_other_objective);
    }
}

/// Running batches of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunningBatches {
    pub(crate) count: u64,
    /// Mean of the expected completion times.
    pub(crate) end: Nanos,
}

/// Share of a queue, computed by [`crate::shares`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueShare {
    pub(crate) rate: f64,
    pub(crate) has_rivals: bool,
    /// It uses less than its share of the workers, so it has priority.
    pub(crate) has_priority: bool,
    pub(crate) is_active: bool,
}

/// The values of one queue that admission reads, and the rows admitted to it.
#[derive(Debug)]
#[repr(align(128))]
pub struct QueueAdmission {
    workers: Arc<SharedAdmission>,
    pub(crate) group: Arc<GroupAdmission>,
    /// Reserved or waiting.
    rows: AtomicUsize,
    /// Of those, rows of late requests, behind all that can be in time.
    rows_late: AtomicUsize,
    /// The earliest deadline of the requests that can be in time.
    first_due: AtomicTime,
    running: AtomicU64,
    running_end: AtomicU64,
    cost: AtomicCost,
    mean_cost: AtomicCost,
    objective: AtomicTime,
    /// Bits of an `f64`.
    rate: AtomicU64,
    has_rivals: AtomicUsize,
    has_priority: AtomicUsize,
    is_active: AtomicUsize,
    /// Time of the last request for it.
    last_request: AtomicTime,
}

/// Resolution of `last_request`: a time is stored only if the stored one is older than this.
const LAST_REQUEST_RESOLUTION: Nanos = Nanos(1_000_000);

impl QueueAdmission {
    pub(crate) fn new(workers: &Arc<SharedAdmission>, group: Arc<GroupAdmission>) -> Self {
        Self {
            workers: Arc::clone(workers),
            group,
            rows: AtomicUsize::new(0),
            rows_late: AtomicUsize::new(0),
            first_due: AtomicTime::new(),
            running: AtomicU64::new(0),
            running_end: AtomicU64::new(0),
            cost: AtomicCost::default(),
            mean_cost: AtomicCost::default(),
            objective: AtomicTime::new(),
            rate: AtomicU64::new(1.0_f64.to_bits()),
            has_rivals: AtomicUsize::new(0),
            has_priority: AtomicUsize::new(0),
            is_active: AtomicUsize::new(0),
            last_request: AtomicTime::new(),
        }
    }

    pub(crate) fn set_profile(&self, profile: &Profile) {
        self.cost.set(profile.cost);
        self.mean_cost.set(profile.mean_cost);
        self.objective.set(profile.objective);
    }

    pub(crate) fn set_share(&self, share: QueueShare) {
        self.rate.store(share.rate.to_bits(), Ordering::Relaxed);
        let flag = |to: &AtomicUsize, is: bool| to.store(is.into(), Ordering::Relaxed);
        flag(&self.has_rivals, share.has_rivals);
        flag(&self.has_priority, share.has_priority);
        flag(&self.is_active, share.is_active);
    }

    pub(crate) fn publish(&self, late: usize, first_due: Option<Nanos>, running: RunningBatches) {
        self.rows_late.store(late, Ordering::Relaxed);
        self.first_due.set(first_due);
        self.running.store(running.count, Ordering::Relaxed);
        self.running_end.store(running.end.0, Ordering::Relaxed);
    }

    /// Costs and objective of the queue.
    #[must_use]
    pub fn profile(&self) -> Profile {
        Profile {
            cost: self.cost.get(),
            mean_cost: self.mean_cost.get(),
            objective: self.objective.get(),
        }
    }

    /// Expected service time of a batch of `rows`; `None` if the costs are not known.
    #[must_use]
    pub fn cost_of(&self, rows: u64) -> Option<Nanos> {
        let is_set = |flag: &AtomicUsize| flag.load(Ordering::Relaxed) != 0;
        // During a flood of other requests, the safe cost of a row, which includes preempted
        // batches, may be close to the objective: a queue with priority would be rejected because
        // of the flood after all.
        let mean = match is_set(&self.has_rivals) && is_set(&self.has_priority) {
            true => self.mean_cost.get(),
            false => None,
        };
        Some(mean.or_else(|| self.cost.get())?.of(rows))
    }

    /// Records a request for the queue, admitted or not: for some seconds from the next
    /// [`crate::Scheduler::refresh`] on, the batches of other queues leave it room.
    pub fn record_request(&self, now: Nanos) {
        let age = self.last_request.get().map(|at| now.saturating_sub(at));
        if age.is_none_or(|age| age > LAST_REQUEST_RESOLUTION) {
            self.last_request.set(Some(now));
        }
    }

    /// Returns and clears the time of the last request.
    pub(crate) fn take_last_request(&self) -> Option<Nanos> {
        let last_request = self.last_request.get();
        if last_request.is_some() {
            self.last_request.set(None);
        }
        last_request
    }

    /// Resets it because another model uses the queue now.
    pub(crate) fn reset(&self) {
        self.last_request.set(None);
    }

    /// Whether the queue got requests in the last seconds.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed) != 0
    }

    /// The shortest objective of the active queues, excluding this one and its siblings.
    #[must_use]
    pub fn shortest_other_objective(&self) -> Option<Nanos> {
        self.group.shortest_other_objective.get()
    }

    /// Rows of the queue that are reserved or waiting.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows.load(Ordering::Relaxed)
    }

    /// Rows of all queues that are reserved or waiting.
    #[must_use]
    pub fn all_rows(&self) -> usize {
        self.workers.rows()
    }

    /// Reserves rows that arrive later. A group has at least its share of the bound.
    ///
    /// # Errors
    /// They would exceed the bound or that share; nothing is reserved in that case.
    pub fn reserve(&self, rows: usize) -> Result<(), QueueFull> {
        let (group, all) = (&self.group, &self.workers);
        let full = |queued_rows, rows_max| QueueFull {
            rows,
            queued_rows,
            rows_max,
        };
        // A group without rows admits a request larger than its share, too.
        let own_max = group.rows_max.load(Ordering::Relaxed);
        add(&group.rows, rows, |held, sum| held == 0 || sum <= own_max)
            .map_err(|held| full(held, own_max))?;
        let rows_max = all.rows_max.load(Ordering::Relaxed);
        add(&all.rows, rows, |_, sum| sum <= rows_max).map_err(|held| {
            subtract(&group.rows, rows);
            full(held, rows_max)
        })?;
        self.rows.fetch_add(rows, Ordering::Relaxed);
        Ok(())
    }

    /// Releases reserved or waiting rows.
    pub fn release(&self, rows: usize) {
        for counter in [&self.rows, &self.group.rows, &self.workers.rows] {
            subtract(counter, rows);
        }
    }

    /// Whether `rows` could be answered within `time` from now on.
    ///
    /// # Errors
    /// They could not; contains how much sooner the workers would have to be free.
    pub fn admit(
        &self,
        rows: usize,
        ahead: RowsAhead,
        time: Nanos,
        now: Nanos,
    ) -> Result<(), Nanos> {
        check(
            self.expected_reply_time(rows, self.rows(), ahead, time, now),
            time,
        )
    }

    /// Expected time to answer `rows` behind those of the `waiting` rows of the queue that run
    /// before them, given by [`RowsAhead`] and the deadline `now + time`. 0 if the costs are not
    /// known, or if the rows would run at once.
    pub(crate) fn expected_reply_time(
        &self,
        rows: usize,
        waiting: usize,
        ahead: RowsAhead,
        time: Nanos,
        now: Nanos,
    ) -> Nanos {
        if self.cost.get().is_none() {
            return Nanos(0);
        }
        if waiting == 0 && self.workers.idle.load(Ordering::Relaxed) > 0 {
            return Nanos(0);
        }
        let due = now.saturating_add(time);
        let before = self.rows_before(waiting, ahead, due);
        self.time_for(before, rows as u64, now)
    }

    /// The number of waiting rows that run before a request with the deadline `due`: none if the
    /// first of them has a later deadline.
    fn rows_before(&self, waiting: usize, ahead: RowsAhead, due: Nanos) -> u64 {
        let in_time = || waiting.saturating_sub(self.rows_late.load(Ordering::Relaxed));
        let rows = match ahead {
            RowsAhead::All => waiting,
            RowsAhead::InTime if self.first_due.get().is_some_and(|first| first > due) => 0,
            RowsAhead::InTime => in_time(),
        };
        rows as u64
    }

    /// Expected time until `rows` more rows are done behind `before` waiting ones.
    ///
    /// A worker has to be free, and the share of the workers that the queue can count on has to
    /// finish its running and waiting requests. Requests of other queues wait for their own share,
    /// and do not count.
    fn time_for(&self, before: u64, rows: u64, now: Nanos) -> Nanos {
        let of = |rows: u64| match rows {
            0 => Nanos(0),
            _ => self.cost_of(rows).unwrap_or(Nanos(0)),
        };
        let (waiting, last) = (of(before), of(rows));
        let workers = self.workers.present.load(Ordering::Relaxed).max(1) as u64;
        let running = self.running_time(now);
        let without_rivals =
            Nanos(running.saturating_add(waiting).0 / workers).saturating_add(last);
        if self.has_rivals.load(Ordering::Relaxed) == 0 {
            return without_rivals;
        }
        // Waiting requests run in one batch with this one, if the queue is within its share; the
        // long-term use of its share is computed from mean costs.
        let in_one_batch = Nanos(of(before + rows).0 / workers).max(last);
        let mean = self.mean_cost.get().filter(|_| before > 0);
        let mean = mean.map_or(Nanos(0), |mean| mean.of(before));
        let rate = f64::from_bits(self.rate.load(Ordering::Relaxed));
        let by_share = (mean.0 as f64 / rate) as u64 / workers;
        let by_share = Nanos(by_share).saturating_add(last);
        let free = self.workers.until_free(now);
        let behind_others = free.saturating_add(in_one_batch.max(by_share));
        behind_others.max(Nanos(running.0 / workers).saturating_add(by_share))
    }

    /// Expected remaining service time of its running batches, in total.
    fn running_time(&self, now: Nanos) -> Nanos {
        let left = Nanos(self.running_end.load(Ordering::Relaxed)).saturating_sub(now);
        Nanos(left.0.saturating_mul(self.running.load(Ordering::Relaxed)))
    }

    /// Expected time until a request of zero cost that is due within `time` would run.
    fn needed_early(&self, time: Nanos, now: Nanos) -> Nanos {
        let waiting = self.rows();
        if waiting == 0 && self.workers.idle.load(Ordering::Relaxed) > 0 {
            return Nanos(0);
        }
        match self.cost.get() {
            None => self.workers.until_free(now),
            Some(_) => {
                let due = now.saturating_add(time);
                let before = self.rows_before(waiting, RowsAhead::InTime, due);
                self.time_for(before, 0, now)
            }
        }
    }
}

/// Whether a request of zero cost for one of these queues could be answered within `time` from now
/// on. Queues without recent requests are ignored, unless all are.
///
/// # Errors
/// It could not; contains how much sooner the workers would have to be free.
pub fn admit_early<'a>(
    queues: impl Iterator<Item = &'a QueueAdmission>,
    time: Nanos,
    now: Nanos,
) -> Result<(), Nanos> {
    let active = queues.filter(|queue| queue.is_active());
    let needed = active.map(|queue| queue.needed_early(time, now)).min();
    check(needed.unwrap_or(Nanos(0)), time)
}

/// Compares the needed with the available time; the error is the difference.
fn check(needed: Nanos, time: Nanos) -> Result<(), Nanos> {
    match needed.saturating_sub(time) {
        Nanos(0) => Ok(()),
        excess => Err(excess),
    }
}

/// Adds to a counter if `is_allowed` accepts its old and new value.
///
/// # Errors
/// It does not; contains the value of the counter.
fn add(
    counter: &AtomicUsize,
    more: usize,
    is_allowed: impl Fn(usize, usize) -> bool,
) -> Result<usize, usize> {
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
        held.checked_add(more).filter(|&sum| is_allowed(held, sum))
    })
}

fn subtract(counter: &AtomicUsize, less: usize) {
    // Never fails: the closure always returns a value.
    let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
        Some(held.saturating_sub(less))
    });
}

#[cfg(test)]
mod tests;
