//! Requests that were submitted and not answered.

use std::sync::Arc;

use albacore_batching::Nanos;
use albacore_os::Extent;
use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use super::{Outbox, State};
use crate::LoopIndex;
use crate::admission::RequestTerms;
use crate::counters::Answered;
use crate::model::Edition;
use crate::timing::Timing;
use crate::{Failure, Kind, KindSet};

/// What a request's future receives: its results, how long its parts took, and when it was done.
pub(crate) type Answer = Result<(Extent, Timing, Nanos), Failure>;

/// A request whose rows are written.
#[derive(Debug)]
pub(crate) struct NewRequest {
    /// The slot of its model.
    pub(crate) model: usize,
    /// Computes it; pinned until the request is over.
    pub(crate) edition: Arc<Edition>,
    /// Reads and answers it.
    pub(crate) event_loop: LoopIndex,
    /// The key of its first part; its inbox sets it.
    pub(crate) first_key: u64,
    pub(crate) submitted: Nanos,
    pub(crate) kinds: KindSet,
    /// The rows are 64-bit floats, not 32-bit ones.
    pub(crate) is_double: bool,
    pub(crate) rows: usize,
    pub(crate) input: Extent,
    pub(crate) results: Extent,
    pub(crate) reply: oneshot::Sender<Answer>,
    pub(crate) terms: RequestTerms,
}

/// A request that waits or runs.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) request: NewRequest,
    /// Time that was left for it, where that is less than the objective.
    pub(super) within: Option<Nanos>,
    pub(super) first_dispatch: Option<Nanos>,
    /// [`super::IdleTime`] when it was submitted.
    pub(super) idle_before: Nanos,
    /// Time between its submission and its dispatch in which a worker was free.
    pub(super) deferred: Nanos,
    compute_nanos: u64,
    failure: Option<Failure>,
    /// Parts, done or not.
    pub(super) parts: usize,
    /// Parts that are not done.
    parts_left: usize,
    /// False once the client went away.
    pub(super) is_wanted: bool,
}

/// Rows of a request that run in one batch. A request larger than a batch has several parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestPart {
    pub(super) request: u64,
    pub(super) first_row: usize,
    pub(super) rows: usize,
    pub(super) is_running: bool,
}

#[derive(Debug, Default)]
pub(super) struct RequestTable {
    /// By the key of their first part.
    pending: FxHashMap<u64, Pending>,
    /// By key, which grows with each part.
    parts: FxHashMap<u64, RequestPart>,
}

impl RequestTable {
    /// Adds a request, which is cut into so many parts.
    pub(super) fn insert(
        &mut self,
        request: NewRequest,
        parts: usize,
        within: Option<Nanos>,
        idle_before: Nanos,
    ) {
        let first_key = request.first_key;
        let pending = Pending {
            request,
            within,
            first_dispatch: None,
            idle_before,
            deferred: Nanos(0),
            compute_nanos: 0,
            failure: None,
            parts,
            parts_left: parts,
            is_wanted: true,
        };
        self.pending.insert(first_key, pending);
    }

    pub(super) fn insert_part(&mut self, key: u64, part: RequestPart) {
        self.parts.insert(key, part);
    }

    /// The request whose first part has this key.
    pub(super) fn get_mut(&mut self, first_key: u64) -> Option<&mut Pending> {
        self.pending.get_mut(&first_key)
    }

    /// A part and its request.
    pub(super) fn part_mut(&mut self, key: u64) -> Option<(&mut RequestPart, &mut Pending)> {
        let part = self.parts.get_mut(&key)?;
        let pending = self.pending.get_mut(&part.request)?;
        Some((part, pending))
    }

    /// Whether a part waits for a worker.
    pub(super) fn is_waiting(&self, key: u64) -> bool {
        self.parts.get(&key).is_some_and(|part| !part.is_running)
    }

    /// A part's batch was lost; returns whether nobody waits for it any more.
    pub(super) fn stop_running(&mut self, key: u64) -> bool {
        let Some(part) = self.parts.get_mut(&key) else {
            return false;
        };
        part.is_running = false;
        let pending = self.pending.get(&part.request);
        pending.is_none_or(|pending| !pending.is_wanted)
    }

    /// A part was computed in so much time; the longest of a request's parts counts.
    pub(super) fn add_compute(&mut self, key: u64, nanos: u64) {
        if let Some((_, pending)) = self.part_mut(key) {
            pending.compute_nanos = pending.compute_nanos.max(nanos);
        }
    }

    /// Removes a part; returns its request if that was the last one.
    fn remove_part(&mut self, key: u64, failure: Option<Failure>) -> Option<Pending> {
        let part = self.parts.remove(&key)?;
        let pending = self.pending.get_mut(&part.request)?;
        pending.parts_left -= 1;
        if pending.failure.is_none() {
            pending.failure = failure;
        }
        match pending.parts_left {
            0 => self.pending.remove(&part.request),
            _ => None,
        }
    }
}

impl State {
    /// Requests that are not answered.
    pub(crate) fn pending(&self) -> usize {
        self.requests.pending.len()
    }

    /// Fails every request that is left.
    pub(crate) fn fail_all(&mut self, now: Nanos, out: &mut Outbox) {
        let keys: Vec<u64> = self.requests.parts.keys().copied().collect();
        for key in keys {
            self.end_part(key, Some(Failure::Stopped), now, out);
        }
    }

    /// A part is done, failed or given up. With its last part a request is answered.
    pub(super) fn end_part(
        &mut self,
        key: u64,
        failure: Option<Failure>,
        now: Nanos,
        out: &mut Outbox,
    ) {
        let Some(mut pending) = self.requests.remove_part(key, failure) else {
            return;
        };
        out.is_changed |= self.requests.pending.is_empty();
        if pending.request.edition.usage.unpin() {
            self.drop_unneeded_editions();
        }
        let failure = pending.failure.take();
        let timing = pending.timing(now);
        let is_wanted = pending.is_wanted;
        if is_wanted {
            self.count_answer(&pending, failure.is_some(), timing, now);
        }
        let NewRequest {
            input,
            results,
            reply,
            ..
        } = pending.request;
        out.free_rows.push(input);
        match failure {
            _ if !is_wanted => out.free_results.push(results),
            None => out.answers.push((reply, Ok((results, timing, now)))),
            Some(failure) => {
                out.free_results.push(results);
                out.answers.push((reply, Err(failure)));
            }
        }
    }

    fn count_answer(&mut self, pending: &Pending, has_failed: bool, timing: Timing, now: Nanos) {
        let request = &pending.request;
        if has_failed {
            let kind = request.kinds.costliest();
            return self.counters.failed(request.model, kind, now);
        }
        let total = now.saturating_sub(pending.request.submitted);
        let answered = Answered {
            model: request.model,
            kind: request.kinds.costliest().unwrap_or(Kind::Value),
            timing,
            total_nanos: total.0,
            is_after_deadline: pending.within.is_some_and(|within| total > within),
        };
        self.counters.answered(&answered, now);
    }
}

impl Pending {
    fn timing(&self, now: Nanos) -> Timing {
        let dispatched = self.first_dispatch.unwrap_or(now);
        Timing {
            queue: dispatched.saturating_sub(self.request.submitted).into(),
            deferred: self.deferred.into(),
            compute: Nanos(self.compute_nanos).into(),
        }
    }
}
