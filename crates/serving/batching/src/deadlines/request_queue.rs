//! One queue: its requests, its candidate batch, and the requests that are dropped.
//!
//! **Problem.** Requests are ordered by deadline, which is arrival order unless a request has less
//! time than the objective. Find the best batch that a worker could start at a given time, and the
//! time from which it should start.
//!
//! **Approach.** Deadlines increase along the queue, so a batch that meets the head's deadline
//! meets all, and whether a suffix meets its own head's deadline changes once: both are found by
//! division or by bisection. In the usual case all waiting requests fit, which costs one
//! multiplication.
//!
//! **Proof sketch.** A batch of b rows is in time if now + delay(b) + l(b) and free + l(b) are at
//! most the deadline of its first request; both increase with b. A candidate is a prefix of the
//! queue after drops, which only remove heads: so the order is preserved. Its window is not
//! inverted: exec is the later of the earliest start, which met the deadline, and frontrun, which
//! is before latest. (Under `Timeout` it may be inverted: that rule waits for its delay, even if
//! requests become late.)
//!
//! **Limits.** A request of several rows is never split. A lower objective can make requests late
//! that could have been served under the previous one.

use std::collections::VecDeque;

use super::cost::Cost;
use super::rules::{Delays, Release};
use crate::{Nanos, RequestKey};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueParams {
    /// Cost of a batch.
    pub cost: Cost,
    /// From arrival to deadline; [`Nanos::MAX`] for none: then nothing is deferred or dropped.
    pub objective: Nanos,
    /// When a batch is dispatched.
    pub release: Release,
    /// The oldest requests are dropped if they prevent a batch of this many rows from being in
    /// time; with 1, only those that cannot be in time even alone.
    pub target_rows: u64,
    /// Most rows of a batch; a larger request is a batch of its own.
    pub rows_max: u64,
    /// Most requests of a batch.
    pub requests_max: usize,
}

impl QueueParams {
    /// Rows of the batches that form under load: as many as take half of the objective, or the
    /// target of the release rule, if larger.
    #[must_use]
    pub fn rows_under_load(&self) -> u64 {
        let half = self.cost.rows_within(Nanos(self.objective.0 / 2));
        half.max(self.target_rows).clamp(1, self.rows_max.max(1))
    }
}

/// The batch that a queue offers to the assigner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub rows: u64,
    /// Latest time to choose a worker: `exec` minus the delay of the batch.
    pub wakes: Nanos,
    /// Start of the window.
    pub exec: Nanos,
    /// End of the window: on a worker that is free later, the batch is late.
    pub latest: Nanos,
}

/// A request of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadlineRequest {
    pub key: RequestKey,
    /// Start of its objective: its arrival, or earlier by the difference if it has less time than
    /// the objective.
    pub arrival: Nanos,
    pub rows: u32,
}

/// A dispatched batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DispatchedBatch {
    /// When its worker starts it.
    pub start: Nanos,
    /// Expected completion time.
    pub end: Nanos,
    pub rows: u64,
}

#[derive(Clone, Copy, Debug)]
struct QueuedRequest {
    request: DeadlineRequest,
    /// Rows that arrived in this queue before it.
    rows_before: u64,
}

/// The requests of one queue; independent of workers.
#[derive(Debug)]
pub struct RequestQueue {
    params: QueueParams,
    delays: Delays,
    /// `params.cost` with the delays added.
    delayed: Cost,
    entries: VecDeque<QueuedRequest>,
    /// Rows that arrived so far, without withdrawn ones.
    arrived_rows: u64,
    /// Requests of the current candidate.
    candidate_len: usize,
    /// Number of waiting requests with more than one row.
    multi_row: usize,
}

/// The earliest start of a batch.
#[derive(Clone, Copy)]
struct StartBound {
    now: Nanos,
    /// When the worker in question is free; 0 for any worker.
    free: Nanos,
}

impl RequestQueue {
    #[must_use]
    pub fn new(params: QueueParams, delays: Delays) -> Self {
        Self {
            params,
            delays,
            delayed: params.cost.plus(delays.data, delays.control),
            entries: VecDeque::new(),
            arrived_rows: 0,
            candidate_len: 0,
            multi_row: 0,
        }
    }

    /// Replaces the parameters; the candidate must be recomputed.
    pub fn set_params(&mut self, params: QueueParams) {
        self.params = params;
        self.delayed = params.cost.plus(self.delays.data, self.delays.control);
    }

    #[must_use]
    pub fn params(&self) -> &QueueParams {
        &self.params
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of waiting rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows_from(0)
    }

    /// Arrival time of the oldest waiting request.
    #[must_use]
    pub fn oldest(&self) -> Option<Nanos> {
        self.entries.front().map(|w| w.request.arrival)
    }

    /// Inserts a request behind those whose deadlines are no later; the candidate must be
    /// recomputed.
    pub fn push(&mut self, request: DeadlineRequest) {
        let is_before = |w: &QueuedRequest| w.request.arrival <= request.arrival;
        let index = match self.entries.back() {
            Some(last) if !is_before(last) => self.entries.partition_point(is_before),
            _ => self.entries.len(),
        };
        let rows_before = self
            .entries
            .get(index)
            .map_or(self.arrived_rows, |w| w.rows_before);
        let rows = u64::from(request.rows);
        self.entries.insert(
            index,
            QueuedRequest {
                request,
                rows_before,
            },
        );
        let behind = self.entries.range_mut(index + 1..);
        behind.for_each(|w| w.rows_before += rows);
        self.arrived_rows += rows;
        self.multi_row += usize::from(request.rows != 1);
    }

    /// Removes a request; returns whether it was waiting here. The candidate must be recomputed.
    pub fn withdraw(&mut self, key: RequestKey) -> bool {
        let found = self.entries.iter().position(|w| w.request.key == key);
        let Some(gone) = found.and_then(|index| {
            let gone = self.entries.remove(index)?;
            let rows = u64::from(gone.request.rows);
            self.entries
                .range_mut(index..)
                .for_each(|w| w.rows_before -= rows);
            Some(gone)
        }) else {
            return false;
        };
        self.arrived_rows -= u64::from(gone.request.rows);
        self.multi_row -= usize::from(gone.request.rows != 1);
        true
    }

    /// The best batch for the worker that is free first. Requests that cannot be in time are
    /// appended to `dropped`.
    pub fn candidate(
        &mut self,
        now: Nanos,
        dropped: &mut Vec<DeadlineRequest>,
    ) -> Option<Candidate> {
        let free = Nanos(0);
        self.update(StartBound { now, free }, dropped)
    }

    /// Dispatches at most `rows_max` rows, but at least one request, to a worker that is free at
    /// `free`: appends the batch to `requests`. Returns `None` if no request is left, or if the
    /// batch should wait; the worker stays free in that case.
    pub fn take_batch(
        &mut self,
        now: Nanos,
        free: Nanos,
        rows_max: u64,
        requests: &mut Vec<DeadlineRequest>,
        dropped: &mut Vec<DeadlineRequest>,
    ) -> Option<DispatchedBatch> {
        let mut candidate = self.update(StartBound { now, free }, dropped)?;
        let earliest = now.saturating_add(self.delays.of(candidate.rows)).max(free);
        if candidate.exec > earliest {
            return None;
        }
        if candidate.rows > rows_max {
            (self.candidate_len, candidate.rows) = self.prefix(rows_max);
        }
        requests.extend(self.entries.drain(..self.candidate_len).map(|w| w.request));
        if self.multi_row > 0 {
            self.multi_row = self.entries.iter().filter(|w| w.request.rows != 1).count();
        }
        Some(DispatchedBatch {
            start: candidate.exec,
            end: candidate
                .exec
                .saturating_add(self.params.cost.of(candidate.rows)),
            rows: candidate.rows,
        })
    }

    fn deadline(&self, waiting: &QueuedRequest) -> Nanos {
        waiting
            .request
            .arrival
            .saturating_add(self.params.objective)
    }

    /// Whether a batch of this many rows could meet the deadline.
    fn meets(&self, rows: u64, deadline: Nanos, bound: StartBound) -> bool {
        let by_now = bound.now.saturating_add(self.delayed.of(rows));
        let by_worker = bound.free.saturating_add(self.params.cost.of(rows));
        by_now <= deadline && by_worker <= deadline
    }

    /// Maximum number of rows of a batch that meets the deadline.
    fn rows_by(&self, deadline: Nanos, bound: StartBound) -> u64 {
        let by_now = deadline.saturating_sub(bound.now);
        let rows = self.delayed.rows_within(by_now);
        if bound.free <= bound.now {
            return rows;
        }
        let by_worker = deadline.saturating_sub(bound.free);
        rows.min(self.params.cost.rows_within(by_worker))
    }

    fn update(
        &mut self,
        bound: StartBound,
        dropped: &mut Vec<DeadlineRequest>,
    ) -> Option<Candidate> {
        let head = self.deadline(self.entries.front()?);
        let mut waiting = self.rows_from(0);
        let is_within =
            waiting <= self.params.rows_max && self.entries.len() <= self.params.requests_max;
        let fits = is_within && self.meets(waiting, head, bound);
        let (requests, rows) = if fits {
            (self.entries.len(), waiting)
        } else {
            self.drop_infeasible(bound, dropped);
            waiting = self.rows_from(0);
            let deadline = self.deadline(self.entries.front()?);
            let rows_max = self.rows_by(deadline, bound).min(self.params.rows_max);
            self.prefix(rows_max)
        };
        self.candidate_len = requests;
        Some(self.window(rows, rows < waiting, bound))
    }

    /// Whether the candidate has the maximum batch size.
    fn is_full(&self, rows: u64) -> bool {
        let next = self.entries.get(self.candidate_len);
        let left = self.params.rows_max.saturating_sub(rows);
        left == 0
            || self.candidate_len >= self.params.requests_max
            || next.is_some_and(|next| u64::from(next.request.rows) > left)
    }

    fn window(&self, rows: u64, is_cut: bool, bound: StartBound) -> Candidate {
        let head = self.entries.front();
        let arrival = head.map_or(bound.now, |w| w.request.arrival);
        let deadline = arrival.saturating_add(self.params.objective);
        let delay = self.delays.of(rows);
        let earliest = bound.now.saturating_add(delay).max(bound.free);
        let release_at = match self.params.release {
            _ if self.is_full(rows) => earliest,
            Release::Timeout { delay } => arrival.saturating_add(delay),
            Release::Deferred { early, window } if !is_cut && deadline < Nanos::MAX => {
                let frontrun = deadline.saturating_sub(self.params.cost.of(rows + 1));
                let opens = frontrun.saturating_sub(early);
                window.map_or(opens, |window| opens.min(arrival.saturating_add(window)))
            }
            Release::Deferred { .. } | Release::Eager => earliest,
        };
        let exec = release_at.max(earliest);
        Candidate {
            rows,
            wakes: exec.saturating_sub(delay),
            exec,
            latest: deadline.saturating_sub(self.params.cost.of(rows)),
        }
    }

    /// Drops heads that could not be in time in a batch of the target size.
    fn drop_infeasible(&mut self, bound: StartBound, dropped: &mut Vec<DeadlineRequest>) {
        let Some(head) = self.entries.front() else {
            return;
        };
        let mut aim = self.params.target_rows.min(self.params.rows_max).max(1);
        // No batch is larger than the target, so a head that meets it is kept in any case.
        if aim > 1 && !self.meets(aim, self.deadline(head), bound) {
            let is_late = |w: &QueuedRequest| {
                !self.meets(self.arrived_rows - w.rows_before, self.deadline(w), bound)
            };
            let first = self.entries.partition_point(is_late);
            aim = aim.min(self.rows_from(first)).max(1);
        }
        while let Some(head) = self.entries.front() {
            let rows = aim.max(u64::from(head.request.rows));
            if self.meets(rows, self.deadline(head), bound) {
                return;
            }
            dropped.push(head.request);
            self.multi_row -= usize::from(head.request.rows != 1);
            self.entries.pop_front();
        }
    }

    /// Rows of the request at `index` and all behind it.
    fn rows_from(&self, index: usize) -> u64 {
        self.entries
            .get(index)
            .map_or(0, |w| self.arrived_rows - w.rows_before)
    }

    /// The longest prefix of at most `rows_max` rows, at least one request; returns its requests
    /// and rows.
    fn prefix(&self, rows_max: u64) -> (usize, u64) {
        let Some(head) = self.entries.front() else {
            return (0, 0);
        };
        let end = |w: &QueuedRequest| w.rows_before + u64::from(w.request.rows) - head.rows_before;
        let requests = if self.multi_row == 0 {
            usize::try_from(rows_max).map_or(self.entries.len(), |n| n.min(self.entries.len()))
        } else {
            self.entries.partition_point(|w| end(w) <= rows_max)
        };
        let requests = requests.min(self.params.requests_max).max(1);
        let rows = self.rows_from(0) - self.rows_from(requests);
        (requests, rows)
    }
}
