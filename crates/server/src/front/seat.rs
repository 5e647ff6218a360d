//! What a connection is at, and until when: one word that the connection writes as it goes, and that
//! a sweep over all connections reads four times a second.
//!
//! No connection has a timer of its own for this: a request costs some stores, an idle connection
//! nothing. The clock is the sweep's, so that nobody asks the kernel for the time.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;

use super::bounds::{Bound, Open, Reached};
use super::limits::{
    COUNTED_REPLY_BYTES_MIN, CROWDED_IDLE_MIN, FIRST_BYTES_TIME_MAX, HEAD_TIME_MAX, IDLE_TIME_MAX,
    IDLE_TIME_MAX_H2, REPLIES_BYTES_MAX, REPLY_BYTES_MAX, REPLY_RATE_MIN, REPLY_TIME_MAX,
    RESETS_FREE, SWEEP_PERIOD,
};

/// What a connection is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing came yet.
    Fresh,
    /// A head began to arrive.
    Head,
    /// The head is there, more of the body is awaited; the body has its own bounds.
    Body,
    /// A request is being served.
    Busy,
    /// A reply is on its way out.
    Reply,
    /// Between requests.
    Idle,
}

/// What connections of one port share.
#[derive(Debug)]
pub(super) struct Room {
    /// In units of [`SWEEP_PERIOD`].
    clock: AtomicU32,
    /// Bytes of large replies that are not read yet.
    unread: AtomicUsize,
    /// The server stops: the next answer of each connection is its last.
    closes: AtomicBool,
    pub(super) reached: Reached,
}

impl Room {
    pub(super) fn new(reached: Reached) -> Self {
        Self {
            clock: AtomicU32::new(0),
            unread: AtomicUsize::new(0),
            closes: AtomicBool::new(false),
            reached,
        }
    }

    /// From now on the next answer of each connection is its last.
    pub(super) fn close(&self) {
        self.closes.store(true, Ordering::Relaxed);
    }

    fn now(&self) -> u32 {
        self.clock.load(Ordering::Relaxed)
    }

    /// Counts a large reply; false if there is no room for it.
    fn keeps(&self, bytes: usize) -> bool {
        let before = self.unread.fetch_add(bytes, Ordering::Relaxed);
        let is_kept = before + bytes <= REPLIES_BYTES_MAX;
        if !is_kept {
            self.unread.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_kept
    }

    /// A period has passed; whether an era begins with the next.
    pub(super) fn tick(&self) -> bool {
        let now = self.clock.fetch_add(1, Ordering::Relaxed) + 1;
        now.is_multiple_of(ticks(reply_time(REPLY_BYTES_MAX)))
    }

    /// An era is as long as the largest reply may take: what was to be sent in the one before last
    /// is overdue.
    fn era(&self) -> usize {
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
pub(super) struct Seen(u64);

impl Seen {
    fn new(phase: Phase, due: u32) -> Self {
        Self(u64::from(due) << 8 | phase as u64)
    }

    pub(super) fn phase(self) -> Phase {
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

/// What a connection is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// To end for this reason, if it is still as it was seen.
    Leave(Seen, Bound),
    /// To end for this reason, whatever it is at.
    Out(Bound),
    /// That the server stops: end after what is being served.
    Stop,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Seat {
    room: Arc<Room>,
    state: AtomicU64,
    is_two: AtomicBool,
    /// It was told to leave for others.
    is_crowded: AtomicBool,
    /// HTTP/2: calls that run and replies that are not sent.
    open: AtomicU32,
    begun: AtomicU32,
    given_up: AtomicU32,
    /// HTTP/2: replies that are not sent, of even and of odd eras.
    unsent: [AtomicU32; 2],
    /// Microseconds that what was read last had waited for it.
    waited: AtomicU32,
    told: Mutex<Option<Told>>,
    wake: Notify,
    _open: Open,
}

impl Seat {
    /// A connection that said nothing yet.
    pub(super) fn new(room: Arc<Room>) -> Self {
        let seen = Seen::new(Phase::Fresh, room.now() + ticks(FIRST_BYTES_TIME_MAX));
        let open = room.reached.opened();
        Self {
            room,
            state: AtomicU64::new(seen.0),
            is_two: AtomicBool::new(false),
            is_crowded: AtomicBool::new(false),
            open: AtomicU32::new(0),
            begun: AtomicU32::new(0),
            given_up: AtomicU32::new(0),
            unsent: [AtomicU32::new(0), AtomicU32::new(0)],
            waited: AtomicU32::new(0),
            told: Mutex::new(None),
            wake: Notify::new(),
            _open: open,
        }
    }

    /// Counts that the client ran into `bound`.
    pub(super) fn count(&self, bound: Bound) {
        self.room.reached.count(bound);
    }

    /// It speaks HTTP/2, where several calls run at once and the connection is between calls when
    /// none does.
    pub(super) fn speaks_two(&self) {
        self.is_two.store(true, Ordering::Relaxed);
        self.enter(Phase::Idle, Some(IDLE_TIME_MAX_H2));
    }

    fn is_two(&self) -> bool {
        self.is_two.load(Ordering::Relaxed)
    }

    fn enter(&self, phase: Phase, time: Option<Duration>) {
        let now = self.room.now();
        let due = time.map_or(u32::MAX, |time| now.saturating_add(ticks(time)));
        self.state.store(Seen::new(phase, due).0, Ordering::Relaxed);
    }

    /// What it is at.
    pub(super) fn seen(&self) -> Seen {
        Seen(self.state.load(Ordering::Relaxed))
    }

    /// Bytes came.
    pub(super) fn hears(&self) {
        if matches!(self.seen().phase(), Phase::Fresh | Phase::Idle) && !self.is_two() {
            self.enter(Phase::Head, Some(HEAD_TIME_MAX));
        }
    }

    /// Bytes were read that had been there for so long.
    pub(super) fn read(&self, waited: Duration) {
        let micros = u32::try_from(waited.as_micros()).unwrap_or(u32::MAX);
        self.waited.store(micros, Ordering::Relaxed);
    }

    /// When the bytes that were read last had arrived.
    pub(super) fn arrival(&self) -> Instant {
        let waited = Duration::from_micros(self.waited.load(Ordering::Relaxed).into());
        let now = Instant::now();
        now.checked_sub(waited).unwrap_or(now)
    }

    /// More of the body of its request is awaited, or all is there.
    pub(super) fn awaits_body(&self, is_awaited: bool) {
        if !self.is_two() {
            let phase = if is_awaited { Phase::Body } else { Phase::Busy };
            self.enter(phase, None);
        }
    }

    /// All that was to be written is written.
    pub(super) fn flushed(&self) {
        if self.seen().phase() == Phase::Reply {
            self.enter(Phase::Idle, Some(IDLE_TIME_MAX));
        }
    }

    /// A request begins to be served.
    pub(super) fn begin(self: &Arc<Self>) -> Call {
        if self.is_two() {
            self.begun.fetch_add(1, Ordering::Relaxed);
            self.open_one();
        } else {
            self.enter(Phase::Busy, None);
        }
        Call {
            seat: Arc::clone(self),
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
    pub(super) fn gave_up(&self) {
        self.count(Bound::BrokenOff);
        let given_up = self.given_up.fetch_add(1, Ordering::Relaxed) + 1;
        if given_up > RESETS_FREE && given_up > self.begun.load(Ordering::Relaxed) / 2 {
            self.tell(Told::Out(Bound::Resets));
        }
    }

    /// Whether a request is being served, or its reply written.
    pub(super) fn is_serving(&self) -> bool {
        let phase = self.seen().phase();
        matches!(phase, Phase::Busy | Phase::Reply) || self.open.load(Ordering::Acquire) > 0
    }

    /// Tells the connection something, in place of what it was told before.
    pub(super) fn tell(&self, told: Told) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
        self.wake.notify_one();
    }

    /// Waits for what it is told.
    pub(super) async fn listen(&self) -> Told {
        loop {
            // bound: one turn each time something is told, and one that finds it heard
            self.wake.notified().await;
            let told = self
                .told
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            if let Some(told) = told {
                return told;
            }
        }
    }

    /// Whether it is still as it was seen.
    pub(super) fn is_still(&self, seen: Seen) -> bool {
        self.seen() == seen && self.open.load(Ordering::Acquire) == 0
    }

    /// Tells it to leave if its time is over.
    pub(super) fn look(&self) {
        let seen = self.seen();
        if seen.due() > self.room.now() {
            return;
        }
        let bound = match seen.phase() {
            Phase::Fresh => Bound::FirstBytesTime,
            Phase::Head => Bound::HeadTime,
            Phase::Reply => Bound::ReplyTime,
            Phase::Idle => Bound::IdleTime,
            Phase::Body | Phase::Busy => return,
        };
        self.tell(Told::Leave(seen, bound));
    }

    /// How much it needs its place, as far as it could be asked to leave: the least first. Those
    /// that never sent a whole request come before those between two, each by age.
    pub(super) fn rank(&self) -> Option<(bool, u32)> {
        let (seen, now) = (self.seen(), self.room.now());
        let is_idle = match seen.phase() {
            Phase::Fresh | Phase::Head => false,
            Phase::Idle => true,
            Phase::Body | Phase::Busy | Phase::Reply => return None,
        };
        let time = if self.is_two() {
            IDLE_TIME_MAX_H2
        } else {
            IDLE_TIME_MAX
        };
        let is_settled = seen.due() <= now.saturating_add(ticks(time - CROWDED_IDLE_MIN));
        let is_free = !self.is_crowded.load(Ordering::Relaxed) && (!is_idle || is_settled);
        is_free.then_some((is_idle, seen.due()))
    }

    /// Tells it to leave for others.
    pub(super) fn crowd_out(&self) {
        self.is_crowded.store(true, Ordering::Relaxed);
        self.tell(Told::Leave(self.seen(), Bound::CrowdedOut));
    }

    /// It stays after all.
    pub(super) fn stays(&self) {
        self.is_crowded.store(false, Ordering::Relaxed);
    }

    /// Tells it to go if replies of the era before last are not read. To be called when an era
    /// begins.
    pub(super) fn look_for_unread(&self) {
        let [even, odd] = &self.unsent;
        let of_this_era = if self.room.era() == 0 { even } else { odd };
        if of_this_era.load(Ordering::Relaxed) > 0 {
            self.tell(Told::Out(Bound::ReplyTime));
        }
    }
}

/// A request that is being served.
#[derive(Debug)]
pub(super) struct Call {
    seat: Arc<Seat>,
    is_answered: bool,
}

impl Call {
    /// Whether the client is to be told that no other answer follows on its connection.
    pub(super) fn is_last(&self) -> bool {
        !self.seat.is_two() && self.seat.room.closes.load(Ordering::Relaxed)
    }

    /// Where it came in.
    pub(super) fn seat(&self) -> &Seat {
        &self.seat
    }

    /// It has its answer, or is given one bit by bit until it is dropped.
    pub(super) fn answered(&mut self) {
        self.is_answered = true;
    }

    /// Makes the bytes of its reply count until they are sent; `None` if too many bytes wait for
    /// other readers.
    pub(super) fn send(&mut self, bytes: Bytes) -> Option<Bytes> {
        let (seat, length) = (&self.seat, bytes.len());
        let is_counted = length >= COUNTED_REPLY_BYTES_MIN;
        if is_counted && !seat.room.keeps(length) {
            seat.count(Bound::RepliesBytes);
            return None;
        }
        self.is_answered = true;
        let era = seat.is_two().then(|| seat.room.era());
        match era {
            None => seat.enter(Phase::Reply, Some(reply_time(length))),
            Some(era) => {
                seat.unsent[era].fetch_add(1, Ordering::Relaxed);
                seat.open_one();
            }
        }
        if era.is_none() && !is_counted {
            return Some(bytes);
        }
        Some(Bytes::from_owner(Parcel {
            seat: Arc::clone(seat),
            bytes,
            counted: if is_counted { length } else { 0 },
            era,
        }))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.seat.is_two() {
            self.seat.close_one();
        }
        if !self.is_answered {
            self.seat.gave_up();
        }
    }
}

/// Bytes of a reply that are not sent yet.
struct Parcel {
    seat: Arc<Seat>,
    bytes: Bytes,
    counted: usize,
    era: Option<usize>,
}

impl AsRef<[u8]> for Parcel {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        self.seat
            .room
            .unread
            .fetch_sub(self.counted, Ordering::Relaxed);
        if let Some(era) = self.era {
            self.seat.unsent[era].fetch_sub(1, Ordering::Relaxed);
            self.seat.close_one();
        }
    }
}

#[cfg(test)]
mod tests;
