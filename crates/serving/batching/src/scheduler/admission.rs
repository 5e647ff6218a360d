//! Whether a request could be answered in time behind what runs and what waits in its queue.

use super::{Ahead, Scheduler, Worker, in_time, late};
use crate::{Nanos, QueueIndex};

impl Scheduler {
    /// Rows of a queue that run before a request of it that is due at `due`: none if the oldest of
    /// them is due later.
    fn rows_before(&self, queue: QueueIndex, ahead: Ahead, due: Option<Nanos>) -> u64 {
        let rows = |part| self.core.queue(part).map_or(0, |part| part.rows());
        match ahead {
            Ahead::InTime if self.is_due_later(queue.0, due) => 0,
            Ahead::InTime => rows(in_time(queue.0)),
            Ahead::All => rows(in_time(queue.0)) + rows(late(queue.0)),
        }
    }

    /// Expected time until `rows` more rows of a queue are done behind `before` waiting ones.
    ///
    /// A worker has to be free, and the share of the workers that the queue can count on has to
    /// finish what runs and waits of it. Requests of other queues wait for their own share, and do
    /// not count.
    pub(super) fn time_for(&self, queue: QueueIndex, before: u64, rows: u64, now: Nanos) -> Nanos {
        let profile = self.profile(queue);
        let Some(cost) = profile.cost else {
            return self.until_free(now);
        };
        let safe = |rows: u64| if rows > 0 { cost.of(rows) } else { Nanos(0) };
        let (waiting, last) = (safe(before), safe(rows));
        let workers = self.present_workers().max(1) as u64;
        let running = self.running(queue, now);
        let alone = Nanos(running.saturating_add(waiting).0 / workers).saturating_add(last);
        if self.shares.patience(queue.0).is_none() {
            return alone;
        }
        // What waits runs as one batch with it, if the queue is within its share; what it may use
        // in the long run is counted by mean costs.
        let together = Nanos(safe(before + rows).0 / workers).max(last);
        let mean = profile.mean_cost.filter(|_| before > 0);
        let mean = mean.map_or(Nanos(0), |mean| mean.of(before));
        let shared = (mean.0 as f64 / self.shares.rate(queue.0)) as u64 / workers;
        let shared = Nanos(shared).saturating_add(last);
        let free = self.until_free(now);
        let behind_others = free.saturating_add(together.max(shared));
        behind_others.max(Nanos(running.0 / workers).saturating_add(shared))
    }

    /// Expected time that is left of the running batches of a queue, in all.
    fn running(&self, queue: QueueIndex, now: Nanos) -> Nanos {
        let left = self.workers.iter().filter_map(|worker| match worker {
            Worker::Busy(batch) | Worker::Held(batch) if batch.queue == queue => {
                Some(batch.end.saturating_sub(now).0)
            }
            _ => None,
        });
        Nanos(left.fold(0, u64::saturating_add))
    }

    /// Expected time until a worker is free.
    fn until_free(&self, now: Nanos) -> Nanos {
        match self.idle {
            0 => self
                .next_end()
                .map_or(Nanos(0), |end| end.saturating_sub(now)),
            _ => Nanos(0),
        }
    }

    /// Whether every request of a queue is due later than this.
    fn is_due_later(&self, queue: usize, due: Option<Nanos>) -> bool {
        let part = self.core.queue(in_time(queue));
        let objective = self.profiles[queue].objective;
        let first = part.and_then(|part| part.oldest()).zip(objective);
        first
            .zip(due)
            .is_some_and(|((oldest, objective), due)| oldest.saturating_add(objective) > due)
    }

    /// Expected time to answer `rows` rows that arrive now and run `after` requests of queues whose
    /// oldest is due within `time`. 0 if their costs are not known, or if they would run at once.
    #[must_use]
    pub fn needed(
        &self,
        queue: QueueIndex,
        rows: usize,
        after: Ahead,
        time: Nanos,
        now: Nanos,
    ) -> Nanos {
        if self.profile(queue).cost.is_none() || self.runs_at_once(queue) {
            return Nanos(0);
        }
        let due = Some(now.saturating_add(time));
        let before = self.rows_before(queue, after, due);
        self.time_for(queue, before, rows as u64, now)
    }

    /// Whether a request without any cost for one of these queues could be answered within `time`
    /// from now on. Queues that were not asked for lately do not count, unless all were not.
    ///
    /// # Errors
    /// It could not; by how much the workers would have to be free sooner.
    pub fn admit_early(
        &self,
        queues: impl Iterator<Item = QueueIndex>,
        time: Nanos,
        now: Nanos,
    ) -> Result<(), Nanos> {
        let due = Some(now.saturating_add(time));
        let active = queues.filter(|&queue| self.is_active(queue));
        let work = active.map(|queue| match self.runs_at_once(queue) {
            true => Nanos(0),
            false => {
                let before = self.rows_before(queue, Ahead::InTime, due);
                self.time_for(queue, before, 0, now)
            }
        });
        let needed = work.min().unwrap_or(Nanos(0));
        check(needed, time)
    }

    /// Whether a worker is free and nothing waits in this queue.
    fn runs_at_once(&self, queue: QueueIndex) -> bool {
        let is_empty = |part| self.core.queue(part).is_none_or(|part| part.is_empty());
        self.idle > 0 && is_empty(in_time(queue.0)) && is_empty(late(queue.0))
    }

    /// Whether so many rows could be answered within `time` from now on.
    ///
    /// # Errors
    /// They could not; by how much the workers would have to be free sooner.
    pub fn admit(
        &self,
        queue: QueueIndex,
        rows: usize,
        after: Ahead,
        time: Nanos,
        now: Nanos,
    ) -> Result<(), Nanos> {
        let needed = self.needed(queue, rows, after, time, now);
        check(needed, time)
    }
}

/// Whether the needed time is there; otherwise by how much it is not.
fn check(needed: Nanos, time: Nanos) -> Result<(), Nanos> {
    match needed.saturating_sub(time) {
        Nanos(0) => Ok(()),
        over => Err(over),
    }
}
