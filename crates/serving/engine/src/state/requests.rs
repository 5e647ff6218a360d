//! Submitted and unanswered requests.

use std::collections::hash_map::Entry as MapEntry;
use std::sync::Arc;

use albacore_batching::Nanos;
use albacore_os::Extent;
use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use super::{Outbox, State};
use crate::LoopIndex;
use crate::admission::RequestTerms;
use crate::model::ModelRevision;
use crate::timing::Timing;
use crate::{KindSet, RequestFailure};

/// Answer to a request's future: its results, the duration of its stages, and the completion time.
pub(crate) type Answer = Result<(Extent, Timing, Nanos), RequestFailure>;

/// A request whose rows have been written.
#[derive(Debug)]
pub(crate) struct NewRequest {
    /// The slot of its model.
    pub(crate) model: usize,
    /// The revision that computes it; pinned until the request is completed.
    pub(crate) revision: Arc<ModelRevision>,
    /// The event loop that reads and answers it.
    pub(crate) event_loop: LoopIndex,
    /// The key of its first part; set by its inbox.
    pub(crate) first_key: u64,
    pub(crate) submitted: Nanos,
    pub(crate) kinds: KindSet,
    /// Whether the rows are 64-bit floats instead of 32-bit ones.
    pub(crate) is_double: bool,
    pub(crate) rows: usize,
    pub(crate) input: Extent,
    pub(crate) results: Extent,
    pub(crate) reply: oneshot::Sender<Answer>,
    pub(crate) terms: RequestTerms,
}

/// A request from its submission to its answer. It is allocated and freed without the lock of the
/// state, under which only its address is copied.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) request: NewRequest,
    pub(crate) objective: Option<Nanos>,
    /// Remaining time, if less than the objective.
    pub(crate) time_left: Option<Nanos>,
    pub(super) first_dispatch: Option<Nanos>,
    /// Value of [`super::IdleTime`] at its submission.
    pub(super) idle_before: Nanos,
    /// Time between its submission and its dispatch in which a worker was idle.
    pub(super) deferred: Nanos,
    compute_nanos: u64,
    pub(crate) failure: Option<RequestFailure>,
    /// Number of parts, done or not.
    pub(super) parts: usize,
    /// Number of parts that are not done.
    parts_left: usize,
    /// False once the client went away.
    pub(crate) has_client: bool,
}

pub(crate) type PendingBox = Box<Pending>;

/// Rows of a request that run in one batch. A request larger than a batch has several parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestPart {
    pub(super) first_row: usize,
    pub(super) rows: usize,
    pub(super) is_running: bool,
}

/// Result of a part.
#[derive(Debug)]
pub(super) enum PartEnd {
    Computed {
        nanos: u64,
    },
    Failed(RequestFailure),
    /// The client went away.
    ClientGone,
}

/// A request with its first part, which usually is the only one: one lookup finds both.
#[derive(Debug)]
struct RequestEntry {
    pending: PendingBox,
    /// `None` once it is done.
    first_part: Option<RequestPart>,
}

#[derive(Debug)]
struct LaterPart {
    /// The key of the first part of its request.
    request: u64,
    part: RequestPart,
}

#[derive(Debug, Default)]
pub(super) struct RequestTable {
    /// By the key of their first part.
    entries: FxHashMap<u64, RequestEntry>,
    /// By key; the keys of a request's parts are consecutive.
    later_parts: FxHashMap<u64, LaterPart>,
}

impl RequestTable {
    /// Adds a request, divided into these parts. Their keys are consecutive.
    pub(super) fn insert(
        &mut self,
        mut pending: PendingBox,
        mut parts: impl ExactSizeIterator<Item = RequestPart>,
    ) {
        let first_key = pending.request.first_key;
        (pending.parts, pending.parts_left) = (parts.len(), parts.len());
        let first_part = parts.next();
        let entry = RequestEntry {
            pending,
            first_part,
        };
        self.entries.insert(first_key, entry);
        for (key, part) in (first_key + 1..).zip(parts) {
            let request = first_key;
            self.later_parts.insert(key, LaterPart { request, part });
        }
    }

    /// The request whose first part has this key.
    pub(super) fn get_mut(&mut self, first_key: u64) -> Option<&mut Pending> {
        let entry = self.entries.get_mut(&first_key)?;
        Some(&mut entry.pending)
    }

    /// A part that is not done, and its request.
    pub(super) fn part_mut(&mut self, key: u64) -> Option<(&mut RequestPart, &mut Pending)> {
        match self.later_parts.get_mut(&key) {
            Some(LaterPart { request, part }) => {
                let entry = self.entries.get_mut(request)?;
                Some((part, &mut entry.pending))
            }
            None => {
                let entry = self.entries.get_mut(&key)?;
                Some((entry.first_part.as_mut()?, &mut entry.pending))
            }
        }
    }

    /// Whether a part waits for a worker.
    pub(super) fn is_waiting(&mut self, key: u64) -> bool {
        self.part_mut(key).is_some_and(|(part, _)| !part.is_running)
    }

    /// Marks a part of a lost batch as not running; returns whether its client went away.
    pub(super) fn stop_running(&mut self, key: u64) -> bool {
        let Some((part, pending)) = self.part_mut(key) else {
            return false;
        };
        part.is_running = false;
        !pending.has_client
    }

    /// Removes a part; returns its request if this was the last one.
    fn remove_part(&mut self, key: u64, end: PartEnd) -> Option<PendingBox> {
        let later = self.later_parts.remove(&key);
        let request = later.as_ref().map_or(key, |later| later.request);
        let MapEntry::Occupied(mut occupied) = self.entries.entry(request) else {
            return None;
        };
        let entry = occupied.get_mut();
        if later.is_none() {
            entry.first_part.take()?;
        }
        let pending = &mut entry.pending;
        pending.parts_left -= 1;
        match end {
            // The longest compute time of the parts counts.
            PartEnd::Computed { nanos } => pending.compute_nanos = pending.compute_nanos.max(nanos),
            PartEnd::Failed(failure) => {
                pending.failure.get_or_insert(failure);
            }
            PartEnd::ClientGone => {}
        }
        match pending.parts_left {
            0 => Some(occupied.remove().pending),
            _ => None,
        }
    }

    /// The keys of all parts that are not done.
    fn keys(&self) -> Vec<u64> {
        let first = self.entries.iter();
        let first = first.filter_map(|(&key, entry)| entry.first_part.map(|_| key));
        first.chain(self.later_parts.keys().copied()).collect()
    }
}

impl State {
    /// Number of unanswered requests.
    pub(crate) fn pending(&self) -> usize {
        self.requests.entries.len()
    }

    /// Fails every unanswered request.
    pub(crate) fn fail_all(&mut self, out: &mut Outbox) {
        for key in self.requests.keys() {
            self.end_part(key, PartEnd::Failed(RequestFailure::Stopped), out);
        }
    }

    /// Ends a part; the last part completes its request.
    pub(super) fn end_part(&mut self, key: u64, end: PartEnd, out: &mut Outbox) {
        if let Some(ended) = self.requests.remove_part(key, end) {
            out.ended.push(ended);
            out.is_changed |= self.requests.entries.is_empty();
        }
    }
}

impl Pending {
    pub(crate) fn new(request: NewRequest) -> Box<Self> {
        Box::new(Self {
            request,
            objective: None,
            time_left: None,
            first_dispatch: None,
            idle_before: Nanos(0),
            deferred: Nanos(0),
            compute_nanos: 0,
            failure: None,
            parts: 0,
            parts_left: 0,
            has_client: true,
        })
    }

    /// Whether it is late if it is answered `total` after its submission.
    pub(crate) fn is_late(&self, total: Nanos) -> bool {
        let limits = [self.objective, self.time_left];
        limits.into_iter().flatten().any(|limit| total > limit)
    }

    /// Duration of its stages, if it is completed at `now`.
    pub(crate) fn timing(&self, now: Nanos) -> Timing {
        let dispatched = self.first_dispatch.unwrap_or(now);
        Timing {
            queue: dispatched.saturating_sub(self.request.submitted).into(),
            deferred: self.deferred.into(),
            compute: Nanos(self.compute_nanos).into(),
        }
    }
}
