//! How requests come, in parts of at most a batch, and how they go before they are answered.
//!
//! Of requests that wait the one with the earliest deadline runs first. A request of high priority
//! runs as if it had arrived up to half of its objective earlier, but never so much that it could
//! not be in time behind what waits: it would count as late, and wait for all others. One of low
//! priority waits behind all that can be in time, and as everything that is late gets its turn.

use albacore_batching::{Ahead, Event, Nanos, QueueIndex, RequestKey};

use super::{Outbox, Pending, RequestPart, State};
use crate::Priority;
use crate::limits::HEAD_START;
use crate::queues::queue_of;

/// A client that gives up at its own deadline may do so a little before it by this clock.
const CLOCK_GRAIN: Nanos = Nanos(1_000_000);

/// What of the requests that wait runs before one of this priority.
pub(in super::super) fn ahead_of(priority: Priority) -> Ahead {
    match priority {
        Priority::High | Priority::Normal => Ahead::InTime,
        Priority::Low => Ahead::All,
    }
}

/// How one request is told to the scheduler.
#[derive(Clone, Copy)]
enum QueuePosition {
    Within(Option<Nanos>),
    Ahead(Nanos),
    Behind,
}

impl State {
    /// Queues a request; its id and number of parts, which name it to [`State::withdraw`].
    pub(in super::super) fn submit(
        &mut self,
        pending: Pending,
        now: Nanos,
        out: &mut Outbox,
    ) -> (u64, u64) {
        let id = self.next_key;
        let (model, rows) = (pending.model, pending.rows);
        let queue = queue_of(model, pending.kinds);
        let order = self.queue_position(queue, &pending, now);
        let parts = rows.div_ceil(self.batch_rows_max);
        self.next_key += parts as u64;
        self.counters.submitted(model, rows);
        let free_before = self.free.until(now);
        let pending = Pending {
            parts,
            free_before,
            ..pending
        };
        self.pending.insert(id, pending);
        for (index, first_row) in (0..rows).step_by(self.batch_rows_max).enumerate() {
            let rows = self.batch_rows_max.min(rows - first_row);
            let key = RequestKey(id + index as u64);
            let part = RequestPart {
                request: id,
                first_row,
                rows,
                is_running: false,
            };
            self.parts.insert(key.0, part);
            let event = match order {
                QueuePosition::Within(within) => Event::Arrived {
                    queue,
                    key,
                    rows,
                    within,
                },
                QueuePosition::Ahead(head_start) => Event::ArrivedAhead {
                    queue,
                    key,
                    rows,
                    head_start,
                },
                QueuePosition::Behind => Event::ArrivedBehind { queue, key, rows },
            };
            self.arrive(event, (queue, rows), (now, out));
        }
        (id, parts as u64)
    }

    fn queue_position(&self, queue: QueueIndex, pending: &Pending, now: Nanos) -> QueuePosition {
        match pending.priority {
            Priority::Normal => QueuePosition::Within(pending.within),
            Priority::Low => QueuePosition::Behind,
            Priority::High => {
                let profile = self.scheduler.profile(queue);
                let Some(objective) = profile.objective.filter(|_| profile.has_deadlines()) else {
                    return QueuePosition::Ahead(HEAD_START);
                };
                let time = pending
                    .within
                    .map_or(objective, |within| within.min(objective));
                let after = ahead_of(pending.priority);
                let needed = self
                    .scheduler
                    .needed((queue, pending.rows), after, time, now);
                let time = Nanos(time.0 / 2).max(needed.min(time));
                QueuePosition::Ahead(objective.saturating_sub(time))
            }
        }
    }

    /// The client of a request went away.
    pub(in super::super) fn withdraw(
        &mut self,
        (id, parts): (u64, u64),
        now: Nanos,
        out: &mut Outbox,
    ) {
        let Some(pending) = self.pending.get_mut(&id) else {
            return;
        };
        pending.is_wanted = false;
        let queue = queue_of(pending.model, pending.kinds);
        let waited = now
            .saturating_sub(pending.submitted)
            .saturating_add(CLOCK_GRAIN);
        let is_late = pending.within.is_some_and(|within| waited >= within);
        self.counters.abandoned(pending.model, is_late, now);
        for key in id..id + parts {
            self.step(
                Event::Withdrawn {
                    queue,
                    key: RequestKey(key),
                },
                now,
                out,
            );
            // What runs keeps its memory until the worker is done with it or dead.
            if self.parts.get(&key).is_some_and(|part| !part.is_running) {
                self.end_part(key, None, now, out);
            }
        }
    }
}
