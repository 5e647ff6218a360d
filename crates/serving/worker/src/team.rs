//! Shares one batch among the threads of a worker.
//!
//! **Problem.** Rank 0 has a batch. If it is large, the peers help, but rank 0 must not wait for a
//! peer that has not started: it may be asleep, or its cpu may be busy with something else.
//!
//! **Approach.** The batch is split into pieces that threads claim one by one. Rank 0 claims pieces
//! too, and at the end waits only for claimed ones. The claim word contains the generation of the
//! batch and the next piece, so that a late peer claims nothing.
//!
//! Pieces are rows or, if there are few rows, trees: see `batch_split`. Partial sums of trees are
//! added by rank 0, see `partial_results`. Rank 0 measures the latency of waking a peer before the
//! first batch.
//!
//! **Proof sketch.** A claim succeeds only while the word contains the generation that the peer saw
//! and a piece below its count. Rank 0 leaves the batch only when all pieces are finished, and
//! closes the word before it reports the batch as done; until then the ring holds the batch. So a
//! peer whose claim succeeds has read an unchanged ring, and rank 0 still waits for its piece.
//!
//! **Limits.** Generations have 32 bits: to confuse two of them, a peer would have to sleep through
//! 2^32 shared batches between two instructions.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use albacore_os::futex;

use super::batch_split::{BatchSplit, SharedBatch, TimeEstimates};
use super::front_memory::MemoryChange;
use super::gathered::parts_of;
use super::models::{ImageTable, Models};
use super::partial_results::{PartialResults, ReductionProgress};
use super::thread_context::ThreadContext;
use crate::limits::{
    WAKE_LATENCY_PLAUSIBLE, WAKE_PROBE_PAUSE, WAKE_PROBE_TIMEOUT, WAKE_PROBES, WAKE_PROBES_MAX,
};
use crate::ring::{Ring, Segment};

/// No piece can be claimed.
const CLOSED: u32 = u32::MAX;

/// The generation that stops the peers.
const SHUT_DOWN: u32 = u32::MAX;

pub(super) struct Team {
    threads: usize,
    /// The number of the last shared batch.
    generation: AtomicU32,
    /// Generation, and the next piece to claim.
    claim: AtomicU64,
    /// Number of computed pieces.
    finished: AtomicU32,
    /// Number of peers that run and have set their names.
    started: AtomicU32,
    /// Whether peers only acknowledge a wakeup, and the last acknowledged generation.
    is_wake_probe: AtomicBool,
    acknowledged: AtomicU32,
    /// Latency of waking a peer, nanoseconds.
    wake_latency: AtomicU64,
    /// Partial sums of batches that are split by trees.
    partial_results: PartialResults,
}

impl Team {
    pub(super) fn new(threads: usize) -> Self {
        Self {
            threads,
            generation: AtomicU32::new(0),
            claim: AtomicU64::new(u64::from(CLOSED)),
            finished: AtomicU32::new(0),
            started: AtomicU32::new(0),
            is_wake_probe: AtomicBool::new(false),
            acknowledged: AtomicU32::new(0),
            wake_latency: AtomicU64::new(0),
            partial_results: PartialResults::new(threads),
        }
    }

    /// Number of threads that may compute the batch in the ring; set by the front, which knows how
    /// many workers are busy.
    fn threads_for(&self, ring: &Ring) -> usize {
        ring.threads().min(self.threads)
    }

    fn times<'a>(&self, models: &'a ImageTable) -> TimeEstimates<'a> {
        TimeEstimates {
            models,
            wake_latency: self.wake_latency.load(Ordering::Relaxed) as f64,
        }
    }

    /// Rank 0, once every peer runs: measures the latency of waking a peer.
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

    /// Time until a peer acknowledges a wakeup; `None` after [`WAKE_PROBE_TIMEOUT`]. A late
    /// acknowledgement does not count for a later probe.
    fn probe_wake_latency(&self) -> Option<Duration> {
        let start = Instant::now();
        let generation = self.generation.fetch_add(1, Ordering::AcqRel) + 1;
        // infallible: at most THREADS_MAX.
        futex::wake(
            futex::Sharing::ProcessPrivate,
            &self.generation,
            self.threads as u32 - 1,
        );
        // bound: WAKE_PROBE_TIMEOUT.
        loop {
            let acknowledged = self.acknowledged.load(Ordering::Acquire);
            let elapsed = start.elapsed();
            if acknowledged == generation {
                return Some(elapsed);
            }
            let remaining = WAKE_PROBE_TIMEOUT.checked_sub(elapsed)?;
            futex::wait(
                futex::Sharing::ProcessPrivate,
                &self.acknowledged,
                acknowledged,
                Some(remaining),
            );
        }
    }

    /// Rank 0: waits until every peer runs.
    pub(super) fn wait_for_peers(&self) {
        // bound: one pass for each peer.
        loop {
            let started = self.started.load(Ordering::Acquire);
            if started as usize + 1 >= self.threads {
                return;
            }
            futex::wait(futex::Sharing::ProcessPrivate, &self.started, started, None);
        }
    }

    /// Rank 0: computes the batch in the ring, with the peers if it is large; returns its number of
    /// segments.
    pub(super) fn lead(
        &self,
        ring: &Ring,
        models: &ImageTable,
        context: &mut ThreadContext,
    ) -> usize {
        let mut segments = std::mem::take(&mut context.segments);
        if !ring.read(&mut segments) {
            segments.clear();
        }
        match BatchSplit::new(&segments, self.threads_for(ring), &self.times(models)) {
            None => compute_rows(ring, models, context, &segments, 0..usize::MAX),
            Some(split) => {
                ring.set_work_division(split.work_division());
                self.finished.store(0, Ordering::Relaxed);
                let generation =
                    self.generation.load(Ordering::Relaxed).wrapping_add(1) % SHUT_DOWN;
                self.claim
                    .store(u64::from(generation) << 32, Ordering::Release);
                self.generation.store(generation, Ordering::Release);
                // infallible: at most THREADS_MAX.
                let peers = self.threads_for(ring) as u32 - 1;
                futex::wake(futex::Sharing::ProcessPrivate, &self.generation, peers);
                let batch = SharedBatch {
                    generation,
                    split,
                    ring,
                    models,
                    segments: &segments,
                };
                let mut progress = ReductionProgress::default();
                self.work(&batch, context, |context| {
                    self.reduce(&batch, &mut progress, false, context);
                });
                self.wait_for_pieces(split);
                self.reduce(&batch, &mut progress, true, context);
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

    /// Rank 0, between two batches: wakes every peer, with nothing to compute.
    pub(super) fn wake_peers(&self) {
        let generation = self.generation.load(Ordering::Relaxed).wrapping_add(1) % SHUT_DOWN;
        self.generation.store(generation, Ordering::Release);
        futex::wake(futex::Sharing::ProcessPrivate, &self.generation, u32::MAX);
    }

    /// Rank 0, between two batches.
    pub(super) fn drop_partial_results(&self) {
        self.partial_results.drop_memory();
    }

    /// The loop of a peer: helps with every shared batch until shut down. `change` returns the
    /// pending change of its memory, if any.
    pub(super) fn follow(
        &self,
        ring: &Ring,
        models: &Models,
        context: &mut ThreadContext,
        change: impl Fn() -> MemoryChange,
    ) {
        self.started.fetch_add(1, Ordering::Release);
        futex::wake(futex::Sharing::ProcessPrivate, &self.started, 1);
        let mut last_generation = 0;
        // bound: one pass for each shared batch; ends with the worker.
        loop {
            let generation = self.generation.load(Ordering::Acquire);
            if generation == SHUT_DOWN {
                return;
            }
            if generation == last_generation {
                futex::wait(
                    futex::Sharing::ProcessPrivate,
                    &self.generation,
                    last_generation,
                    None,
                );
                continue;
            }
            last_generation = generation;
            context.change(change());
            if self.is_wake_probe.load(Ordering::Acquire) {
                self.acknowledged.store(generation, Ordering::Release);
                futex::wake(futex::Sharing::ProcessPrivate, &self.acknowledged, 1);
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

    /// Stops the peers.
    pub(super) fn shut_down(&self) {
        self.generation.store(SHUT_DOWN, Ordering::Release);
        futex::wake(futex::Sharing::ProcessPrivate, &self.generation, u32::MAX);
    }

    /// Computes pieces until none are left, and calls `after_each` after each of them.
    fn work(
        &self,
        batch: &SharedBatch<'_>,
        context: &mut ThreadContext,
        mut after_each: impl FnMut(&mut ThreadContext),
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
                    self.partial_results.fill(batch, piece, parts, context)
                }
            }
            if self.finished.fetch_add(1, Ordering::AcqRel) + 1 == split.pieces() {
                futex::wake(futex::Sharing::ProcessPrivate, &self.finished, 1);
            }
            after_each(context);
        }
    }

    /// Adds partial sums if the batch is split by trees. `is_finished`: every piece is computed.
    fn reduce(
        &self,
        batch: &SharedBatch<'_>,
        progress: &mut ReductionProgress,
        is_finished: bool,
        context: &mut ThreadContext,
    ) {
        if let BatchSplit::Trees { parts, .. } = batch.split {
            self.partial_results
                .reduce(batch, parts, progress, is_finished, context);
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
            futex::wait(
                futex::Sharing::ProcessPrivate,
                &self.finished,
                finished,
                None,
            );
        }
    }
}

/// The shortest of several probes; probes are repeated while the times suggest that the threads had
/// to wait for a cpu.
fn shortest_wake_latency(mut probe: impl FnMut() -> Option<Duration>) -> Duration {
    let mut shortest = WAKE_PROBE_TIMEOUT;
    for count in 0..WAKE_PROBES_MAX {
        if count >= WAKE_PROBES && shortest <= WAKE_LATENCY_PLAUSIBLE {
            break;
        }
        if let Some(time) = probe() {
            shortest = shortest.min(time);
        }
    }
    shortest
}

/// Computes the rows of a batch in `range`, a range over the rows of all segments.
fn compute_rows(
    ring: &Ring,
    models: &ImageTable,
    context: &mut ThreadContext,
    segments: &[Segment],
    range: std::ops::Range<usize>,
) {
    let mut parts = std::mem::take(&mut context.parts);
    parts.clear();
    parts.extend(parts_of(segments, range));
    let mut left = &parts[..];
    // bound: each pass takes at least one part.
    while !left.is_empty() {
        let group;
        (group, left) = left.split_at(ThreadContext::group(models, segments, left));
        if group.len() > 1 && context.compute_gathered(models, segments, group).is_ok() {
            continue;
        }
        for part in group {
            let segment = &segments[part.segment];
            if let Err(reason) = context.compute(models, segment, *part) {
                ring.fail(part.segment, &reason);
            }
        }
    }
    context.parts = parts;
}

#[cfg(test)]
mod tests;
