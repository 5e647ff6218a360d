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
        let within = request.terms.remaining(objective, now);
        let position = match request.terms.priority {
            Priority::Normal => Position::ByDeadline(within),
            Priority::Low => Position::Behind,
            Priority::High => Position::Ahead(self.head_start(queue, request, within, now)),
        };
        let part_rows_max = self.batch_rows_max(queue);
        self.counters.submitted(model, rows);
        let bytes = request.input.len() + request.results.len();
        self.front_shares.record(queue, 0, bytes, now);
        pending.idle_before = self.idle_time.until(request.submitted);
        (pending.objective, pending.within) = (objective, within);
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
        within: Option<Nanos>,
        now: Nanos,
    ) -> Nanos {
        let profile = self.scheduler.profile(queue);
        let Some(objective) = profile.objective.filter(|_| profile.has_deadlines()) else {
            return HEAD_START;
        };
        let within = within.unwrap_or(objective).min(objective);
        let ahead = RequestTerms::ahead(request.terms.priority);
        let needed = self
            .scheduler
            .needed(queue, request.rows, ahead, within, now);
        let within = Nanos(within.0 / 2).max(needed.min(within));
        objective.saturating_sub(within)
    }

    /// Withdraws the request whose first part has this key, because its client went away.
    pub(crate) fn withdraw(&mut self, first_key: u64, now: Nanos, out: &mut Outbox) {
        let Some(pending) = self.requests.get_mut(first_key) else {
            return;
        };
        pending.is_wanted = false;
        let (parts, within, request) = (pending.parts as u64, pending.within, &pending.request);
        let queue = queue_of(request.model, request.kinds);
        let waited = now
            .saturating_sub(request.submitted)
            .saturating_add(CLOCK_TOLERANCE);
        let is_late = within.is_some_and(|within| waited >= within);
        let kind = request.kinds.costliest();
        self.counters.abandoned(request.model, kind, is_late, now);
        for key in first_key..first_key + parts {
            let withdrawn = Event::Withdrawn {
                queue,
                key: RequestKey(key),
            };
            self.step(withdrawn, now, out);
            // A running part keeps its memory until the worker has finished it or exited.
            if self.requests.is_waiting(key) {
                self.end_part(key, PartEnd::Unwanted, out);
            }
        }
    }
}
