//! The path of one request through the engine: look up the model, reserve memory, write the rows,
//! submit them, await the reply.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use albacore_batching::Nanos;
use albacore_os::Extent;
use albacore_worker::Layout;
use tokio::sync::oneshot;

use super::admission::{AdmissionRequest, RequestTerms};
use super::error::ModelLookupError;
use super::model::{ModelInfo, ModelRevision};
use super::queues::queue_of;
use super::reply::{PendingReply, Reply, ReplyShape};
use super::shared_state::SharedState;
use super::state::NewRequest;
use super::{ElementType, FrontPermit, KindSet, Priority, Refusal, RequestFailure};
use crate::LoopIndex;
use crate::limits::{LONG_READ_BYTES, RESULTS_ARENA_BYTES, ROWS_ARENA_BYTES};

/// A model as of its lookup. Keeps that revision open in the workers: drop it soon, or create a
/// request from it.
#[derive(Debug)]
pub struct ModelHandle {
    shared: Arc<SharedState>,
    event_loop: LoopIndex,
    revision: Arc<ModelRevision>,
    /// False once a request has taken over the pin of the revision.
    is_pinned: bool,
    terms: RequestTerms,
}

impl ModelHandle {
    pub(super) fn new(
        shared: &Arc<SharedState>,
        event_loop: LoopIndex,
        name: &str,
    ) -> Result<Self, ModelLookupError> {
        let published = shared.catalog.load();
        let known = published.find(name)?;
        let revision = match known.usage.pin() {
            true => Arc::clone(known),
            // Another revision has just replaced it.
            false => pin_current(shared, known, name)?,
        };
        Ok(Self {
            shared: Arc::clone(shared),
            event_loop,
            revision,
            is_pinned: true,
            terms: RequestTerms {
                arrival: shared.now(),
                deadline: None,
                priority: Priority::default(),
            },
        })
    }

    /// Sets a time limit from now on: the request is rejected if it cannot be answered by then, and
    /// overtakes requests of its model with later deadlines.
    #[must_use]
    pub fn with_time_limit(mut self, time: Duration) -> Self {
        let nanos = Nanos::from(time);
        self.terms.deadline = Some(self.shared.now().saturating_add(nanos));
        self
    }

    /// Sets the arrival time of the request: its wait for the front since then counts against its
    /// time limit.
    #[must_use]
    pub fn with_arrival_time(mut self, arrival: Instant) -> Self {
        let waited = Nanos::from(arrival.elapsed());
        self.terms.arrival = self.shared.now().saturating_sub(waited);
        self
    }

    #[must_use]
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.terms.priority = priority;
        self
    }

    /// Rejects a request before its body is read, if even the cheapest of the model's recent
    /// requests could not be answered in its time.
    ///
    /// # Errors
    /// [`Refusal::Late`]; it is counted.
    pub fn admit_early(&self) -> Result<(), Refusal> {
        if self.shared.inboxes.has_idle_workers() && !self.shared.reply_latency.is_crowded() {
            // Neither workers nor front are overloaded. The time of its rows is checked when they
            // are known.
            return Ok(());
        }
        let (slot, now) = (self.revision.slot, self.shared.now());
        let (shared, latency) = (&self.shared, &self.shared.reply_latency);
        shared.refresh_admission(now);
        let admission = &shared.admission;
        admission.admit_early(self.event_loop, slot, &self.terms, latency, now)
    }

    /// Waits until the request may use the time of its event loop. If its model or outputs exceed
    /// their share while others are within theirs, requests wait for a permit, one at a time.
    pub async fn front_permit(&self, kinds: KindSet) -> FrontPermit {
        let shared = &self.shared;
        shared
            .front_permit(self.event_loop, self.revision.slot, kinds)
            .await
    }

    #[must_use]
    pub fn info(&self) -> &ModelInfo {
        &self.revision.info
    }

    /// The revision; holding it does not keep it open in the workers.
    #[must_use]
    pub fn revision(&self) -> Arc<ModelRevision> {
        Arc::clone(&self.revision)
    }

    /// Admits a request of `rows` rows of `element` ([`ElementType::F32`] or [`ElementType::F64`])
    /// for the outputs `kinds`, and allocates memory for its rows and results.
    ///
    /// # Errors
    /// A [`Refusal`]; nothing is reserved then.
    pub fn reserve(
        self,
        rows: usize,
        element: ElementType,
        kinds: KindSet,
    ) -> Result<Reservation, Refusal> {
        Reservation::new(self, rows, element, kinds)
    }

    fn admit(&self, rows: usize, kinds: KindSet) -> Result<Option<Nanos>, Refusal> {
        let request = AdmissionRequest {
            slot: self.revision.slot,
            rows,
            kinds,
            terms: self.terms,
        };
        let (shared, now) = (&self.shared, self.shared.now());
        shared.refresh_admission(now);
        let admission = &shared.admission;
        admission.admit(self.event_loop, &request, &shared.reply_latency, now)
    }

    /// Allocates memory for an admitted request: rows and results.
    fn allocate(
        &self,
        rows: usize,
        kinds: KindSet,
        sizes: &RequestSizes,
    ) -> Result<(Extent, Extent), Refusal> {
        let memory = &self.shared.memory;
        let extents = memory.allocate(self.event_loop, sizes.input_bytes, sizes.layout.bytes);
        extents.ok_or_else(|| {
            let admission = &self.shared.admission;
            admission.refuse_memory(self.revision.slot, rows, kinds)
        })
    }
}

impl Drop for ModelHandle {
    fn drop(&mut self) {
        if self.is_pinned {
            unpin(&self.shared, &self.revision);
        }
    }
}

/// Removes a request's pin.
fn unpin(shared: &SharedState, revision: &ModelRevision) {
    if revision.usage.unpin() {
        shared.update(|state, _, _| state.drop_unneeded_revisions());
    }
}

/// Pins the current revision of a model. The published one, `retired`, has a superfluous pin.
fn pin_current(
    shared: &SharedState,
    retired: &ModelRevision,
    name: &str,
) -> Result<Arc<ModelRevision>, ModelLookupError> {
    unpin(shared, retired);
    let state = shared.state();
    let current = Arc::clone(state.catalog.find(name)?);
    // It cannot be retired while the state is locked.
    current.usage.pin();
    Ok(current)
}

/// Memory for one request's rows and results, which is freed on drop.
#[derive(Debug)]
pub struct Reservation {
    model: ModelHandle,
    kinds: KindSet,
    is_double: bool,
    rows: usize,
    sizes: RequestSizes,
    /// Deadline of its reply.
    due: Option<Nanos>,
    /// Rows and results; `None` once submitted.
    extents: Option<(Extent, Extent)>,
}

impl Reservation {
    fn new(
        model: ModelHandle,
        rows: usize,
        element: ElementType,
        kinds: KindSet,
    ) -> Result<Self, Refusal> {
        let rows_max = model.shared.queue_rows_max();
        let sizes = RequestSizes::new(model.info(), rows, rows_max, element, kinds)?;
        if sizes.input_bytes >= LONG_READ_BYTES {
            model.shared.flush(model.event_loop);
        }
        let due = model.admit(rows, kinds)?;
        let extents = model.allocate(rows, kinds, &sizes)?;
        Ok(Self {
            model,
            kinds,
            is_double: element == ElementType::F64,
            rows,
            sizes,
            due,
            extents: Some(extents),
        })
    }

    /// The rows, row-major, in little-endian elements; must be written completely before `submit`.
    /// Aligned to 64 bytes.
    pub fn input_mut(&mut self) -> &mut [u8] {
        let rows = self
            .extents
            .as_mut()
            .map(|(rows, _)| rows.as_mut_slice())
            .unwrap_or_default();
        let bytes = rows.len().min(self.sizes.input_bytes);
        &mut rows[..bytes]
    }

    /// Queues the rows (immediately, not at the first poll) and resolves to the reply.
    ///
    /// Dropping the future is safe: the rows are removed from the queue, or their results are
    /// discarded.
    pub fn submit(
        mut self,
    ) -> impl Future<Output = Result<Reply, RequestFailure>> + Send + 'static {
        let (reply, receiver) = oneshot::channel();
        let shared = Arc::clone(&self.model.shared);
        let revision = Arc::clone(&self.model.revision);
        // The request keeps the revision pinned from here on.
        self.model.is_pinned = false;
        let event_loop = self.model.event_loop;
        let now = shared.now();
        let first_key = self.extents.take().map(|(input, results)| {
            let request = NewRequest {
                model: revision.slot,
                revision: Arc::clone(&revision),
                event_loop,
                first_key: 0,
                submitted: now,
                kinds: self.kinds,
                is_double: self.is_double,
                rows: self.rows,
                input,
                results,
                reply,
                terms: self.model.terms,
            };
            let queue = queue_of(revision.slot, self.kinds);
            let submitted = shared.inboxes.submit(event_loop, queue, request, now);
            if submitted.must_flush {
                shared.update_on(event_loop, |_, _, _| ());
            }
            submitted.first_key
        });
        let shape = ReplyShape {
            revision,
            layout: self.sizes.layout,
            kinds: self.kinds,
            rows: self.rows,
            due: self.due,
            front_time: now.saturating_sub(self.model.terms.arrival),
        };
        PendingReply::new(shared, event_loop, first_key, receiver, shape)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some((rows, results)) = self.extents.take() {
            let ModelHandle {
                shared, event_loop, ..
            } = &self.model;
            let slot = self.model.revision.slot;
            shared.admission.unreserve(slot, self.rows, self.kinds);
            shared.memory.free(*event_loop, [rows], [results]);
        }
    }
}

/// Sizes of a request, checked against the bounds.
#[derive(Clone, Copy, Debug)]
struct RequestSizes {
    input_bytes: usize,
    layout: Layout,
}

impl RequestSizes {
    fn new(
        info: &ModelInfo,
        rows: usize,
        queue_rows_max: usize,
        element: ElementType,
        kinds: KindSet,
    ) -> Result<Self, Refusal> {
        check_request(info, rows, element, kinds)?;
        let row_bytes = info.features * element.bytes();
        let rows_max = queue_rows_max
            .min(ROWS_ARENA_BYTES / row_bytes.max(1))
            .min(RESULTS_ARENA_BYTES / result_row_bytes(info, kinds).max(1));
        let too_large = Refusal::TooLarge { rows, rows_max };
        if rows > rows_max {
            return Err(too_large);
        }
        match Layout::new(&info.outputs, kinds, rows) {
            Some(layout) if layout.bytes <= RESULTS_ARENA_BYTES => Ok(Self {
                input_bytes: rows * row_bytes,
                layout,
            }),
            _ => Err(too_large),
        }
    }
}

/// Checks that the model supports the request.
fn check_request(
    info: &ModelInfo,
    rows: usize,
    element: ElementType,
    kinds: KindSet,
) -> Result<(), Refusal> {
    if rows == 0 {
        return Err(Refusal::Invalid("the request has no row"));
    }
    if kinds.is_empty() {
        return Err(Refusal::Invalid("the request asks for no output"));
    }
    if element == ElementType::I32 {
        return Err(Refusal::Invalid("rows must be 32-bit or 64-bit floats"));
    }
    match kinds.iter().find(|&kind| info.output(kind).is_none()) {
        Some(kind) => Err(Refusal::NoSuchOutput {
            model: info.name.clone(),
            kind,
        }),
        None => Ok(()),
    }
}

/// Bytes of the results of one row.
fn result_row_bytes(info: &ModelInfo, kinds: KindSet) -> usize {
    let outputs = info.outputs.iter();
    let outputs = outputs.filter(|output| kinds.contains(output.kind));
    outputs.fold(0, |sum, output| sum.saturating_add(output.row_bytes()))
}
