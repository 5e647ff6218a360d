//! How the threads of a worker share one batch.
//!
//! **Problem.** Rank 0 has a batch. If it is large the peers help, but none of them can be waited
//! for before it has begun: it may be asleep, or its cpu busy with something else.
//!
//! **Approach.** The batch is cut into pieces that threads claim one by one; rank 0 claims too, and
//! waits at the end only for pieces that somebody has claimed. The claim word holds the generation
//! of the batch and the next piece, so that a peer which comes late claims nothing.
//!
//! Pieces are rows or, where there are few rows, trees: see `cut`. What trees add is added up by
//! rank 0, see `notes`. How long it takes until a sleeping peer runs, rank 0 measures before the
//! first batch.
//!
//! **Proof sketch.** A claim succeeds only while the word holds the generation that the peer saw
//! and a piece below its count. Rank 0 leaves the batch only when all pieces are finished, and
//! closes the word before it says so; until then the ring holds the batch. So a peer whose claim
//! succeeds has read a ring that did not change, and rank 0 is still there to wait for its piece.
//!
//! **Limits.** Generations are 32 bits: a peer would have to sleep through 2^32 shared batches
//! between two instructions to mistake one for another.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use albacore_os::futex::{self, Reach};

use super::compute::Hands;
use super::cut::{Cut, Times};
use super::models::{Models, Table};
use super::notes::{Joined, Notes};
use crate::limits::{DRILL_BELIEVED, DRILL_PATIENCE, DRILL_PAUSE, DRILLS, DRILLS_MAX};
use crate::ring::{Ring, Segment};

/// No piece can be claimed.
const CLOSED: u32 = u32::MAX;

/// The generation that sends the peers home.
const DISMISSED: u32 = u32::MAX;

/// What the threads of a worker share.
pub(super) struct Team {
    threads: usize,
    /// The number of the last batch that is shared.
    generation: AtomicU32,
    /// Generation, and the next piece to claim.
    claim: AtomicU64,
    /// Pieces that are computed.
    finished: AtomicU32,
    /// Peers that run, and so bear their names.
    present: AtomicU32,
    /// Whether peers are only to answer, and the generation that one of them answered last.
    is_drill: AtomicBool,
    answers: AtomicU32,
    /// How long it takes to wake a peer, in nanoseconds.
    waking: AtomicU64,
    /// What pieces add where trees are divided.
    notes: Notes,
}

/// The batch that threads share, as one of them has read it.
pub(super) struct Shared<'a> {
    pub(super) generation: u32,
    pub(super) cut: Cut,
    pub(super) ring: &'a Ring,
    pub(super) models: &'a Table,
    pub(super) segments: &'a [Segment],
}

impl Team {
    pub(super) fn new(threads: usize) -> Self {
        Self {
            threads,
            generation: AtomicU32::new(0),
            claim: AtomicU64::new(u64::from(CLOSED)),
            finished: AtomicU32::new(0),
            present: AtomicU32::new(0),
            is_drill: AtomicBool::new(false),
            answers: AtomicU32::new(0),
            waking: AtomicU64::new(0),
            notes: Notes::new(threads),
        }
    }

    /// How many threads may compute the batch in the ring: the front knows who else is busy.
    fn threads_for(&self, ring: &Ring) -> usize {
        ring.threads().min(self.threads)
    }

    fn times<'a>(&self, models: &'a Table) -> Times<'a> {
        Times {
            models,
            waking: self.waking.load(Ordering::Relaxed) as f64,
        }
    }

    /// Rank 0, when every peer runs: how long it takes until a sleeping peer answers.
    pub(super) fn drill(&self) {
        if self.threads < 2 {
            return;
        }
        self.is_drill.store(true, Ordering::Release);
        let shortest = shortest_of_drills(|| {
            std::thread::sleep(DRILL_PAUSE);
            self.wake_for_an_answer()
        });
        self.is_drill.store(false, Ordering::Release);
        let waking = u64::try_from(shortest.as_nanos()).unwrap_or(u64::MAX);
        self.waking.store(waking, Ordering::Release);
    }

    /// How long it takes until a peer answers; `None` if none does within [`DRILL_PATIENCE`]. An
    /// answer that comes later is not taken for that of another drill.
    fn wake_for_an_answer(&self) -> Option<Duration> {
        let start = Instant::now();
        let generation = self.generation.fetch_add(1, Ordering::AcqRel) + 1;
        // infallible: at most THREADS_MAX.
        futex::wake(Reach::Process, &self.generation, self.threads as u32 - 1);
        // bound: DRILL_PATIENCE.
        loop {
            let answered = self.answers.load(Ordering::Acquire);
            let elapsed = start.elapsed();
            if answered == generation {
                return Some(elapsed);
            }
            let left = DRILL_PATIENCE.checked_sub(elapsed)?;
            futex::wait(Reach::Process, &self.answers, answered, Some(left));
        }
    }

    /// Rank 0: waits until every peer runs.
    pub(super) fn assemble(&self) {
        // bound: one pass for each peer.
        loop {
            let present = self.present.load(Ordering::Acquire);
            if present as usize + 1 >= self.threads {
                return;
            }
            futex::wait(Reach::Process, &self.present, present, None);
        }
    }

    /// Rank 0: computes the batch in the ring, with the peers if it is large; how many segments it
    /// has.
    pub(super) fn lead(&self, ring: &Ring, models: &Table, hands: &mut Hands<'_>) -> usize {
        let mut segments = std::mem::take(&mut hands.segments);
        if !ring.read(&mut segments) {
            segments.clear();
        }
        match Cut::new(&segments, self.threads_for(ring), &self.times(models)) {
            None => compute_rows(ring, models, hands, &segments, 0..usize::MAX),
            Some(cut) => {
                ring.set_sharing(cut.sharing());
                self.finished.store(0, Ordering::Relaxed);
                let generation =
                    self.generation.load(Ordering::Relaxed).wrapping_add(1) % DISMISSED;
                self.claim
                    .store(u64::from(generation) << 32, Ordering::Release);
                self.generation.store(generation, Ordering::Release);
                // infallible: at most THREADS_MAX.
                let peers = self.threads_for(ring) as u32 - 1;
                futex::wake(Reach::Process, &self.generation, peers);
                let batch = Shared {
                    generation,
                    cut,
                    ring,
                    models,
                    segments: &segments,
                };
                let mut joined = Joined::default();
                self.work(&batch, hands, |hands| {
                    self.join(&batch, (&mut joined, false), hands);
                });
                self.wait_for_pieces(cut);
                self.join(&batch, (&mut joined, true), hands);
                self.claim.store(
                    u64::from(generation) << 32 | u64::from(CLOSED),
                    Ordering::Release,
                );
            }
        }
        let count = segments.len();
        hands.segments = segments;
        count
    }

    /// A peer: helps with every shared batch until dismissed.
    pub(super) fn follow(&self, ring: &Ring, models: &Models, hands: &mut Hands<'_>) {
        self.present.fetch_add(1, Ordering::Release);
        futex::wake(Reach::Process, &self.present, 1);
        let mut seen = 0;
        // bound: one pass for each shared batch; ends with the worker.
        loop {
            let generation = self.generation.load(Ordering::Acquire);
            if generation == DISMISSED {
                return;
            }
            if generation == seen {
                futex::wait(Reach::Process, &self.generation, seen, None);
                continue;
            }
            seen = generation;
            if self.is_drill.load(Ordering::Acquire) {
                self.answers.store(generation, Ordering::Release);
                futex::wake(Reach::Process, &self.answers, 1);
                continue;
            }
            let mut segments = std::mem::take(&mut hands.segments);
            let table = models.table();
            if ring.read(&mut segments)
                && let Some(cut) = Cut::new(&segments, self.threads_for(ring), &self.times(&table))
            {
                self.work(
                    &Shared {
                        generation,
                        cut,
                        ring,
                        models: &table,
                        segments: &segments,
                    },
                    hands,
                    |_| {},
                );
            }
            hands.segments = segments;
        }
    }

    /// Sends the peers home.
    pub(super) fn dismiss(&self) {
        self.generation.store(DISMISSED, Ordering::Release);
        futex::wake(Reach::Process, &self.generation, u32::MAX);
    }

    /// Computes pieces while there are any, and calls `between` after each.
    fn work<'a>(
        &self,
        batch: &Shared<'_>,
        hands: &mut Hands<'a>,
        mut between: impl FnMut(&mut Hands<'a>),
    ) {
        let Shared {
            generation,
            cut,
            ring,
            models,
            segments,
        } = *batch;
        while let Some(piece) = self.claim_piece(generation, cut.pieces()) {
            match cut {
                Cut::Rows { rows, .. } => {
                    let from = piece as usize * rows;
                    compute_rows(ring, models, hands, segments, from..from + rows);
                }
                Cut::Trees { parts, .. } => self.notes.fill(batch, (piece, parts), hands),
            }
            if self.finished.fetch_add(1, Ordering::AcqRel) + 1 == cut.pieces() {
                futex::wake(Reach::Process, &self.finished, 1);
            }
            between(hands);
        }
    }

    /// Adds up what the pieces of divided trees add.
    fn join(&self, batch: &Shared<'_>, progress: (&mut Joined, bool), hands: &mut Hands<'_>) {
        if let Cut::Trees { parts, .. } = batch.cut {
            self.notes.join(batch, parts, progress, hands);
        }
    }

    fn claim_piece(&self, generation: u32, pieces: u32) -> Option<u32> {
        let next = |word: u64| {
            let (of, piece) = ((word >> 32) as u32, word as u32);
            (of == generation && piece < pieces).then_some(word + 1)
        };
        let claimed = self
            .claim
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        claimed.ok().map(|word| word as u32)
    }

    fn wait_for_pieces(&self, cut: Cut) {
        // bound: one pass for each piece that others have claimed; they compute without waiting.
        loop {
            let finished = self.finished.load(Ordering::Acquire);
            if finished >= cut.pieces() {
                return;
            }
            futex::wait(Reach::Process, &self.finished, finished, None);
        }
    }
}

/// The shortest time of some drills, each of which takes what `drill` says; of more drills while
/// the times are those of a machine on which the threads have to wait for a cpu.
fn shortest_of_drills(mut drill: impl FnMut() -> Option<Duration>) -> Duration {
    let mut shortest = DRILL_PATIENCE;
    for count in 0..DRILLS_MAX {
        if count >= DRILLS && shortest <= DRILL_BELIEVED {
            break;
        }
        if let Some(time) = drill() {
            shortest = shortest.min(time);
        }
    }
    shortest
}

/// Computes the rows of a batch in `range`, counted over all segments.
fn compute_rows(
    ring: &Ring,
    models: &Table,
    hands: &mut Hands<'_>,
    segments: &[Segment],
    range: std::ops::Range<usize>,
) {
    let mut start = 0_usize;
    for (index, segment) in segments.iter().enumerate() {
        let end = start.saturating_add(segment.rows);
        let (from, to) = (range.start.max(start), range.end.min(end));
        if from < to
            && let Err(reason) = hands.compute(models, segment, from - start, to - start)
        {
            ring.fail(index, &reason);
        }
        start = end;
    }
}

#[cfg(test)]
mod tests;
