//! How the threads of a worker share one batch.
//!
//! **Problem.** Rank 0 has a batch. If it is large the peers help, but none of them can be waited
//! for before it has begun: it may be asleep, or its cpu busy with something else.
//!
//! **Approach.** The batch is split into pieces that threads claim one by one; rank 0 claims too, and
//! waits at the end only for pieces that somebody has claimed. The claim word holds the generation
//! of the batch and the next piece, so that a peer which comes late claims nothing.
//!
//! Pieces are rows or, where there are few rows, trees: see `split`. What trees add is added up by
//! rank 0, see `partial_results`. How long it takes until a sleeping peer runs, rank 0 measures before the
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

use super::batch_split::{BatchSplit, TimeEstimates};
use super::models::{Models, Table};
use super::partial_results::{PartialResults, ReductionProgress};
use super::thread_context::ThreadContext;
use crate::limits::{
    WAKE_LATENCY_PLAUSIBLE, WAKE_PROBE_PAUSE, WAKE_PROBE_TIMEOUT, WAKE_PROBES, WAKE_PROBES_MAX,
};
use crate::ring::{Ring, Segment};

/// No piece can be claimed.
const CLOSED: u32 = u32::MAX;

/// The generation that sends the peers home.
const SHUT_DOWN: u32 = u32::MAX;

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
    is_wake_probe: AtomicBool,
    answers: AtomicU32,
    /// How long it takes to wake a peer, in nanoseconds.
    wake_latency: AtomicU64,
    /// What pieces add where trees are divided.
    partial_results: PartialResults,
}

/// The batch that threads share, as one of them has read it.
pub(super) struct SharedBatch<'a> {
    pub(super) generation: u32,
    pub(super) split: BatchSplit,
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
            is_wake_probe: AtomicBool::new(false),
            answers: AtomicU32::new(0),
            wake_latency: AtomicU64::new(0),
            partial_results: PartialResults::new(threads),
        }
    }

    /// How many threads may compute the batch in the ring: the front knows who else is busy.
    fn threads_for(&self, ring: &Ring) -> usize {
        ring.threads().min(self.threads)
    }

    fn times<'a>(&self, models: &'a Table) -> TimeEstimates<'a> {
        TimeEstimates {
            models,
            wake_latency: self.wake_latency.load(Ordering::Relaxed) as f64,
        }
    }

    /// Rank 0, when every peer runs: how long it takes until a sleeping peer answers.
    pub(super) fn measure_wake_latency(&self) {
        if self.threads < 2 {
            return;
        }
        self.is_wake_probe.store(true, Ordering::Release);
        let shortest = shortest_wake_latency(|| {
            std::thread::sleep(WAKE_PROBE_PAUSE);
            self.probe_wake_latency()
        });
        self.is_wake_probe.store(false, Ordering::Release);
        let wake_latency = u64::try_from(shortest.as_nanos()).unwrap_or(u64::MAX);
        self.wake_latency.store(wake_latency, Ordering::Release);
    }

    /// How long it takes until a peer answers; `None` if none does within [`WAKE_PROBE_TIMEOUT`]. An
    /// answer that comes later is not taken for that of another drill.
    fn probe_wake_latency(&self) -> Option<Duration> {
        let start = Instant::now();
        let generation = self.generation.fetch_add(1, Ordering::AcqRel) + 1;
        // infallible: at most THREADS_MAX.
        futex::wake(Reach::Process, &self.generation, self.threads as u32 - 1);
        // bound: WAKE_PROBE_TIMEOUT.
        loop {
            let answered = self.answers.load(Ordering::Acquire);
            let elapsed = start.elapsed();
            if answered == generation {
                return Some(elapsed);
            }
            let left = WAKE_PROBE_TIMEOUT.checked_sub(elapsed)?;
            futex::wait(Reach::Process, &self.answers, answered, Some(left));
        }
    }

    /// Rank 0: waits until every peer runs.
    pub(super) fn wait_for_peers(&self) {
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
    pub(super) fn lead(
        &self,
        ring: &Ring,
        models: &Table,
        context: &mut ThreadContext<'_>,
    ) -> usize {
        let mut segments = std::mem::take(&mut context.segments);
        if !ring.read(&mut segments) {
            segments.clear();
        }
        match BatchSplit::new(&segments, self.threads_for(ring), &self.times(models)) {
            None => compute_rows(ring, models, context, &segments, 0..usize::MAX),
            Some(split) => {
                ring.set_sharing(split.sharing());
                self.finished.store(0, Ordering::Relaxed);
                let generation =
                    self.generation.load(Ordering::Relaxed).wrapping_add(1) % SHUT_DOWN;
                self.claim
                    .store(u64::from(generation) << 32, Ordering::Release);
                self.generation.store(generation, Ordering::Release);
                // infallible: at most THREADS_MAX.
                let peers = self.threads_for(ring) as u32 - 1;
                futex::wake(Reach::Process, &self.generation, peers);
                let batch = SharedBatch {
                    generation,
                    split,
                    ring,
                    models,
                    segments: &segments,
                };
                let mut progress = ReductionProgress::default();
                self.work(&batch, context, |context| {
                    self.join(&batch, (&mut progress, false), context);
                });
                self.wait_for_pieces(split);
                self.join(&batch, (&mut progress, true), context);
                self.claim.store(
                    u64::from(generation) << 32 | u64::from(CLOSED),
                    Ordering::Release,
                );
            }
        }
        let count = segments.len();
        context.segments = segments;
        count
    }

    /// A peer: helps with every shared batch until dismissed.
    pub(super) fn follow(&self, ring: &Ring, models: &Models, context: &mut ThreadContext<'_>) {
        self.present.fetch_add(1, Ordering::Release);
        futex::wake(Reach::Process, &self.present, 1);
        let mut seen = 0;
        // bound: one pass for each shared batch; ends with the worker.
        loop {
            let generation = self.generation.load(Ordering::Acquire);
            if generation == SHUT_DOWN {
                return;
            }
            if generation == seen {
                futex::wait(Reach::Process, &self.generation, seen, None);
                continue;
            }
            seen = generation;
            if self.is_wake_probe.load(Ordering::Acquire) {
                self.answers.store(generation, Ordering::Release);
                futex::wake(Reach::Process, &self.answers, 1);
                continue;
            }
            let mut segments = std::mem::take(&mut context.segments);
            let table = models.table();
            if ring.read(&mut segments)
                && let Some(split) =
                    BatchSplit::new(&segments, self.threads_for(ring), &self.times(&table))
            {
                self.work(
                    &SharedBatch {
                        generation,
                        split,
                        ring,
                        models: &table,
                        segments: &segments,
                    },
                    context,
                    |_| {},
                );
            }
            context.segments = segments;
        }
    }

    /// Sends the peers home.
    pub(super) fn shut_down(&self) {
        self.generation.store(SHUT_DOWN, Ordering::Release);
        futex::wake(Reach::Process, &self.generation, u32::MAX);
    }

    /// Computes pieces while there are any, and calls `between` after each.
    fn work<'a>(
        &self,
        batch: &SharedBatch<'_>,
        context: &mut ThreadContext<'a>,
        mut between: impl FnMut(&mut ThreadContext<'a>),
    ) {
        let SharedBatch {
            generation,
            split,
            ring,
            models,
            segments,
        } = *batch;
        while let Some(piece) = self.claim_piece(generation, split.pieces()) {
            match split {
                BatchSplit::Rows { rows, .. } => {
                    let from = piece as usize * rows;
                    compute_rows(ring, models, context, segments, from..from + rows);
                }
                BatchSplit::Trees { parts, .. } => {
                    self.partial_results.fill(batch, (piece, parts), context)
                }
            }
            if self.finished.fetch_add(1, Ordering::AcqRel) + 1 == split.pieces() {
                futex::wake(Reach::Process, &self.finished, 1);
            }
            between(context);
        }
    }

    /// Adds up what the pieces of divided trees add.
    fn join(
        &self,
        batch: &SharedBatch<'_>,
        progress: (&mut ReductionProgress, bool),
        context: &mut ThreadContext<'_>,
    ) {
        if let BatchSplit::Trees { parts, .. } = batch.split {
            self.partial_results.join(batch, parts, progress, context);
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

    fn wait_for_pieces(&self, split: BatchSplit) {
        // bound: one pass for each piece that others have claimed; they compute without waiting.
        loop {
            let finished = self.finished.load(Ordering::Acquire);
            if finished >= split.pieces() {
                return;
            }
            futex::wait(Reach::Process, &self.finished, finished, None);
        }
    }
}

/// The shortest time of some drills, each of which takes what `drill` says; of more drills while
/// the times are those of a machine on which the threads have to wait for a cpu.
fn shortest_wake_latency(mut drill: impl FnMut() -> Option<Duration>) -> Duration {
    let mut shortest = WAKE_PROBE_TIMEOUT;
    for count in 0..WAKE_PROBES_MAX {
        if count >= WAKE_PROBES && shortest <= WAKE_LATENCY_PLAUSIBLE {
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
    context: &mut ThreadContext<'_>,
    segments: &[Segment],
    range: std::ops::Range<usize>,
) {
    let mut start = 0_usize;
    for (index, segment) in segments.iter().enumerate() {
        let end = start.saturating_add(segment.rows);
        let (from, to) = (range.start.max(start), range.end.min(end));
        if from < to
            && let Err(reason) = context.compute(models, segment, from - start, to - start)
        {
            ring.fail(index, &reason);
        }
        start = end;
    }
}

#[cfg(test)]
mod tests;
