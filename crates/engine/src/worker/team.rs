//! How the threads of a worker share one batch.
//!
//! **Problem.** Rank 0 has a batch. If it is large the peers help, but none of them can be waited
//! for before it has begun: it may be asleep, or its cpu busy with something else.
//!
//! **Approach.** The batch is cut into pieces that threads claim one by one; rank 0 claims too, and
//! waits at the end only for pieces that somebody has claimed. The claim word holds the generation
//! of the batch and the next piece, so that a peer which comes late claims nothing.
//!
//! Whether sharing pays is a matter of times: what a row of the model took when it was loaded, and
//! what it takes here until a sleeping peer runs, which rank 0 measures before the first batch.
//!
//! **Proof sketch.** A claim succeeds only while the word holds the generation that the peer saw
//! and a piece below its count. Rank 0 leaves the batch only when all pieces are finished, and
//! closes the word before it says so; until then the ring holds the batch. So a peer whose claim
//! succeeds has read a ring that did not change, and rank 0 is still there to wait for its piece.
//!
//! **Limits.** Generations are 32 bits: a peer would have to sleep through 2^32 shared batches
//! between two instructions to mistake one for another.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use albacore_os::futex::{self, Reach};
use albacore_trees::Kind;

use super::compute::Hands;
use super::models::{Models, Table};
use crate::KindSet;
use crate::limits::{DRILL_PATIENCE, DRILL_PAUSE, DRILLS};
use crate::limits::{PARALLEL_ROWS, PARALLEL_SHAP_ROWS, PIECES_PER_THREAD, SHARING_PAYS};
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
    /// Whether peers are only to answer, and how many have.
    is_drill: AtomicBool,
    answers: AtomicU32,
    /// How long it takes to wake a peer, in nanoseconds.
    waking: AtomicU64,
}

/// The batch that threads share, as one of them has read it.
struct Shared<'a> {
    generation: u32,
    cut: Cut,
    ring: &'a Ring,
    models: &'a Table,
    segments: &'a [Segment],
}

/// How a batch is cut: pieces of `rows` rows, counted over all segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    rows: usize,
    pieces: u32,
}

/// What is known of the time of a batch.
struct Times<'a> {
    models: &'a Table,
    /// How long it takes to wake a peer, in nanoseconds.
    waking: f64,
}

impl Times<'_> {
    /// Of a row of a segment, in nanoseconds; `None` where a kind was not measured.
    fn row(&self, segment: &Segment) -> Option<f64> {
        let predictor = &self.models.get(segment.edition)?.predictor;
        let kinds = KindSet::from_bits(segment.kinds);
        let times = kinds
            .iter()
            .map(|kind| predictor.row_nanoseconds(kind, segment.rows));
        times.sum()
    }

    /// Of all segments.
    fn batch(&self, segments: &[Segment]) -> Option<f64> {
        let times = segments
            .iter()
            .map(|it| Some(self.row(it)? * it.rows as f64));
        times.sum()
    }
}

impl Cut {
    /// `None`: not worth sharing.
    fn new(segments: &[Segment], threads: usize, times: &Times<'_>) -> Option<Self> {
        let total: usize = segments.iter().fold(0, |sum, s| sum.saturating_add(s.rows));
        if threads < 2 || total < 2 {
            return None;
        }
        match times.batch(segments) {
            Some(time) => Self::by_time(total, threads, time, times.waking),
            None => Self::by_rule(segments, threads, total),
        }
    }

    /// A batch of `total` rows that takes so many nanoseconds.
    fn by_time(total: usize, threads: usize, time: f64, waking: f64) -> Option<Self> {
        if time < SHARING_PAYS * waking {
            return None;
        }
        // No piece is shorter than it takes to wake somebody for it.
        let pieces = (time / waking.max(1.0)) as usize;
        let pieces = pieces.clamp(threads, threads * PIECES_PER_THREAD);
        Self::of(total.div_ceil(pieces), total)
    }

    /// Without measurements: by numbers of rows.
    fn by_rule(segments: &[Segment], threads: usize, total: usize) -> Option<Self> {
        let is_shap = segments
            .iter()
            .map(|segment| KindSet::from_bits(segment.kinds))
            .any(|kinds| kinds.contains(Kind::Contribs) || kinds.contains(Kind::Interactions));
        let (worthwhile, piece_min) = if is_shap {
            (PARALLEL_SHAP_ROWS, 1)
        } else {
            (PARALLEL_ROWS, PARALLEL_ROWS / 4)
        };
        if total < worthwhile {
            return None;
        }
        let rows = total.div_ceil(threads * PIECES_PER_THREAD).max(piece_min);
        Self::of(rows, total)
    }

    fn of(rows: usize, total: usize) -> Option<Self> {
        let pieces = u32::try_from(total.div_ceil(rows)).ok()?;
        Some(Self { rows, pieces })
    }
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
        }
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
        let mut shortest = DRILL_PATIENCE;
        self.is_drill.store(true, Ordering::Release);
        for _ in 0..DRILLS {
            std::thread::sleep(DRILL_PAUSE);
            let before = self.answers.load(Ordering::Acquire);
            let start = Instant::now();
            self.generation.fetch_add(1, Ordering::AcqRel);
            // infallible: at most THREADS_MAX.
            futex::wake(Reach::Process, &self.generation, self.threads as u32 - 1);
            futex::wait(Reach::Process, &self.answers, before, Some(DRILL_PATIENCE));
            shortest = shortest.min(start.elapsed());
        }
        self.is_drill.store(false, Ordering::Release);
        let waking = u64::try_from(shortest.as_nanos()).unwrap_or(u64::MAX);
        self.waking.store(waking, Ordering::Release);
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
        match Cut::new(&segments, self.threads, &self.times(models)) {
            None => compute_rows(ring, models, hands, &segments, 0..usize::MAX),
            Some(cut) => {
                self.finished.store(0, Ordering::Relaxed);
                let generation =
                    self.generation.load(Ordering::Relaxed).wrapping_add(1) % DISMISSED;
                self.claim
                    .store(u64::from(generation) << 32, Ordering::Release);
                self.generation.store(generation, Ordering::Release);
                // infallible: at most THREADS_MAX.
                futex::wake(Reach::Process, &self.generation, self.threads as u32 - 1);
                self.work(
                    &Shared {
                        generation,
                        cut,
                        ring,
                        models,
                        segments: &segments,
                    },
                    hands,
                );
                self.wait_for_pieces(cut);
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
                self.answers.fetch_add(1, Ordering::Release);
                futex::wake(Reach::Process, &self.answers, 1);
                continue;
            }
            let mut segments = std::mem::take(&mut hands.segments);
            let table = models.table();
            if ring.read(&mut segments)
                && let Some(cut) = Cut::new(&segments, self.threads, &self.times(&table))
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

    fn work(&self, batch: &Shared<'_>, hands: &mut Hands<'_>) {
        let Shared {
            generation,
            cut,
            ring,
            models,
            segments,
        } = *batch;
        while let Some(piece) = self.claim_piece(generation, cut.pieces) {
            let from = piece as usize * cut.rows;
            compute_rows(ring, models, hands, segments, from..from + cut.rows);
            if self.finished.fetch_add(1, Ordering::AcqRel) + 1 == cut.pieces {
                futex::wake(Reach::Process, &self.finished, 1);
            }
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
            if finished >= cut.pieces {
                return;
            }
            futex::wait(Reach::Process, &self.finished, finished, None);
        }
    }
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
