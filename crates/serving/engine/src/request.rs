//! The way of one request through the engine: find the model, reserve, fill, submit, reply.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use albacore_batching::{Nanos, Profile};
use albacore_os::Extent;
use tokio::sync::oneshot;

use super::min_cost::MinCost;
use super::model::Edition;
use super::queues::{queue_of, queues_of};
use super::reply_latency::InFlight;
use super::shared_state::SharedState;
use super::sojourn::SojournTime;
use super::state::{Answer, Pending, Phase, ahead_of};
use super::{ElementType, Failure, Kind, KindSet, ModelInfo, ModelLookupError, Priority, Refusal};
use crate::layout::Layout;
use crate::limits::{
    FRONT_SHARES, LONG_READ_BYTES, RESULTS_ARENA_BYTES, RETRY_AFTER_MAX, RETRY_AFTER_MIN,
    ROWS_ARENA_BYTES, SOJOURN_SHARES, WAITED_MIN,
};

/// A model as it was when it was asked for. Keeps that edition open in the workers: drop it soon,
/// or make a request of it.
#[derive(Debug)]
pub struct ModelHandle {
    shared: Arc<SharedState>,
    edition: Arc<Edition>,
    /// False once a request has taken over what the handle keeps.
    is_pinned: bool,
    /// When the request that is made of it should be answered, if it says so.
    by: Option<Nanos>,
    /// When it was there.
    since: Nanos,
    priority: Priority,
}

impl ModelHandle {
    pub(super) fn new(shared: &Arc<SharedState>, name: &str) -> Result<Self, ModelLookupError> {
        let edition = shared.change(|state, _, _| {
            let slot = state
                .catalog
                .slot_of(name)
                .ok_or(ModelLookupError::Unknown)?;
            let current = state.catalog.current_of(slot);
            let edition = Arc::clone(current.ok_or(ModelLookupError::NotLoaded)?);
            state.catalog.pin(edition.id);
            Ok(edition)
        })?;
        Ok(Self {
            shared: Arc::clone(shared),
            edition,
            is_pinned: true,
            by: None,
            since: shared.now(),
            priority: Priority::default(),
        })
    }

    /// The request that is made of it has only so much time, from now on: it is refused if it could
    /// not be answered by then, and overtakes requests of its model that have more.
    #[must_use]
    pub fn within(mut self, time: Duration) -> Self {
        let nanos = Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        self.by = Some(self.shared.now().saturating_add(nanos));
        self
    }

    /// The request that is made of it had arrived at this time: what it has waited for the front
    /// since then is part of its time.
    #[must_use]
    pub fn since(mut self, arrival: Instant) -> Self {
        let waited = Nanos(u64::try_from(arrival.elapsed().as_nanos()).unwrap_or(u64::MAX));
        self.since = self.shared.now().saturating_sub(waited);
        self
    }

    /// The request that is made of it runs before or after others of its model.
    #[must_use]
    pub fn at(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Refuses at once what could not be in time even if it cost no more than the cheapest of the
    /// last ones: what waits, can be in time and is due before it takes longer. Its rows need not
    /// be read then, which is most of what a refusal costs.
    ///
    /// # Errors
    /// [`Refusal::Late`]; it is counted.
    pub fn admit_early(&self) -> Result<(), Refusal> {
        let (slot, now) = (self.edition.slot, self.shared.now());
        let mut state = self.shared.state();
        let queue = queue_of(slot, KindSet::EMPTY);
        // What it asks for is not known yet: the longest objective counts.
        let objectives = queues_of(slot).map(|queue| state.scheduler.profile(queue).objective);
        let Some(time) = self.time(objectives.max().flatten()) else {
            return Ok(());
        };
        // What has no time left by its own terms is told so when its rows are to be reserved.
        if self.by.is_some_and(|by| by <= now) {
            return Ok(());
        }
        let least = state.least(slot).map_or(Nanos(0), MinCost::estimate);
        let admitted = self
            .left(&mut state.sojourn, time, now)
            .and_then(|left| state.scheduler.admit_early(left.saturating_sub(least), now));
        let Err(over) = admitted else {
            return Ok(());
        };
        state.scheduler.refused(queue, 1, now);
        state.counters.shed(slot, now);
        Err(Refusal::late(over, time))
    }

    /// From its arrival until it should be answered, with this objective.
    fn time(&self, objective: Option<Nanos>) -> Option<Nanos> {
        let own = self.by.map(|by| by.saturating_sub(self.since));
        [objective, own].into_iter().flatten().min()
    }

    /// The time that is left of its own, or of the objective if it has waited long enough to be
    /// told apart.
    fn within_from(&self, objective: Option<Nanos>, now: Nanos) -> Option<Nanos> {
        let waited = now.saturating_sub(self.since);
        let has_waited = waited.0 >= WAITED_MIN.as_nanos() as u64;
        let objective = objective.filter(|_| has_waited);
        let left = objective.map(|objective| objective.saturating_sub(waited));
        let own = self.by.map(|by| by.saturating_sub(now));
        [left, own].into_iter().flatten().min()
    }

    /// What the front leaves of that time to who computes: it has waited for the front, and its
    /// reply will.
    ///
    /// # Errors
    /// The front takes more than its share, or requests queue up before it: then it is what is
    /// overloaded, though a worker be idle. How much more.
    fn left(&self, sojourn: &mut SojournTime, time: Nanos, now: Nanos) -> Result<Nanos, Nanos> {
        let waited = now.saturating_sub(self.since);
        let taken = waited.saturating_add(self.shared.reply_latency.expected(now));
        let stands = sojourn.note(waited, now);
        if !self.shared.reply_latency.is_crowded() {
            return Ok(time.saturating_sub(waited));
        }
        let kind = usize::from(self.shared.reply_latency.is_serialization_slow());
        let stands = stands.saturating_sub(Nanos(time.0 / SOJOURN_SHARES[kind]));
        match taken
            .saturating_sub(Nanos(time.0 / FRONT_SHARES[kind]))
            .max(stands)
        {
            Nanos(0) => Ok(time.saturating_sub(taken)),
            over => Err(over),
        }
    }

    #[must_use]
    pub fn info(&self) -> &ModelInfo {
        &self.edition.info
    }

    /// The same, to be kept without keeping anything open in the workers.
    #[must_use]
    pub fn edition(&self) -> Arc<Edition> {
        Arc::clone(&self.edition)
    }

    /// Takes room for `rows` rows of `element` ([`ElementType::F32`] or [`ElementType::F64`]) and
    /// for the outputs `kinds`, and counts the rows against the queue's bound.
    ///
    /// # Errors
    /// A [`Refusal`]; nothing is kept then.
    pub fn reserve(
        self,
        rows: usize,
        element: ElementType,
        kinds: KindSet,
    ) -> Result<Reservation, Refusal> {
        Reservation::new(self, rows, element, kinds)
    }
}

impl Drop for ModelHandle {
    fn drop(&mut self) {
        if self.is_pinned {
            let id = self.edition.id;
            self.shared.change(|state, _, _| state.unpin(id));
        }
    }
}

/// Room for one request's rows and results. Dropping it gives the room back.
#[derive(Debug)]
pub struct Reservation {
    model: ModelHandle,
    kinds: KindSet,
    is_double: bool,
    rows: usize,
    input_bytes: usize,
    layout: Layout,
    /// Rows and results; `None` once submitted.
    room: Option<(Extent, Extent)>,
}

/// Parallelism of a request, checked.
struct RequestSizes {
    input_bytes: usize,
    layout: Layout,
}

impl Reservation {
    fn new(
        model: ModelHandle,
        rows: usize,
        element: ElementType,
        kinds: KindSet,
    ) -> Result<Self, Refusal> {
        let shared = &model.shared;
        let sized = check(shared, model.info(), rows, element, kinds)?;
        if sized.input_bytes >= LONG_READ_BYTES {
            shared.flush();
        }
        let slot = model.edition.slot;
        let retry_after = admit(&model, rows, kinds)?;
        let room = shared
            .memory()
            .allocate(sized.input_bytes, sized.layout.bytes);
        if room.is_none() {
            shared.change(|state, now, _| {
                state.scheduler.unreserve(rows);
                state.counters.shed(slot, now);
            });
            return Err(Refusal::MemoryFull { retry_after, rows });
        }
        Ok(Self {
            model,
            kinds,
            is_double: element == ElementType::F64,
            rows,
            input_bytes: sized.input_bytes,
            layout: sized.layout,
            room,
        })
    }

    /// The rows, row-major, little-endian elements; all of it must be written before `submit`.
    /// Starts at a multiple of 64 bytes.
    pub fn input_mut(&mut self) -> &mut [u8] {
        let rows = self
            .room
            .as_mut()
            .map(|(rows, _)| rows.as_mut_slice())
            .unwrap_or_default();
        let bytes = rows.len().min(self.input_bytes);
        &mut rows[..bytes]
    }

    /// Queues the rows (at once, not at the first poll) and resolves to the reply.
    ///
    /// Dropping the future is safe: the rows leave the queue, or their results are thrown away.
    pub fn submit(mut self) -> impl Future<Output = Result<Reply, Failure>> + Send + 'static {
        let (reply, receiver) = oneshot::channel();
        let shared = Arc::clone(&self.model.shared);
        let edition = Arc::clone(&self.model.edition);
        // The request keeps the edition from here on.
        self.model.is_pinned = false;
        let name = self.room.take().map(|(input, results)| {
            shared.change(|state, now, out| {
                let queue = queue_of(edition.slot, self.kinds);
                let objective = state.scheduler.profile(queue).objective;
                let pending = Pending {
                    model: edition.slot,
                    edition: edition.id,
                    kinds: self.kinds,
                    is_double: self.is_double,
                    rows: self.rows,
                    input,
                    results,
                    reply,
                    submitted: now,
                    first_dispatch: None,
                    free_before: Nanos(0),
                    deferred: Nanos(0),
                    compute_nanos: 0,
                    failure: None,
                    within: self.model.within_from(objective, now),
                    priority: self.model.priority,
                    parts: 0,
                    is_wanted: true,
                };
                let name = state.submit(pending, now, out);
                if state.phase == Phase::Stopped {
                    state.fail_all(now, out);
                }
                name
            })
        });
        let (layout, kinds, rows) = (self.layout, self.kinds, self.rows);
        let in_flight = Some(shared.reply_latency.begin());
        Submitted {
            shared,
            name,
            receiver,
            layout,
            kinds,
            edition,
            rows,
            in_flight,
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some((rows, results)) = self.room.take() {
            let shared = &self.model.shared;
            shared.state().scheduler.unreserve(self.rows);
            let mut memory = shared.memory();
            memory.free_rows(rows);
            memory.free_results(results);
        }
    }
}

/// Counts the rows against the queue's bound; when to try again should something else refuse them.
fn admit(model: &ModelHandle, rows: usize, kinds: KindSet) -> Result<Duration, Refusal> {
    let (shared, slot) = (&model.shared, model.edition.slot);
    let now = shared.now();
    let mut state = shared.state();
    if state.phase >= Phase::Closing {
        return Err(Refusal::Draining);
    }
    let (queued_rows, workers) = (state.scheduler.queued_rows(), state.ready_workers());
    let nanos = state.counters.nanos_for(queued_rows, workers);
    let retry_after = Duration::from_nanos(nanos).clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX);
    if state.is_crash_looping() {
        state.counters.shed(slot, now);
        return Err(Refusal::NoWorkers { retry_after });
    }
    let queue = queue_of(slot, kinds);
    let own = model.by.map(|by| by.saturating_sub(now));
    if own == Some(Nanos(0)) {
        state.counters.shed(slot, now);
        return Err(Refusal::Expired);
    }
    let Profile {
        objective, cost, ..
    } = state.scheduler.profile(queue);
    if let (Some(cost), Some(least)) = (cost, state.least(slot)) {
        least.note(cost.of(rows as u64));
    }
    let after = ahead_of(model.priority);
    if let Some(time) = model.time(objective)
        && let Err(over) = model
            .left(&mut state.sojourn, time, now)
            .and_then(|left| state.scheduler.admit((queue, rows), after, left, now))
    {
        state.counters.shed(slot, now);
        state.scheduler.refused(queue, rows, now);
        return Err(Refusal::late(over, time));
    }
    if let Err(full) = state.scheduler.reserve(rows) {
        state.counters.shed(slot, now);
        let (queued_rows, rows_max) = (full.queued_rows, full.rows_max);
        return Err(Refusal::QueueFull {
            retry_after,
            queued_rows,
            rows_max,
        });
    }
    Ok(retry_after)
}

fn check(
    shared: &SharedState,
    info: &ModelInfo,
    rows: usize,
    element: ElementType,
    kinds: KindSet,
) -> Result<RequestSizes, Refusal> {
    if rows == 0 {
        return Err(Refusal::Invalid("the request has no row"));
    }
    if kinds.is_empty() {
        return Err(Refusal::Invalid("the request asks for no output"));
    }
    if element == ElementType::I32 {
        return Err(Refusal::Invalid("rows are 32-bit or 64-bit floats"));
    }
    if let Some(kind) = kinds.iter().find(|&kind| info.output(kind).is_none()) {
        return Err(Refusal::NoSuchOutput {
            model: info.name.clone(),
            kind,
        });
    }
    let row_bytes = info.features * element.bytes();
    let outputs = info
        .outputs
        .iter()
        .filter(|output| kinds.contains(output.kind));
    let result_bytes = outputs.fold(0_usize, |sum, out| sum.saturating_add(out.row_bytes()));
    let rows_max = shared
        .queue_rows_max()
        .min(ROWS_ARENA_BYTES / row_bytes.max(1))
        .min(RESULTS_ARENA_BYTES / result_bytes.max(1));
    let too_large = Refusal::TooLarge { rows, rows_max };
    if rows > rows_max {
        return Err(too_large);
    }
    let layout = Layout::new(&info.outputs, kinds, rows);
    match layout {
        Some(layout) if layout.bytes <= RESULTS_ARENA_BYTES => Ok(RequestSizes {
            input_bytes: rows * row_bytes,
            layout,
        }),
        _ => Err(too_large),
    }
}

/// The future of a reply.
struct Submitted {
    shared: Arc<SharedState>,
    /// How the state knows the request; `None` once it is answered.
    name: Option<(u64, u64)>,
    receiver: oneshot::Receiver<Answer>,
    layout: Layout,
    kinds: KindSet,
    edition: Arc<Edition>,
    rows: usize,
    in_flight: Option<InFlight>,
}

impl Future for Submitted {
    type Output = Result<Reply, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(answer) = Pin::new(&mut self.receiver).poll(context) else {
            return Poll::Pending;
        };
        self.name = None;
        if self.shared.reply_latency.is_serialization_slow() {
            self.shared.flush();
        }
        Poll::Ready(match answer {
            Ok(Ok((results, timing, answered))) => Ok(Reply {
                shared: Arc::clone(&self.shared),
                results: Some(results),
                layout: self.layout,
                kinds: self.kinds,
                edition: Arc::clone(&self.edition),
                rows: self.rows,
                timing,
                answered,
                taken: self.shared.now(),
                _on_the_way: self.in_flight.take(),
            }),
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(Failure::Stopped),
        })
    }
}

impl Drop for Submitted {
    fn drop(&mut self) {
        let Some(name) = self.name.take() else { return };
        self.shared
            .change(|state, now, out| state.withdraw(name, now, out));
        self.receiver.close();
        if let Ok(Ok((results, ..))) = self.receiver.try_recv() {
            self.shared.free_results(results);
        }
    }
}

/// How long the parts of a reply took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    pub queue: Duration,
    /// The part of it in which a worker was free: waited on purpose.
    pub deferred: Duration,
    /// In the worker's compute threads.
    pub compute: Duration,
}

impl Timing {
    pub(super) fn new(queue_nanos: u64, deferred_nanos: u64, compute_nanos: u64) -> Self {
        Self {
            queue: Duration::from_nanos(queue_nanos),
            deferred: Duration::from_nanos(deferred_nanos),
            compute: Duration::from_nanos(compute_nanos),
        }
    }
}

/// The results of one request, in shared memory. Dropping it gives the memory back, and says that
/// the reply is written: how long that took, requests that come later are told.
#[derive(Debug)]
pub struct Reply {
    shared: Arc<SharedState>,
    results: Option<Extent>,
    layout: Layout,
    kinds: KindSet,
    edition: Arc<Edition>,
    rows: usize,
    timing: Timing,
    /// When the engine had the results.
    answered: Nanos,
    /// When its request took them.
    taken: Nanos,
    _on_the_way: Option<InFlight>,
}

impl Reply {
    /// The output of `kind`, row-major, little-endian elements as [`super::OutputInfo`] describes;
    /// `None` if the request did not ask for it.
    #[must_use]
    pub fn output(&self, kind: Kind) -> Option<&[u8]> {
        if !self.kinds.contains(kind) {
            return None;
        }
        let output = self.edition.info.output(kind)?;
        let start = self.layout.offset(kind);
        self.results
            .as_ref()?
            .as_slice()
            .get(start..start + self.rows * output.row_bytes())
    }

    /// How long the parts took.
    #[must_use]
    pub fn timing(&self) -> Timing {
        self.timing
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(results) = self.results.take() {
            self.shared.free_results(results);
        }
        let (now, reply_latency) = (self.shared.now(), &self.shared.reply_latency);
        reply_latency.note(now.saturating_sub(self.answered), now);
        reply_latency.record_serialization(now.saturating_sub(self.taken));
    }
}
