//! Arrival of requests in the queues, in parts of at most one batch, and their withdrawal.
//!
//! Waiting requests are ordered by deadline. A request of high priority runs as if it had arrived
//! up to half of its objective earlier, but never so early that it would be late behind the queued
//! requests: a late request waits behind all others. A request of low priority waits behind all
//! requests that can be in time; like late requests, it is eventually overdue and runs.

use albacore_batching::{Arrival, Event, Nanos, Position, QueueIndex, RequestKey};

use super::requests::{NewRequest, PartEnd, PendingBox, RequestPart};
use super::{Outbox, State};
use crate::Priority;
use crate::admission::RequestTerms;
use crate::limits::HEAD_START;
use crate::queues::queue_of;

/// A client that gives up at its own deadline may do so slightly before it by this clock.
const CLOCK_TOLERANCE: Nanos = Nanos(1_000_000);

impl State {
    /// Queues a request.
    pub(super) fn submit(&mut self, mut pending: PendingBox, now: Nanos, out: &mut Outbox) {
        let request = &pending.request;
        let (model, rows, first_key) = (request.model, request.rows, request.first_key);
        let queue = queue_of(model, request.kinds);
        let objective = self.scheduler.profile(queue).objective;
        let time_left = request.terms.remaining(objective, now);
        let position = match request.terms.priority {
            Priority::Normal => Position::ByDeadline(time_left),
            Priority::Low => Position::Behind,
            Priority::High => Position::Ahead(self.head_start(queue, request, time_left, now)),
        };
        let part_rows_max = self.batch_rows_max(queue);
        self.counters.count_submission(model, rows);
        let bytes = request.input.len() + request.results.len();
        self.front_shares.record(queue, 0, bytes, now);
        pending.idle_before = self.idle_time.until(request.submitted);
        (pending.objective, pending.time_left) = (objective, time_left);
        let parts = (0..rows)
            .step_by(part_rows_max)
            .map(|first_row| RequestPart {
                first_row,
                rows: part_rows_max.min(rows - first_row),
                is_running: false,
            });
        let keys = (first_key..).map(RequestKey);
        let sizes = parts.clone().map(|part| part.rows);
        self.requests.insert(pending, parts);
        for (key, rows) in keys.zip(sizes) {
            let arrival = Arrival {
                queue,
                key,
                rows,
                position,
            };
            self.enqueue(arrival, now, out);
        }
    }

    /// Time by which a request of high priority overtakes.
    fn head_start(
        &self,
        queue: QueueIndex,
        request: &NewRequest,
        time_left: Option<Nanos>,
        now: Nanos,
    ) -> Nanos {
        let profile = self.scheduler.profile(queue);
        let Some(objective) = profile.objective.filter(|_| profile.has_deadlines()) else {
            return HEAD_START;
        };
        let time_left = time_left.unwrap_or(objective).min(objective);
        let ahead = RequestTerms::ahead(request.terms.priority);
        let needed = self
            .scheduler
            .expected_reply_time(queue, request.rows, ahead, time_left, now);
        let shortened = Nanos(time_left.0 / 2).max(needed.min(time_left));
        objective.saturating_sub(shortened)
    }

    /// Withdraws the request whose first part has this key, because its client went away.
    pub(crate) fn withdraw(&mut self, first_key: u64, now: Nanos, out: &mut Outbox) {
        let Some(pending) = self.requests.get_mut(first_key) else {
            return;
        };
        pending.has_client = false;
        let (parts, time_left, request) =
            (pending.parts as u64, pending.time_left, &pending.request);
        let queue = queue_of(request.model, request.kinds);
        let waited = now
            .saturating_sub(request.submitted)
            .saturating_add(CLOCK_TOLERANCE);
        let is_late = time_left.is_some_and(|time_left| waited >= time_left);
        let kind = request.kinds.costliest();
        self.counters
            .count_abandoned(request.model, kind, is_late, now);
        for key in first_key..first_key + parts {
            let withdrawn = Event::Withdrawn {
                queue,
                key: RequestKey(key),
            };
            self.step(withdrawn, now, out);
            // A running part keeps its memory until the worker has finished it or exited.
            if self.requests.is_waiting(key) {
                self.end_part(key, PartEnd::ClientGone, out);
            }
        }
    }
}
