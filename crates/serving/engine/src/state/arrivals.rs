//! How requests enter the queues, in parts of at most a batch, and how they are withdrawn.
//!
//! Of the requests that wait, the one with the earliest deadline runs first. A request of high
//! priority runs as if it had arrived up to half of its objective earlier, but never so much
//! earlier that it would be late behind what is queued: a late request waits behind all others. One
//! of low priority waits behind all that can be in time; like late ones it gets its turn.

use albacore_batching::{Arrival, Event, Nanos, Position, QueueIndex, RequestKey};

use super::requests::{NewRequest, RequestPart};
use super::{Outbox, RequestId, RequestTerms, State};
use crate::Priority;
use crate::limits::HEAD_START;
use crate::queues::queue_of;

/// A client that gives up at its own deadline may do so a little before it by this clock.
const CLOCK_TOLERANCE: Nanos = Nanos(1_000_000);

impl State {
    /// Queues a request.
    pub(crate) fn submit(
        &mut self,
        request: NewRequest,
        now: Nanos,
        out: &mut Outbox,
    ) -> RequestId {
        let (model, rows) = (request.model, request.rows);
        let queue = queue_of(model, request.kinds);
        let position = self.queue_position(queue, &request, now);
        let part_rows_max = self.dispatcher.batch_rows_max;
        self.counters.submitted(model, rows);
        let bytes = request.input.as_slice().len() + request.results.as_slice().len();
        self.front_shares.record(queue, 0, bytes, now);
        let idle_before = self.idle_time.until(now);
        let id = self
            .requests
            .insert(request, part_rows_max, now, idle_before);
        for (index, first_row) in (0..rows).step_by(part_rows_max).enumerate() {
            let rows = part_rows_max.min(rows - first_row);
            let key = RequestKey(id.first_key + index as u64);
            let part = RequestPart {
                request: id.first_key,
                first_row,
                rows,
                is_running: false,
            };
            self.requests.insert_part(key.0, part);
            let arrival = Arrival {
                queue,
                key,
                rows,
                position,
            };
            self.enqueue(arrival, now, out);
        }
        id
    }

    fn queue_position(&self, queue: QueueIndex, request: &NewRequest, now: Nanos) -> Position {
        match request.priority {
            Priority::Normal => Position::ByDeadline(request.within),
            Priority::Low => Position::Behind,
            Priority::High => Position::Ahead(self.head_start(queue, request, now)),
        }
    }

    /// By how much a request of high priority overtakes.
    fn head_start(&self, queue: QueueIndex, request: &NewRequest, now: Nanos) -> Nanos {
        let profile = self.scheduler.profile(queue);
        let Some(objective) = profile.objective.filter(|_| profile.has_deadlines()) else {
            return HEAD_START;
        };
        let within = request.within.unwrap_or(objective).min(objective);
        let ahead = RequestTerms::ahead(request.priority);
        let needed = self
            .scheduler
            .needed(queue, request.rows, ahead, within, now);
        let within = Nanos(within.0 / 2).max(needed.min(within));
        objective.saturating_sub(within)
    }

    /// The client of a request went away.
    pub(crate) fn withdraw(&mut self, id: RequestId, now: Nanos, out: &mut Outbox) {
        let Some(pending) = self.requests.get_mut(id) else {
            return;
        };
        pending.is_wanted = false;
        let (submitted, request) = (pending.submitted, &pending.request);
        let queue = queue_of(request.model, request.kinds);
        let waited = now
            .saturating_sub(submitted)
            .saturating_add(CLOCK_TOLERANCE);
        let is_late = request.within.is_some_and(|within| waited >= within);
        let kind = request.kinds.costliest();
        self.counters.abandoned(request.model, kind, is_late, now);
        for key in id.first_key..id.first_key + id.parts {
            let withdrawn = Event::Withdrawn {
                queue,
                key: RequestKey(key),
            };
            self.step(withdrawn, now, out);
            // A running part keeps its memory until the worker has finished or ended.
            if self.requests.is_waiting(key) {
                self.end_part(key, None, now, out);
            }
        }
    }
}
