//! Passes submitted requests to the scheduler: small ones together, so that they form one batch,
//! larger ones one by one, so that their work is distributed over the workers.

use albacore_batching::{Arrival, Event, Nanos};

use super::{Outbox, PendingBox, State};
use crate::limits::COALESCED_COMPUTE_MAX;

/// Arrivals for which the scheduler has not decided yet.
#[derive(Debug, Default)]
pub(super) struct Coalescer {
    has_undecided: bool,
    /// Expected compute time of the undecided arrivals, nanoseconds.
    compute: u64,
    /// Whether the current dispatches are caused by arrivals.
    is_flushing: bool,
    /// Kept between flushes, so that the steady state does not allocate.
    buffer: Vec<PendingBox>,
}

impl Coalescer {
    /// Resets the coalescer after a decision of the scheduler.
    pub(super) fn reset(&mut self) {
        (self.has_undecided, self.compute) = (false, 0);
    }

    pub(super) fn is_flushing(&self) -> bool {
        self.is_flushing
    }
}

impl State {
    /// An empty vector with a reused allocation.
    pub(crate) fn take_submitted_buffer(&mut self) -> Vec<PendingBox> {
        std::mem::take(&mut self.coalescer.buffer)
    }

    /// Queues requests, and keeps the vector for reuse.
    pub(crate) fn submit_all(
        &mut self,
        mut requests: Vec<PendingBox>,
        now: Nanos,
        out: &mut Outbox,
    ) {
        for request in requests.drain(..) {
            self.submit(request, now, out);
        }
        self.coalescer.buffer = requests;
        if self.coalescer.has_undecided {
            self.coalescer.is_flushing = true;
            self.step(Event::Timer, now, out);
            self.coalescer.is_flushing = false;
        }
    }

    /// Passes an arrival to the scheduler, which decides immediately or together with the next
    /// ones.
    pub(super) fn enqueue(&mut self, arrival: Arrival, now: Nanos, out: &mut Outbox) {
        let row = self.inboxes.row_nanos(arrival.queue);
        let compute = row.saturating_mul(arrival.rows as u64);
        let compute = self.coalescer.compute.saturating_add(compute);
        let is_small = row > 0 && compute <= COALESCED_COMPUTE_MAX.as_nanos() as u64;
        // While all workers are busy nothing can be dispatched.
        if is_small || self.scheduler.idle_workers() == 0 {
            self.coalescer.compute = compute;
            self.coalescer.has_undecided = true;
            self.scheduler.enqueue(arrival, now);
        } else {
            self.step(Event::Arrived(arrival), now, out);
        }
    }
}
