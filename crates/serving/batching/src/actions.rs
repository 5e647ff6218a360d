//! Actions that the caller must carry out after an event. One value is reused for every step.

use std::ops::Range;

use crate::batch::Batch;
use crate::{Nanos, QueueIndex, RequestKey, WorkerIndex};

/// Send requests to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// The worker, idle until now.
    pub worker: WorkerIndex,
    /// The queue that the requests waited in.
    pub queue: QueueIndex,
    pub rows: usize,
    /// Workers that were lost while running this batch; 0 for the first run.
    pub losses: u32,
    /// How many of these were killed because the batch took too long.
    pub hangs: u32,
    requests: Range<usize>,
}

/// Abandon a request: alone in its batch, it reached [`crate::BLAME_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbandonedRequest {
    pub key: RequestKey,
    /// Workers that were lost while running it.
    pub losses: u32,
}

/// Actions in response to one event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actions {
    pub dispatches: Vec<Dispatch>,
    pub abandoned: Vec<AbandonedRequest>,
    /// Send [`crate::Event::Timer`] at this time unless another event comes first. Replaces the
    /// previous timer, `None` clears it.
    pub timer: Option<Nanos>,
    requests: Vec<RequestKey>,
}

impl Actions {
    /// The requests of a dispatch, in arrival order.
    #[must_use]
    pub fn requests(&self, dispatch: &Dispatch) -> &[RequestKey] {
        self.requests
            .get(dispatch.requests.clone())
            .unwrap_or_default()
    }

    pub(crate) fn clear(&mut self) {
        self.dispatches.clear();
        self.abandoned.clear();
        self.requests.clear();
        self.timer = None;
    }

    pub(crate) fn dispatch(&mut self, worker: WorkerIndex, batch: &Batch) {
        let start = self.requests.len();
        self.requests
            .extend(batch.entries.iter().map(|entry| entry.key));
        self.dispatches.push(Dispatch {
            worker,
            queue: batch.queue,
            rows: batch.entries.iter().map(|entry| entry.rows).sum(),
            losses: batch.losses,
            hangs: batch.hangs,
            requests: start..self.requests.len(),
        });
    }
}
