//! The phase of a connection and the time at which it must be over: one atomic word that the
//! connection writes and that a sweep over all connections reads four times a second.
//!
//! No connection has a timer of its own for this: a request costs some stores, an idle connection
//! nothing. The clock counts sweeps, so that no request asks the kernel for the time.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::limit_metrics::{Limit, LimitMetrics, Open};
use crate::limits::{
    COUNTED_REPLY_BYTES_MIN, CROWDED_IDLE_MIN, FIRST_BYTES_TIME_MAX, HEAD_TIME_MAX, IDLE_TIME_MAX,
    IDLE_TIME_MAX_H2, REPLIES_BYTES_MAX, REPLY_BYTES_MAX, REPLY_RATE_MIN, REPLY_TIME_MAX,
    RESETS_FREE, SWEEP_PERIOD,
};

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Fresh,
    /// A head began to arrive.
    Head,
    /// The head is there, more of the body is awaited; the body has its own bounds.
    Body,
    /// A request is being served.
    Busy,
    /// A reply is on its way out.
    Reply,
    Idle,
}

/// What connections of one port share.
#[derive(Debug)]
pub(crate) struct ListenerState {
    /// In units of [`SWEEP_PERIOD`].
    clock: AtomicU32,
    /// Bytes of large replies that are not read yet.
    unread: AtomicUsize,
    /// The server stops: the next answer of each connection is its last.
    closes: AtomicBool,
    pub(crate) limit_metrics: LimitMetrics,
}

impl ListenerState {
    pub(crate) fn new(limit_metrics: LimitMetrics) -> Self {
        Self {
            clock: AtomicU32::new(0),
            unread: AtomicUsize::new(0),
            closes: AtomicBool::new(false),
            limit_metrics,
        }
    }

    /// From now on the next answer of each connection is its last.
    pub(crate) fn close(&self) {
        self.closes.store(true, Ordering::Relaxed);
    }

    fn now(&self) -> u32 {
        self.clock.load(Ordering::Relaxed)
    }

    /// Counts a large reply; false if there is no listener for it.
    fn keeps(&self, bytes: usize) -> bool {
        let before = self.unread.fetch_add(bytes, Ordering::Relaxed);
        let is_kept = before + bytes <= REPLIES_BYTES_MAX;
        if !is_kept {
            self.unread.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_kept
    }

    /// A period has passed; whether an epoch begins with the next.
    pub(crate) fn tick(&self) -> bool {
        let now = self.clock.fetch_add(1, Ordering::Relaxed) + 1;
        now.is_multiple_of(ticks(reply_time(REPLY_BYTES_MAX)))
    }

    /// An epoch is as long as the largest reply may take: what was to be sent in the one before
    /// last
    /// is overdue.
    fn epoch(&self) -> usize {
        (self.now() / ticks(reply_time(REPLY_BYTES_MAX))) as usize % 2
    }
}

/// In units of the clock, rounded up, and one more: the current one has partly passed.
fn ticks(time: Duration) -> u32 {
    let ticks = time.as_millis().div_ceil(SWEEP_PERIOD.as_millis()) + 1;
    u32::try_from(ticks).unwrap_or(u32::MAX)
}

/// How long a reader may take for so many bytes.
fn reply_time(bytes: usize) -> Duration {
    REPLY_TIME_MAX + Duration::from_secs(bytes as u64 / REPLY_RATE_MIN)
}

/// Phase, and the time at which it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen(u64);

impl Seen {
    fn new(phase: Phase, due: u32) -> Self {
        Self(u64::from(due) << 8 | phase as u64)
    }

    pub(crate) fn phase(self) -> Phase {
        match self.0 & 0xff {
            0 => Phase::Fresh,
            1 => Phase::Head,
            2 => Phase::Body,
            3 => Phase::Busy,
            4 => Phase::Reply,
            _ => Phase::Idle,
        }
    }

    fn due(self) -> u32 {
        (self.0 >> 8) as u32
    }
}

/// A control message to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// To end for this reason, if it is still as it was seen.
    Leave(Seen, Limit),
    /// To end for this reason, whatever it is at.
    Out(Limit),
    /// That the server stops: end after what is being served.
    Stop,
}

#[derive(Debug)]
pub struct ConnState {
    listener: Arc<ListenerState>,
    state: AtomicU64,
    is_http2: AtomicBool,
    /// It was asked to close to make room for others.
    is_crowded: AtomicBool,
    /// HTTP/2: calls that run and replies that are not sent.
    open: AtomicU32,
    begun: AtomicU32,
    given_up: AtomicU32,
    /// HTTP/2: replies that are not sent, of even and of odd epochs.
    unsent: [AtomicU32; 2],
    /// Microseconds that what was read last had waited for it.
    waited: AtomicU32,
    control: Mutex<Option<Control>>,
    wake: Notify,
    _open: Open,
}

impl ConnState {
    /// A connection that said nothing yet.
    pub(crate) fn new(listener: Arc<ListenerState>) -> Self {
        let seen = Seen::new(Phase::Fresh, listener.now() + ticks(FIRST_BYTES_TIME_MAX));
        let open = listener.limit_metrics.opened();
        Self {
            listener,
            state: AtomicU64::new(seen.0),
            is_http2: AtomicBool::new(false),
            is_crowded: AtomicBool::new(false),
            open: AtomicU32::new(0),
            begun: AtomicU32::new(0),
            given_up: AtomicU32::new(0),
            unsent: [AtomicU32::new(0), AtomicU32::new(0)],
            waited: AtomicU32::new(0),
            control: Mutex::new(None),
            wake: Notify::new(),
            _open: open,
        }
    }

    /// Counts that the client ran into `bound`.
    pub fn count(&self, bound: Limit) {
        self.listener.limit_metrics.count(bound);
    }

    /// It speaks HTTP/2, where several calls run at once and the connection is between calls when
    /// none does.
    pub(crate) fn speaks_http2(&self) {
        self.is_http2.store(true, Ordering::Relaxed);
        self.enter(Phase::Idle, Some(IDLE_TIME_MAX_H2));
    }

    fn is_http2(&self) -> bool {
        self.is_http2.load(Ordering::Relaxed)
    }

    fn enter(&self, phase: Phase, time: Option<Duration>) {
        let now = self.listener.now();
        let due = time.map_or(u32::MAX, |time| now.saturating_add(ticks(time)));
        self.state.store(Seen::new(phase, due).0, Ordering::Relaxed);
    }

    /// What it is at.
    pub(crate) fn seen(&self) -> Seen {
        Seen(self.state.load(Ordering::Relaxed))
    }

    /// Bytes came.
    pub(crate) fn hears(&self) {
        if matches!(self.seen().phase(), Phase::Fresh | Phase::Idle) && !self.is_http2() {
            self.enter(Phase::Head, Some(HEAD_TIME_MAX));
        }
    }

    /// Bytes were read that had been there for so long.
    pub(crate) fn read(&self, waited: Duration) {
        let micros = u32::try_from(waited.as_micros()).unwrap_or(u32::MAX);
        self.waited.store(micros, Ordering::Relaxed);
    }

    /// When the bytes that were read last had arrived.
    pub fn arrival(&self) -> Instant {
        let waited = Duration::from_micros(self.waited.load(Ordering::Relaxed).into());
        let now = Instant::now();
        now.checked_sub(waited).unwrap_or(now)
    }

    /// More of the body of its request is awaited, or all is there.
    pub fn awaits_body(&self, is_awaited: bool) {
        if !self.is_http2() {
            let phase = if is_awaited { Phase::Body } else { Phase::Busy };
            self.enter(phase, None);
        }
    }

    /// All that was to be written is written.
    pub(crate) fn flushed(&self) {
        if self.seen().phase() == Phase::Reply {
            self.enter(Phase::Idle, Some(IDLE_TIME_MAX));
        }
    }

    /// A request begins to be served.
    pub(crate) fn begin(self: &Arc<Self>) -> ActiveRequest {
        if self.is_http2() {
            self.begun.fetch_add(1, Ordering::Relaxed);
            self.open_one();
        } else {
            self.enter(Phase::Busy, None);
        }
        ActiveRequest {
            conn: Arc::clone(self),
            is_answered: false,
        }
    }

    fn open_one(&self) {
        if self.open.fetch_add(1, Ordering::AcqRel) == 0 {
            self.enter(Phase::Busy, None);
        }
    }

    fn close_one(&self) {
        if self.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.enter(Phase::Idle, Some(IDLE_TIME_MAX_H2));
        }
    }

    /// Its client gave up a request. One that gives up most of what it asks for only wants the work
    /// to be done.
    pub fn gave_up(&self) {
        self.count(Limit::BrokenOff);
        let given_up = self.given_up.fetch_add(1, Ordering::Relaxed) + 1;
        if given_up > RESETS_FREE && given_up > self.begun.load(Ordering::Relaxed) / 2 {
            self.send_control(Control::Out(Limit::Resets));
        }
    }

    /// Whether a request is being served, or its reply written.
    pub(crate) fn is_serving(&self) -> bool {
        let phase = self.seen().phase();
        matches!(phase, Phase::Busy | Phase::Reply) || self.open.load(Ordering::Acquire) > 0
    }

    /// Sends a control message; it replaces one that was not received yet.
    pub(crate) fn send_control(&self, control: Control) {
        *self.control.lock().unwrap_or_else(PoisonError::into_inner) = Some(control);
        self.wake.notify_one();
    }

    /// Waits for a control message.
    pub(crate) async fn next_control(&self) -> Control {
        loop {
            // bound: one turn for each message, and one that finds it already received
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

    /// Whether it is still as it was seen.
    pub(crate) fn is_still(&self, seen: Seen) -> bool {
        self.seen() == seen && self.open.load(Ordering::Acquire) == 0
    }

    /// Tells it to leave if its time is over.
    pub(crate) fn look(&self) {
        let seen = self.seen();
        if seen.due() > self.listener.now() {
            return;
        }
        let bound = match seen.phase() {
            Phase::Fresh => Limit::FirstBytesTime,
            Phase::Head => Limit::HeadTime,
            Phase::Reply => Limit::ReplyTime,
            Phase::Idle => Limit::IdleTime,
            Phase::Body | Phase::Busy => return,
        };
        self.send_control(Control::Leave(seen, bound));
    }

    /// How much it needs its place, as far as it could be asked to leave: the least first. Those
    /// that never sent a whole request come before those between two, each by age.
    pub(crate) fn rank(&self) -> Option<(bool, u32)> {
        let (seen, now) = (self.seen(), self.listener.now());
        let is_idle = match seen.phase() {
            Phase::Fresh | Phase::Head => false,
            Phase::Idle => true,
            Phase::Body | Phase::Busy | Phase::Reply => return None,
        };
        let time = if self.is_http2() {
            IDLE_TIME_MAX_H2
        } else {
            IDLE_TIME_MAX
        };
        let is_settled = seen.due() <= now.saturating_add(ticks(time - CROWDED_IDLE_MIN));
        let is_free = !self.is_crowded.load(Ordering::Relaxed) && (!is_idle || is_settled);
        is_free.then_some((is_idle, seen.due()))
    }

    /// Tells it to leave for others.
    pub(crate) fn crowd_out(&self) {
        self.is_crowded.store(true, Ordering::Relaxed);
        self.send_control(Control::Leave(self.seen(), Limit::CrowdedOut));
    }

    /// It stays after all.
    pub(crate) fn stays(&self) {
        self.is_crowded.store(false, Ordering::Relaxed);
    }

    /// Tells it to go if replies of the epoch before last are not read. To be called when an epoch
    /// begins.
    pub(crate) fn look_for_unread(&self) {
        let [even, odd] = &self.unsent;
        let of_this_epoch = if self.listener.epoch() == 0 {
            even
        } else {
            odd
        };
        if of_this_epoch.load(Ordering::Relaxed) > 0 {
            self.send_control(Control::Out(Limit::ReplyTime));
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
    /// Whether the client is to be told that no other answer follows on its connection.
    pub fn is_last(&self) -> bool {
        !self.conn.is_http2() && self.conn.listener.closes.load(Ordering::Relaxed)
    }

    /// Where it came in.
    pub fn conn(&self) -> &ConnState {
        &self.conn
    }

    /// It has its answer, or is given one bit by bit until it is dropped.
    pub fn answered(&mut self) {
        self.is_answered = true;
    }

    /// Makes the bytes of its reply count until they are sent; `None` if too many bytes wait for
    /// other readers.
    pub fn send(&mut self, bytes: Bytes) -> Option<Bytes> {
        let (conn, length) = (&self.conn, bytes.len());
        let is_counted = length >= COUNTED_REPLY_BYTES_MIN;
        if is_counted && !conn.listener.keeps(length) {
            conn.count(Limit::RepliesBytes);
            return None;
        }
        self.is_answered = true;
        let epoch = conn.is_http2().then(|| conn.listener.epoch());
        match epoch {
            None => conn.enter(Phase::Reply, Some(reply_time(length))),
            Some(epoch) => {
                conn.unsent[epoch].fetch_add(1, Ordering::Relaxed);
                conn.open_one();
            }
        }
        if epoch.is_none() && !is_counted {
            return Some(bytes);
        }
        Some(Bytes::from_owner(TrackedBody {
            conn: Arc::clone(conn),
            bytes,
            counted: if is_counted { length } else { 0 },
            epoch,
        }))
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        if self.conn.is_http2() {
            self.conn.close_one();
        }
        if !self.is_answered {
            self.conn.gave_up();
        }
    }
}

/// Bytes of a reply that are not sent yet.
struct TrackedBody {
    conn: Arc<ConnState>,
    bytes: Bytes,
    counted: usize,
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
            .unread
            .fetch_sub(self.counted, Ordering::Relaxed);
        if let Some(epoch) = self.epoch {
            self.conn.unsent[epoch].fetch_sub(1, Ordering::Relaxed);
            self.conn.close_one();
        }
    }
}

#[cfg(test)]
mod tests;
