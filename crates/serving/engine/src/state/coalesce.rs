//! Passes submitted requests to the scheduler: small ones together, so that one batch has them all,
//! larger ones one by one, so that their work is divided among the workers.

use albacore_batching::{Arrival, Event, Nanos};

use super::{Outbox, PendingBox, State};
use crate::limits::COALESCED_COMPUTE_MAX;

/// Arrivals that the scheduler has not decided about.
#[derive(Debug, Default)]
pub(super) struct Coalescer {
    has_undecided: bool,
    /// Expected compute time of the undecided arrivals, nanoseconds.
    compute: u64,
    /// The current dispatches come from arrivals.
    is_flushing: bool,
    /// Kept between flushes, so that the steady state does not allocate.
    buffer: Vec<PendingBox>,
}

impl Coalescer {
    /// The scheduler has decided.
    pub(super) fn reset(&mut self) {
        (self.has_undecided, self.compute) = (false, 0);
    }

    pub(super) fn is_flushing(&self) -> bool {
        self.is_flushing
    }
}

impl State {
    /// An empty vector, whose memory was used before.
    pub(crate) fn take_submitted_buffer(&mut self) -> Vec<PendingBox> {
        std::mem::take(&mut self.coalescer.buffer)
    }

    /// Queues requests, and keeps the vector.
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

    /// Passes an arrival to the scheduler, which decides at once or with the next ones.
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
