//! The phase of a connection and its deadline, in one atomic word that is written by the connection
//! and read four times per second by a sweep over all connections.
//!
//! There are no timers per connection: a request costs a few stores, an idle connection nothing.
//! The clock counts sweeps, so that requests need no system call to read the time.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::limit_metrics::{Limit, LimitMetrics, OpenConnection};
use crate::limits::{
    EVICTION_IDLE_MIN, FIRST_BYTES_TIME_MAX, HEAD_TIME_MAX, IDLE_TIME_MAX, IDLE_TIME_MAX_H2,
    REPLIES_BYTES_MAX, REPLY_BYTES_MAX, REPLY_RATE_MIN, REPLY_TIME_MAX, RESETS_FREE, SWEEP_PERIOD,
    TRACKED_REPLY_BYTES_MIN,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No byte was received yet.
    New,
    /// A part of a request head was received.
    Head,
    /// The head was received, the body is incomplete; the body has its own time limits.
    Body,
    /// A request is being served.
    Serving,
    /// A reply is being sent.
    Replying,
    /// Between two requests.
    Idle,
}

/// Unsent bytes of large replies on one port.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnsentBytes(Arc<AtomicUsize>);

/// State shared by the connections of one port in one event loop.
#[derive(Debug)]
pub(crate) struct ListenerState {
    /// Time in units of [`SWEEP_PERIOD`].
    clock: AtomicU32,
    /// Shared by all event loops of the port.
    unsent_bytes: UnsentBytes,
    /// Shutdown was announced: an HTTP/1.1 connection opened before is closed after its next reply.
    is_announced: AtomicBool,
    /// The server is shutting down: every connection is closed after its next reply.
    is_closing: AtomicBool,
    pub(crate) limit_metrics: LimitMetrics,
}

impl ListenerState {
    pub(crate) fn new(limit_metrics: LimitMetrics, unsent_bytes: UnsentBytes) -> Self {
        Self {
            clock: AtomicU32::new(0),
            unsent_bytes,
            is_announced: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            limit_metrics,
        }
    }

    /// Announces the shutdown.
    pub(crate) fn announce(&self) {
        self.is_announced.store(true, Ordering::Relaxed);
    }

    fn is_announced(&self) -> bool {
        self.is_announced.load(Ordering::Relaxed)
    }

    /// Closes every connection after its next reply.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }

    fn now(&self) -> u32 {
        self.clock.load(Ordering::Relaxed)
    }

    /// Adds the bytes of a large reply to the unsent bytes; returns false if the limit is exceeded.
    fn reserve_reply(&self, bytes: usize) -> bool {
        let before = self.unsent_bytes.0.fetch_add(bytes, Ordering::Relaxed);
        let is_reserved = before + bytes <= REPLIES_BYTES_MAX;
        if !is_reserved {
            self.unsent_bytes.0.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_reserved
    }

    /// Advances the clock by one period; returns whether a new epoch begins.
    pub(crate) fn tick(&self) -> bool {
        let now = self.clock.fetch_add(1, Ordering::Relaxed) + 1;
        now.is_multiple_of(ticks(reply_time(REPLY_BYTES_MAX)))
    }

    /// Parity of the epoch. An epoch is as long as the time limit for sending the largest reply, so
    /// a reply is overdue if it is still unsent when the second epoch after its own begins.
    fn epoch(&self) -> usize {
        (self.now() / ticks(reply_time(REPLY_BYTES_MAX))) as usize % 2
    }
}

/// Converts a time to clock units: rounded up, plus one because the current unit has partly passed.
fn ticks(time: Duration) -> u32 {
    let ticks = time.as_millis().div_ceil(SWEEP_PERIOD.as_millis()) + 1;
    u32::try_from(ticks).unwrap_or(u32::MAX)
}

/// Time limit for sending a reply of this size.
fn reply_time(bytes: usize) -> Duration {
    REPLY_TIME_MAX + Duration::from_secs(bytes as u64 / REPLY_RATE_MIN)
}

/// A phase and its deadline in units of the listener's clock, packed into one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PhaseDeadline(u64);

impl PhaseDeadline {
    fn new(phase: Phase, deadline: u32) -> Self {
        Self(u64::from(deadline) << 8 | phase as u64)
    }

    pub(crate) fn phase(self) -> Phase {
        match self.0 & 0xff {
            0 => Phase::New,
            1 => Phase::Head,
            2 => Phase::Body,
            3 => Phase::Serving,
            4 => Phase::Replying,
            _ => Phase::Idle,
        }
    }

    fn deadline(self) -> u32 {
        (self.0 >> 8) as u32
    }
}

/// A control message to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// Close for this reason if the phase has not changed.
    CloseIfUnchanged(PhaseDeadline, Limit),
    /// Close for this reason regardless of the phase.
    Close(Limit),
    /// The server is shutting down: close after the current request.
    Shutdown,
}

/// State of one connection.
#[derive(Debug)]
pub struct ConnState {
    listener: Arc<ListenerState>,
    /// A packed [`PhaseDeadline`].
    phase: AtomicU64,
    is_http2: AtomicBool,
    /// The connection was opened after the shutdown was announced.
    opened_after_announcement: bool,
    /// The connection was asked to close to make room for others.
    is_evicted: AtomicBool,
    /// HTTP/2: running requests and unsent replies.
    open_streams: AtomicU32,
    /// HTTP/2: number of requests so far.
    requests_begun: AtomicU32,
    requests_abandoned: AtomicU32,
    /// HTTP/2: unsent replies, by parity of their epoch.
    unsent_replies: [AtomicU32; 2],
    /// How long the bytes of the last read had waited in the socket buffer, microseconds.
    read_delay: AtomicU32,
    control: Mutex<Option<Control>>,
    wake: Notify,
    _open: OpenConnection,
}

impl ConnState {
    /// State of a connection that has not received anything.
    pub(crate) fn new(listener: Arc<ListenerState>) -> Self {
        let initial = PhaseDeadline::new(Phase::New, listener.now() + ticks(FIRST_BYTES_TIME_MAX));
        let open = listener.limit_metrics.connection_opened();
        Self {
            opened_after_announcement: listener.is_announced(),
            listener,
            phase: AtomicU64::new(initial.0),
            is_http2: AtomicBool::new(false),
            is_evicted: AtomicBool::new(false),
            open_streams: AtomicU32::new(0),
            requests_begun: AtomicU32::new(0),
            requests_abandoned: AtomicU32::new(0),
            unsent_replies: [AtomicU32::new(0), AtomicU32::new(0)],
            read_delay: AtomicU32::new(0),
            control: Mutex::new(None),
            wake: Notify::new(),
            _open: open,
        }
    }

    /// Counts that the client reached `limit`.
    pub fn count(&self, limit: Limit) {
        self.listener.limit_metrics.count(limit);
    }

    /// Switches to HTTP/2, where requests run concurrently and the connection is idle if none is
    /// running.
    pub(crate) fn set_http2(&self) {
        self.is_http2.store(true, Ordering::Relaxed);
        self.enter(Phase::Idle, Some(IDLE_TIME_MAX_H2));
    }

    fn is_http2(&self) -> bool {
        self.is_http2.load(Ordering::Relaxed)
    }

    fn enter(&self, phase: Phase, time: Option<Duration>) {
        let now = self.listener.now();
        let deadline = time.map_or(u32::MAX, |time| now.saturating_add(ticks(time)));
        self.phase
            .store(PhaseDeadline::new(phase, deadline).0, Ordering::Relaxed);
    }

    /// The current phase and its deadline.
    pub(crate) fn phase_deadline(&self) -> PhaseDeadline {
        PhaseDeadline(self.phase.load(Ordering::Relaxed))
    }

    /// Records that bytes were received.
    pub(crate) fn bytes_received(&self) {
        if matches!(self.phase_deadline().phase(), Phase::New | Phase::Idle) && !self.is_http2() {
            self.enter(Phase::Head, Some(HEAD_TIME_MAX));
        }
    }

    /// Records how long the bytes of a read had waited in the socket buffer.
    pub(crate) fn set_read_delay(&self, waited: Duration) {
        let micros = u32::try_from(waited.as_micros()).unwrap_or(u32::MAX);
        self.read_delay.store(micros, Ordering::Relaxed);
    }

    /// When the bytes of the last read arrived in the socket buffer.
    pub fn arrival(&self) -> Instant {
        let waited = Duration::from_micros(self.read_delay.load(Ordering::Relaxed).into());
        let now = Instant::now();
        now.checked_sub(waited).unwrap_or(now)
    }

    /// Records whether the body of the request is being read.
    pub fn set_reading_body(&self, is_reading: bool) {
        if !self.is_http2() {
            let phase = if is_reading {
                Phase::Body
            } else {
                Phase::Serving
            };
            self.enter(phase, None);
        }
    }

    /// Records that all bytes were sent.
    pub(crate) fn flushed(&self) {
        if self.phase_deadline().phase() == Phase::Replying {
            self.enter(Phase::Idle, Some(IDLE_TIME_MAX));
        }
    }

    /// Begins a request; it is active until the result is dropped.
    pub(crate) fn begin_request(self: &Arc<Self>) -> ActiveRequest {
        if self.is_http2() {
            self.requests_begun.fetch_add(1, Ordering::Relaxed);
            self.stream_opened();
        } else {
            self.enter(Phase::Serving, None);
        }
        ActiveRequest {
            conn: Arc::clone(self),
            is_answered: false,
        }
    }

    fn stream_opened(&self) {
        if self.open_streams.fetch_add(1, Ordering::AcqRel) == 0 {
            self.enter(Phase::Serving, None);
        }
    }

    fn stream_closed(&self) {
        if self.open_streams.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.enter(Phase::Idle, Some(IDLE_TIME_MAX_H2));
        }
    }

    /// Records that the client abandoned a request. A client that abandons most of its requests is
    /// disconnected, because it only wastes the server's work.
    pub fn record_abandoned_request(&self) {
        self.count(Limit::Aborted);
        let abandoned = self.requests_abandoned.fetch_add(1, Ordering::Relaxed) + 1;
        let begun = self.requests_begun.load(Ordering::Relaxed);
        if abandoned > RESETS_FREE && abandoned > begun / 2 {
            self.send_control(Control::Close(Limit::Resets));
        }
    }

    /// Tracks a reply, or a part of one, until it is sent; `None` if there are too many unsent
    /// bytes over all connections.
    pub fn track(self: &Arc<Self>, bytes: Bytes) -> Option<Bytes> {
        let length = bytes.len();
        let is_large = length >= TRACKED_REPLY_BYTES_MIN;
        if is_large && !self.listener.reserve_reply(length) {
            self.count(Limit::RepliesBytes);
            return None;
        }
        let epoch = self.is_http2().then(|| self.listener.epoch());
        match epoch {
            None => self.enter(Phase::Replying, Some(reply_time(length))),
            Some(epoch) => {
                self.unsent_replies[epoch].fetch_add(1, Ordering::Relaxed);
                self.stream_opened();
            }
        }
        if epoch.is_none() && !is_large {
            return Some(bytes);
        }
        Some(Bytes::from_owner(TrackedBody {
            conn: Arc::clone(self),
            bytes,
            counted_bytes: if is_large { length } else { 0 },
            epoch,
        }))
    }

    /// Whether a request is being served, or its reply is being sent.
    pub(crate) fn is_serving(&self) -> bool {
        let phase = self.phase_deadline().phase();
        matches!(phase, Phase::Serving | Phase::Replying)
            || self.open_streams.load(Ordering::Acquire) > 0
    }

    /// Sends a control message; it replaces a pending one.
    pub(crate) fn send_control(&self, control: Control) {
        *self.control.lock().unwrap_or_else(PoisonError::into_inner) = Some(control);
        self.wake.notify_one();
    }

    /// Waits for a control message.
    pub(crate) async fn next_control(&self) -> Control {
        loop {
            // bound: one pass per message, and one if the message was already received
            self.wake.notified().await;
            let control = self
                .control
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            if let Some(control) = control {
                return control;
            }
        }
    }

    /// Whether the phase is still `observed` and no request is running.
    pub(crate) fn is_unchanged(&self, observed: PhaseDeadline) -> bool {
        self.phase_deadline() == observed && self.open_streams.load(Ordering::Acquire) == 0
    }

    /// Sends [`Control::CloseIfUnchanged`] if the deadline of the phase has passed.
    pub(crate) fn check_deadline(&self) {
        let observed = self.phase_deadline();
        if observed.deadline() > self.listener.now() {
            return;
        }
        let limit = match observed.phase() {
            Phase::New => Limit::FirstBytesTime,
            Phase::Head => Limit::HeadTime,
            Phase::Replying => Limit::ReplyTime,
            Phase::Idle => Limit::IdleTime,
            Phase::Body | Phase::Serving => return,
        };
        self.send_control(Control::CloseIfUnchanged(observed, limit));
    }

    /// Eviction order, lowest first: connections that never sent a complete request, then idle
    /// ones, each by age. `None` if the connection must not be evicted.
    pub(crate) fn eviction_rank(&self) -> Option<(bool, u32)> {
        let (observed, now) = (self.phase_deadline(), self.listener.now());
        let is_idle = match observed.phase() {
            Phase::New | Phase::Head => false,
            Phase::Idle => true,
            Phase::Body | Phase::Serving | Phase::Replying => return None,
        };
        let time = if self.is_http2() {
            IDLE_TIME_MAX_H2
        } else {
            IDLE_TIME_MAX
        };
        let is_long_idle =
            observed.deadline() <= now.saturating_add(ticks(time - EVICTION_IDLE_MIN));
        let is_evictable = !self.is_evicted.load(Ordering::Relaxed) && (!is_idle || is_long_idle);
        is_evictable.then_some((is_idle, observed.deadline()))
    }

    /// Asks the connection to close to make room for others.
    pub(crate) fn evict(&self) {
        self.is_evicted.store(true, Ordering::Relaxed);
        self.send_control(Control::CloseIfUnchanged(
            self.phase_deadline(),
            Limit::Evicted,
        ));
    }

    /// Records that the connection was not closed, because a request arrived.
    pub(crate) fn cancel_eviction(&self) {
        self.is_evicted.store(false, Ordering::Relaxed);
    }

    /// Closes the connection if replies of the epoch before the last one are unsent. Must be called
    /// when an epoch begins.
    pub(crate) fn check_unsent_replies(&self) {
        let [even, odd] = &self.unsent_replies;
        let overdue = if self.listener.epoch() == 0 {
            even
        } else {
            odd
        };
        if overdue.load(Ordering::Relaxed) > 0 {
            self.send_control(Control::Close(Limit::ReplyTime));
        }
    }
}

/// A request that is being served.
#[derive(Debug)]
pub struct ActiveRequest {
    conn: Arc<ConnState>,
    is_answered: bool,
}

impl ActiveRequest {
    /// Whether the connection is closed after this reply, which then needs `Connection: close`.
    pub fn is_last(&self) -> bool {
        let (conn, listener) = (&self.conn, &self.conn.listener);
        let is_leaving = listener.is_announced() && !conn.opened_after_announcement;
        !conn.is_http2() && (is_leaving || listener.is_closing.load(Ordering::Relaxed))
    }

    /// Whether the shutdown of the server was announced.
    pub fn is_shutdown_announced(&self) -> bool {
        self.conn.listener.is_announced()
    }

    /// The connection of the request.
    pub fn conn(&self) -> &ConnState {
        &self.conn
    }

    /// Records that the request is answered, or that its stream of replies will be complete when
    /// `self` is dropped. Without this call a dropped request counts as abandoned.
    pub fn set_answered(&mut self) {
        self.is_answered = true;
    }

    /// Shared state of the connection, for use after the handler has returned.
    pub fn shared_conn(&self) -> Arc<ConnState> {
        Arc::clone(&self.conn)
    }

    /// Tracks the reply until it is sent; `None` if there are too many unsent bytes over all
    /// connections.
    pub fn track(&mut self, bytes: Bytes) -> Option<Bytes> {
        let tracked = self.conn.track(bytes);
        self.is_answered |= tracked.is_some();
        tracked
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        if self.conn.is_http2() {
            self.conn.stream_closed();
        }
        if !self.is_answered {
            self.conn.record_abandoned_request();
        }
    }
}

/// The body of a reply; it is dropped once it is sent.
struct TrackedBody {
    conn: Arc<ConnState>,
    bytes: Bytes,
    /// Length, if it counts toward the unsent bytes of the listener; otherwise 0.
    counted_bytes: usize,
    /// HTTP/2: parity of the epoch in which the reply was tracked.
    epoch: Option<usize>,
}

impl AsRef<[u8]> for TrackedBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        self.conn
            .listener
            .unsent_bytes
            .0
            .fetch_sub(self.counted_bytes, Ordering::Relaxed);
        if let Some(epoch) = self.epoch {
            self.conn.unsent_replies[epoch].fetch_sub(1, Ordering::Relaxed);
            self.conn.stream_closed();
        }
    }
}

#[cfg(test)]
mod tests;
