//! The ring in shared memory through which the front and one incarnation of a worker exchange one
//! batch at a time, identified by a sequence number.
//!
//! Each word has one writer at a time. The front writes the batch, then the doorbell; the worker
//! writes results and states, then `finished`. No lock is held across a crash: after a crash the
//! front relies on `finished` only, and each incarnation has its own ring, so that words of
//! different incarnations are never confused. The front does not trust the words: a state other
//! than exactly "done" is a failure, numbers are clamped.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use albacore_os::futex;
use albacore_os::{FUTEX_BYTES, OsError, SharedMemory, Words};

use crate::command::RevisionId;
use crate::limits::{BATCH_REQUESTS_MAX, LISTED_REVISIONS_MAX, REASON_BYTES_MAX, SPIN_TIME_MAX};

/// Doorbell value that stops the worker; sequence numbers are smaller.
const STOP: u32 = u32::MAX;

/// 32-bit words, each on its own cache line.
const DOORBELL: usize = 0;
const WAITING: usize = 16;
const STATE: usize = 32;
const FINISHED: usize = 48;
const BEGUN: usize = 64;

/// 64-bit words of the batch.
const SEGMENTS: usize = 0;
const COMPUTE_NANOS: usize = 1;
const REASON_BYTES: usize = 2;
const IS_COMMAND: usize = 3;
const THREADS: usize = 4;
const SHARING: usize = 5;
const SPIN_NANOS: usize = 6;
const EVENT_LOOP: usize = 7;
const REASON: usize = 8;
const FIRST_SEGMENT: usize = REASON + REASON_BYTES_MAX / 8;
const SEGMENT_WORDS: usize = 8;
/// The number of revisions that the worker has open, followed by their ids.
const OPEN_REVISIONS: usize = FIRST_SEGMENT + BATCH_REQUESTS_MAX * SEGMENT_WORDS;
const WORDS: usize = OPEN_REVISIONS + 1 + LISTED_REVISIONS_MAX;

/// Index of a segment's state among its words.
const SEGMENT_STATE: usize = 7;

/// The rows of one request in a batch, and the offsets of the rows and their results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Selects the image.
    pub revision: RevisionId,
    /// Bits of the kinds of output.
    pub kinds: u8,
    /// Whether the rows are 64-bit floats instead of 32-bit ones.
    pub is_double: bool,
    /// First row of the request in this batch.
    pub first_row: usize,
    /// Rows in this batch.
    pub rows: usize,
    /// Rows of the whole request, which determine the layout of its outputs.
    pub request_rows: usize,
    /// Offset of the request's rows.
    pub input_offset: usize,
    /// Offset of the request's outputs.
    pub results_offset: usize,
}

/// State of a segment, as the worker reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    Pending,
    Done,
    Failed,
}

impl SegmentState {
    const fn word(self) -> u64 {
        match self {
            Self::Pending => 0,
            Self::Done => 0x444f_4e45,
            Self::Failed => 0x4641_494c,
        }
    }
}

/// How the threads of a worker divided a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkDivision {
    /// One thread computed it.
    SingleThread,
    /// Each thread computed some of the rows.
    Rows,
    /// Each thread computed some of the model's trees, for all rows.
    Trees,
}

impl WorkDivision {
    /// In the order of their words.
    pub const ALL: [Self; 3] = [Self::SingleThread, Self::Rows, Self::Trees];

    /// Name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SingleThread => "alone",
            Self::Rows => "rows",
            Self::Trees => "trees",
        }
    }
}

/// Index of an event loop, from 0. State of a request that need not be shared (memory, submission,
/// notification) is owned by its loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopIndex(pub usize);

/// Limits of a worker's cpu use for a batch and after it, and the event loop that it notifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComputeLimits {
    /// Threads that may compute the batch.
    pub threads: usize,
    /// How long the worker spins for the next batch before it sleeps.
    pub spin: Duration,
    /// The event loop that collects the results.
    pub event_loop: LoopIndex,
}

/// A signal of the front to a waiting worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Run(u32),
    Stop,
}

#[derive(Debug)]
pub struct Ring {
    memory: SharedMemory,
    words: Words,
}

impl Ring {
    /// Creates a ring: sequence 0, worker not ready.
    pub fn create(name: &str) -> Result<Self, OsError> {
        let memory = SharedMemory::create(name, FUTEX_BYTES + WORDS * 8)?;
        let words = memory.map_words()?;
        Ok(Self { memory, words })
    }

    /// Opens the inherited ring.
    pub fn open(fd: OwnedFd) -> Result<Self, OsError> {
        let memory = SharedMemory::open(fd)?;
        let words = memory.map_words()?;
        Ok(Self { memory, words })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    fn futex(&self, index: usize) -> &AtomicU32 {
        &self.words.futexes()[index]
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.words.words()[index]
    }

    fn segment(&self, index: usize) -> &[AtomicU64] {
        let start = FIRST_SEGMENT + index * SEGMENT_WORDS;
        &self.words.words()[start..start + SEGMENT_WORDS]
    }

    /// The sequence number after `sequence`: never 0 and never `STOP`.
    pub fn next_sequence(sequence: u32) -> u32 {
        if sequence >= STOP - 1 {
            1
        } else {
            sequence + 1
        }
    }

    // Methods of the front.

    /// Submits a batch: at most [`BATCH_REQUESTS_MAX`] segments, further ones are ignored. Returns
    /// whether the worker sleeps: then [`Ring::wake`] must follow.
    #[must_use]
    pub fn submit(&self, sequence: u32, segments: &[Segment], limits: ComputeLimits) -> bool {
        let segments = &segments[..segments.len().min(BATCH_REQUESTS_MAX)];
        for (index, segment) in segments.iter().enumerate() {
            let words = self.segment(index);
            let flags = u64::from(segment.kinds) | u64::from(segment.is_double) << 8;
            let values = [
                segment.revision.0,
                flags,
                segment.first_row as u64,
                segment.rows as u64,
                segment.request_rows as u64,
                segment.input_offset as u64,
                segment.results_offset as u64,
                SegmentState::Pending.word(),
            ];
            for (word, value) in words.iter().zip(values) {
                word.store(value, Ordering::Relaxed);
            }
        }
        let store = |word: usize, value: u64| self.word(word).store(value, Ordering::Relaxed);
        store(THREADS, limits.threads as u64);
        store(
            SPIN_NANOS,
            u64::try_from(limits.spin.as_nanos()).unwrap_or(0),
        );
        store(SHARING, WorkDivision::SingleThread as u64);
        store(EVENT_LOOP, limits.event_loop.0 as u64);
        self.submit_words(sequence, segments.len(), false)
    }

    /// Announces a command in the channel. Its result is the state of segment 0.
    pub fn submit_command(&self, sequence: u32) {
        self.segment(0)[SEGMENT_STATE].store(SegmentState::Pending.word(), Ordering::Relaxed);
        if self.submit_words(sequence, 0, true) {
            self.wake();
        }
    }

    fn submit_words(&self, sequence: u32, segments: usize, is_command: bool) -> bool {
        let store = |word: usize, value: u64| self.word(word).store(value, Ordering::Relaxed);
        store(SEGMENTS, segments as u64);
        store(COMPUTE_NANOS, 0);
        store(REASON_BYTES, 0);
        store(IS_COMMAND, u64::from(is_command));
        self.ring_doorbell(sequence)
    }

    /// Tells the worker to exit after its batch.
    pub fn stop(&self) {
        if self.ring_doorbell(STOP) {
            self.wake();
        }
    }

    /// Returns whether the worker sleeps.
    fn ring_doorbell(&self, value: u32) -> bool {
        // The front writes the doorbell and then reads `waiting`; the worker writes `waiting` and
        // then reads the doorbell (`wait_for_signal`). With sequentially consistent ordering at
        // least one side sees the other's write: no wakeup is lost.
        self.futex(DOORBELL).store(value, Ordering::SeqCst);
        self.futex(WAITING).load(Ordering::SeqCst) != 0
    }

    /// The last submitted sequence number.
    pub fn last_sequence(&self) -> u32 {
        self.futex(DOORBELL).load(Ordering::SeqCst)
    }

    /// Whether the worker is ready and has finished everything that any front submitted.
    pub fn is_idle(&self) -> bool {
        self.is_ready() && self.is_finished(self.last_sequence())
    }

    /// The revisions that the worker reported as open.
    pub fn open_revisions(&self) -> Vec<RevisionId> {
        let load = |at: usize| self.word(at).load(Ordering::Relaxed);
        let count = usize::try_from(load(OPEN_REVISIONS)).unwrap_or(usize::MAX);
        let listed = 0..count.min(LISTED_REVISIONS_MAX);
        let revision = |at: usize| RevisionId(load(OPEN_REVISIONS + 1 + at));
        listed.map(revision).collect()
    }

    /// Wakes the worker. This takes microseconds: no lock should be held.
    pub fn wake(&self) {
        futex::wake(futex::Sharing::ProcessShared, self.futex(DOORBELL), 1);
    }

    /// Whether the worker has reported ready.
    pub fn is_ready(&self) -> bool {
        self.futex(STATE).load(Ordering::Acquire) == 1
    }

    /// Whether the worker has begun the batch `sequence`.
    pub fn is_started(&self, sequence: u32) -> bool {
        self.futex(BEGUN).load(Ordering::Acquire) == sequence
    }

    /// Whether the worker has finished the batch `sequence`.
    pub fn is_finished(&self, sequence: u32) -> bool {
        self.futex(FINISHED).load(Ordering::Acquire) == sequence
    }

    /// The reported state of a segment of a finished batch.
    pub fn state(&self, segment: usize) -> SegmentState {
        let word = self.segment(segment)[SEGMENT_STATE].load(Ordering::Relaxed);
        [SegmentState::Done, SegmentState::Pending]
            .into_iter()
            .find(|state| state.word() == word)
            .unwrap_or(SegmentState::Failed)
    }

    /// The reported compute time of the batch.
    pub fn compute_nanos(&self) -> u64 {
        self.word(COMPUTE_NANOS).load(Ordering::Relaxed)
    }

    /// How threads divided the batch, as reported.
    pub fn work_division(&self) -> WorkDivision {
        let word = self.word(SHARING).load(Ordering::Relaxed);
        let known = usize::try_from(word).ok();
        let known = known.and_then(|at| WorkDivision::ALL.get(at).copied());
        known.unwrap_or(WorkDivision::SingleThread)
    }

    /// The reported reason of a failed segment.
    pub fn reason(&self) -> String {
        let bytes = self.word(REASON_BYTES).load(Ordering::Relaxed);
        let bytes = usize::try_from(bytes)
            .unwrap_or(usize::MAX)
            .min(REASON_BYTES_MAX);
        let words = (0..REASON_BYTES_MAX / 8).flat_map(|index| {
            self.word(REASON + index)
                .load(Ordering::Relaxed)
                .to_le_bytes()
        });
        let text: Vec<u8> = words.take(bytes).collect();
        String::from_utf8_lossy(&text).into_owned()
    }

    // Methods of the worker.

    /// Reports which revisions are open, before the command that changed them is finished. If there
    /// are too many, some are omitted: another front sends those again.
    pub(crate) fn set_open_revisions(&self, revisions: impl Iterator<Item = RevisionId>) {
        let mut count = 0;
        for (at, revision) in revisions.take(LISTED_REVISIONS_MAX).enumerate() {
            let word = self.word(OPEN_REVISIONS + 1 + at);
            word.store(revision.0, Ordering::Relaxed);
            count = at as u64 + 1;
        }
        self.word(OPEN_REVISIONS).store(count, Ordering::Relaxed);
    }

    /// The event loop to notify when the batch is finished.
    pub(crate) fn event_loop(&self) -> LoopIndex {
        let word = self.word(EVENT_LOOP).load(Ordering::Relaxed);
        LoopIndex(usize::try_from(word).unwrap_or_default())
    }

    /// Reports that the worker accepts batches.
    pub fn set_ready(&self) {
        self.futex(STATE).store(1, Ordering::Release);
    }

    /// Spins on the doorbell for a while, which saves the front a system call and the worker a
    /// wakeup.
    fn spin(&self, last: u32) {
        let nanos = self.word(SPIN_NANOS).load(Ordering::Relaxed);
        let (start, time) = (
            Instant::now(),
            Duration::from_nanos(nanos).min(SPIN_TIME_MAX),
        );
        // bound: SPIN_TIME_MAX.
        while self.futex(DOORBELL).load(Ordering::Acquire) == last && start.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    /// Waits for the batch or command after `last`, or for the stop signal.
    pub(crate) fn wait_for_signal(&self, last: u32) -> Signal {
        let doorbell = self.futex(DOORBELL);
        self.spin(last);
        // bound: one pass for each wakeup; ends with the process at the latest.
        loop {
            match doorbell.load(Ordering::Acquire) {
                STOP => return Signal::Stop,
                sequence if sequence != last => return Signal::Run(sequence),
                _ => {}
            }
            self.futex(WAITING).store(1, Ordering::SeqCst);
            if doorbell.load(Ordering::SeqCst) == last {
                futex::wait(futex::Sharing::ProcessShared, doorbell, last, None);
            }
            self.futex(WAITING).store(0, Ordering::Relaxed);
        }
    }

    /// Whether a command was submitted instead of a batch.
    pub fn is_command(&self) -> bool {
        self.word(IS_COMMAND).load(Ordering::Relaxed) == 1
    }

    /// How many threads may compute the batch; at least one.
    pub(crate) fn threads(&self) -> usize {
        let threads = self.word(THREADS).load(Ordering::Relaxed);
        usize::try_from(threads).unwrap_or(usize::MAX).max(1)
    }

    /// Reports how the threads divide the batch.
    pub(crate) fn set_work_division(&self, sharing: WorkDivision) {
        self.word(SHARING).store(sharing as u64, Ordering::Relaxed);
    }

    /// Reports that the worker starts the batch: a crash from now on may be caused by the batch.
    pub fn begin(&self, sequence: u32) {
        self.futex(BEGUN).store(sequence, Ordering::Release);
    }

    /// Reads the batch; `false` if its size is out of bounds.
    pub fn read(&self, segments: &mut Vec<Segment>) -> bool {
        segments.clear();
        let count = self.word(SEGMENTS).load(Ordering::Relaxed);
        if count > BATCH_REQUESTS_MAX as u64 {
            return false;
        }
        for index in 0..count as usize {
            let words = self.segment(index);
            let load = |at: usize| words[at].load(Ordering::Relaxed);
            let size = |at: usize| usize::try_from(load(at)).unwrap_or(usize::MAX);
            segments.push(Segment {
                revision: RevisionId(load(0)),
                kinds: load(1) as u8,
                is_double: load(1) & 1 << 8 != 0,
                first_row: size(2),
                rows: size(3),
                request_rows: size(4),
                input_offset: size(5),
                results_offset: size(6),
            });
        }
        true
    }

    /// Reports that a segment could not be computed; only the last reason is kept.
    pub fn fail(&self, segment: usize, reason: &str) {
        self.segment(segment)[SEGMENT_STATE].store(SegmentState::Failed.word(), Ordering::Relaxed);
        let bytes = &reason.as_bytes()[..reason.len().min(REASON_BYTES_MAX)];
        for (index, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(REASON + index)
                .store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        self.word(REASON_BYTES)
            .store(bytes.len() as u64, Ordering::Relaxed);
    }

    /// Reports that the batch is computed: segments that did not fail are done.
    pub fn finish(&self, sequence: u32, segments: usize, compute: Duration) {
        for index in 0..segments {
            // A failed segment stays failed.
            let _ = self.segment(index)[SEGMENT_STATE].compare_exchange(
                SegmentState::Pending.word(),
                SegmentState::Done.word(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
        let nanos = u64::try_from(compute.as_nanos()).unwrap_or(u64::MAX);
        self.word(COMPUTE_NANOS).store(nanos, Ordering::Relaxed);
        self.futex(FINISHED).store(sequence, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
