//! The reply to a submitted request: its future, and its results in shared memory.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use albacore_batching::Nanos;
use albacore_os::Extent;
use albacore_worker::Layout;
use tokio::sync::oneshot;

use super::model::ModelRevision;
use super::reply_latency::InFlight;
use super::shared_state::SharedState;
use super::state::Answer;
use super::timing::Timing;
use super::{FrontPermit, Kind, KindSet, RequestFailure};
use crate::LoopIndex;

/// Properties of a request that its reply needs.
#[derive(Clone, Debug)]
pub(super) struct ReplyShape {
    pub(super) revision: Arc<ModelRevision>,
    /// Layout of its outputs in its results.
    pub(super) layout: Layout,
    pub(super) kinds: KindSet,
    pub(super) rows: usize,
    pub(super) due: Option<Nanos>,
    /// Time from its arrival to its submission.
    pub(super) front_time: Nanos,
}

/// The future of a reply. Dropping it withdraws the request.
pub(super) struct PendingReply {
    shared: Arc<SharedState>,
    event_loop: LoopIndex,
    /// Key of its first part; `None` once it is answered.
    first_key: Option<u64>,
    receiver: oneshot::Receiver<Answer>,
    shape: ReplyShape,
    in_flight: Option<InFlight>,
}

impl PendingReply {
    pub(super) fn new(
        shared: Arc<SharedState>,
        event_loop: LoopIndex,
        first_key: Option<u64>,
        receiver: oneshot::Receiver<Answer>,
        shape: ReplyShape,
    ) -> Self {
        Self {
            in_flight: Some(shared.reply_latency.begin()),
            shared,
            event_loop,
            first_key,
            receiver,
            shape,
        }
    }
}

impl Future for PendingReply {
    type Output = Result<Reply, RequestFailure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(answer) = Pin::new(&mut self.receiver).poll(context) else {
            return Poll::Pending;
        };
        self.first_key = None;
        if self.shared.reply_latency.is_serialization_slow() {
            self.shared.flush(self.event_loop);
        }
        Poll::Ready(match answer {
            Ok(Ok((results, timing, answered_at))) => Ok(Reply {
                shared: Arc::clone(&self.shared),
                event_loop: self.event_loop,
                results: Some(results),
                shape: self.shape.clone(),
                timing,
                answered_at,
                serialization_start: self.shared.now(),
                _in_flight: self.in_flight.take(),
            }),
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(RequestFailure::Stopped),
        })
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        let Some(first_key) = self.first_key.take() else {
            return;
        };
        self.shared.update_on(self.event_loop, |state, now, out| {
            state.withdraw(first_key, now, out);
        });
        self.receiver.close();
        if let Ok(Ok((results, ..))) = self.receiver.try_recv() {
            self.shared.memory.free(self.event_loop, None, [results]);
        }
    }
}

/// The results of one request, in shared memory. Dropping it frees the memory and records the time
/// to write the reply, which admission of later requests takes into account.
#[derive(Debug)]
pub struct Reply {
    shared: Arc<SharedState>,
    event_loop: LoopIndex,
    results: Option<Extent>,
    shape: ReplyShape,
    timing: Timing,
    /// When the results became available.
    answered_at: Nanos,
    /// When it was granted the time to be written.
    serialization_start: Nanos,
    _in_flight: Option<InFlight>,
}

impl Reply {
    /// The output of `kind`, row-major, little-endian elements as described by
    /// [`super::OutputInfo`]; `None` if it was not requested.
    #[must_use]
    pub fn output(&self, kind: Kind) -> Option<&[u8]> {
        let shape = &self.shape;
        if !shape.kinds.contains(kind) {
            return None;
        }
        let output = shape.revision.info.output(kind)?;
        let start = shape.layout.offset(kind);
        self.results
            .as_ref()?
            .as_slice()
            .get(start..start + shape.rows * output.row_bytes())
    }

    /// Waits until the reply may use the time of its event loop, like
    /// [`crate::ModelHandle::front_permit`].
    pub async fn front_permit(&mut self) -> FrontPermit {
        let (slot, kinds) = (self.shape.revision.slot, self.shape.kinds);
        let permit = self.shared.front_permit(self.event_loop, slot, kinds).await;
        self.serialization_start = self.shared.now();
        permit
    }

    #[must_use]
    pub fn timing(&self) -> Timing {
        self.timing
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(results) = self.results.take() {
            self.shared.memory.free(self.event_loop, None, [results]);
        }
        let (now, reply_latency) = (self.shared.now(), &self.shared.reply_latency);
        let latency = now.saturating_sub(self.answered_at);
        reply_latency.record(latency, now);
        reply_latency.record_serialization(now.saturating_sub(self.serialization_start));
        if let Some(due) = self.shape.due {
            let (admission, slot) = (&self.shared.admission, self.shape.revision.slot);
            let is_within_share = admission.is_within_front_share(slot, self.shape.kinds);
            let front_time = self.shape.front_time.saturating_add(latency);
            let late_by = now.saturating_sub(due);
            let front_time_limit = &admission.front_time_limit;
            front_time_limit.record(self.event_loop, is_within_share, late_by, front_time);
        }
    }
}
