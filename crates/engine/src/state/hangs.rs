//! Which workers hang: they have a batch, or orders, or are to come up, and take far longer than that
//! takes.
//!
//! **Problem.** A worker that is stopped, loops, or waits for what never comes is not dead: nobody
//! tells the front. Its batch must run elsewhere, and it must be gone before its memory is used
//! again, for it may wake at any time.
//!
//! **Approach.** Each batch gets a patience when it is dispatched: some times what such batches take,
//! twice that each time that it runs again, so that a batch which is only slower than anything known
//! is done in the end. Who outlives it is killed; all else is as with any death: the batch runs
//! again, and one that hangs again and again is to blame. Time in which the thread that looks was
//! itself kept waiting does not count: then the machine stood still, not the worker.
//!
//! **Limits.** Until the costs of a queue are known the patience is long.

use albacore_batching::{Nanos, QueueIndex};

use super::{Outbox, Seat, State};
use crate::limits::{
    HANG_FACTOR, HANG_PATIENCE_MIN, HANG_PATIENCE_UNKNOWN, INSTALL_DEADLINE, STARTUP_DEADLINE,
};

/// How long a worker may be at what it does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    since: Nanos,
    lasts: Nanos,
}

impl Patience {
    pub(super) fn new(since: Nanos, lasts: std::time::Duration) -> Self {
        let lasts = Nanos(u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX));
        Self { since, lasts }
    }

    fn is_over(&self, now: Nanos) -> bool {
        now.saturating_sub(self.since) > self.lasts
    }
}

impl Seat {
    /// Notes that its worker begins to open images, or to come up.
    pub(in super::super) fn expect_opened(&mut self, now: Nanos) {
        self.patience = Some(Patience::new(now, INSTALL_DEADLINE));
    }

    pub(super) fn expect_up(&mut self, now: Nanos) {
        self.patience = Some(Patience::new(now, STARTUP_DEADLINE));
    }
}

impl State {
    /// The patience with a batch that is dispatched now and was so often before.
    pub(super) fn patience(
        &self,
        queue: QueueIndex,
        rows: usize,
        losses: u32,
        now: Nanos,
    ) -> Patience {
        let nanos = |time: std::time::Duration| time.as_nanos() as u64;
        let base = match self.queues.longest(queue, rows, &self.scheduler) {
            None => nanos(HANG_PATIENCE_UNKNOWN),
            Some(longest) => {
                let longest = longest.0.saturating_mul(HANG_FACTOR);
                longest.max(nanos(HANG_PATIENCE_MIN))
            }
        };
        let lasts = Nanos(base.saturating_mul(1 << losses.min(16)));
        Patience { since: now, lasts }
    }

    /// The workers that hang and were not said to before. `stalled` is how much later than planned
    /// this look comes.
    pub(in super::super) fn find_hung(
        &mut self,
        stalled: Nanos,
        now: Nanos,
        out: &mut Outbox,
    ) -> Vec<usize> {
        // What is done is not hung, though nobody has looked at it yet.
        self.collect_all(now, out);
        let mut hung = Vec::new();
        for (worker, seat) in self.seats.iter_mut().enumerate() {
            let is_at_work = seat.batch.is_some() || seat.orders.is_some() || !seat.is_ready;
            if seat.life.is_none() || !is_at_work || seat.is_hung {
                continue;
            }
            let Some(patience) = &mut seat.patience else {
                continue;
            };
            patience.since = patience.since.saturating_add(stalled);
            if patience.is_over(now) {
                seat.is_hung = true;
                self.counters.worker_hangs_total += 1;
                hung.push(worker);
            }
        }
        hung
    }
}
