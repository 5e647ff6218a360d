//! Decides whether the threads of a worker share a batch, and how it is split: by rows or, if there
//! are few, by trees.
//!
//! The decision compares times: the measured time of rows of the model when it was loaded, the
//! serial part that cannot be split by trees, and the latency of waking a peer. It is a pure
//! function of these, so every thread computes the same split.

use albacore_trees::Kind;

use super::models::ImageTable;
use crate::kind::KindSet;
use crate::limits::{PARALLEL_ROWS, PARALLEL_SHAP_ROWS, PIECES_PER_THREAD, SHARING_PAYS};
use crate::limits::{TREE_JOBS_MAX, TREE_PARTS_PER_THREAD};
use crate::ring::{Ring, Segment, WorkDivision};

/// How a batch is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchSplit {
    /// Pieces of `rows` rows, numbered over all segments.
    Rows { rows: usize, pieces: u32 },
    /// Each job in `parts` parts of its model's trees.
    Trees { parts: u32, pieces: u32 },
}

/// A shared batch, as read from the ring by one thread.
pub(super) struct SharedBatch<'a> {
    pub(super) generation: u32,
    pub(super) split: BatchSplit,
    pub(super) ring: &'a Ring,
    pub(super) models: &'a ImageTable,
    pub(super) segments: &'a [Segment],
}

/// The jobs of a batch that is split by trees: one output of one segment each.
pub(super) fn jobs(segments: &[Segment]) -> impl Iterator<Item = (usize, Kind)> {
    let kinds = |segment: &Segment| KindSet::from_bits(segment.kinds);
    let segments = segments.iter().enumerate();
    segments.flat_map(move |(index, segment)| {
        Kind::ALL
            .into_iter()
            .filter(move |&kind| kinds(segment).contains(kind))
            .map(move |kind| (index, kind))
    })
}

/// A piece of a batch that is split by trees: one part of the trees for one output of a segment.
pub(super) struct TreePiece<'a> {
    pub(super) segment_index: usize,
    pub(super) segment: &'a Segment,
    pub(super) kind: Kind,
    /// From 0; the model's trees are divided into `parts`.
    pub(super) part: u32,
    pub(super) parts: u32,
}

impl<'a> TreePiece<'a> {
    /// Piece number `piece` of a batch whose jobs have `parts` parts each.
    pub(super) fn new(segments: &'a [Segment], piece: u32, parts: u32) -> Option<Self> {
        let (segment_index, kind) = jobs(segments).nth((piece / parts) as usize)?;
        Some(Self {
            segment_index,
            segment: &segments[segment_index],
            kind,
            part: piece % parts,
            parts,
        })
    }
}

/// Estimates of the service time of a batch, in nanoseconds.
pub(super) struct TimeEstimates<'a> {
    pub(super) models: &'a ImageTable,
    /// Latency of waking a peer.
    pub(super) wake_latency: f64,
}

impl TimeEstimates<'_> {
    /// Time of a row of a segment if a call computes `call_rows` rows; `None` if a kind was
    /// not measured.
    fn row(&self, segment: &Segment, call_rows: usize) -> Option<f64> {
        let predictor = &self.models.get(segment.revision)?.predictor;
        let kinds = KindSet::from_bits(segment.kinds);
        let times = kinds
            .iter()
            .map(|kind| predictor.row_nanoseconds(kind, call_rows));
        times.sum()
    }

    /// Time of all segments, `total` rows, if a call computes at most `call_rows` rows. Rows of
    /// different segments are gathered.
    fn batch(&self, segments: &[Segment], total: usize, call_rows: usize) -> Option<f64> {
        let times = segments
            .iter()
            .map(|segment| Some(self.row(segment, total.min(call_rows))? * segment.rows as f64));
        times.sum()
    }

    /// Time of the slowest thread if the batch is split by rows.
    fn by_rows(&self, segments: &[Segment], total: usize, threads: usize) -> Option<f64> {
        let rows = total.div_ceil(threads);
        Some(self.batch(segments, total, rows)? * rows as f64 / total as f64)
    }

    /// Time of the slowest thread if the batch is split by trees; `None` if it cannot be.
    fn by_trees(&self, segments: &[Segment], threads: usize) -> Option<f64> {
        if jobs(segments).count() > TREE_JOBS_MAX {
            return None;
        }
        let times = jobs(segments).map(|(index, kind)| {
            let segment = &segments[index];
            let predictor = &self.models.get(segment.revision)?.predictor;
            let row = predictor.row_nanoseconds(kind, segment.rows)?;
            let serial = predictor.serial_nanoseconds(kind)?.min(row);
            let each = serial + (row - serial) / threads as f64;
            (predictor.work_units(kind, segment.rows) > 0).then_some(each * segment.rows as f64)
        });
        times.sum()
    }
}

impl BatchSplit {
    /// Returns `None` if sharing does not pay.
    pub(super) fn new(
        segments: &[Segment],
        threads: usize,
        times: &TimeEstimates<'_>,
    ) -> Option<Self> {
        let total: usize = segments.iter().fold(0, |sum, s| sum.saturating_add(s.rows));
        if threads < 2 || total == 0 {
            return None;
        }
        let Some(alone) = times.batch(segments, total, usize::MAX) else {
            return Self::by_rule(segments, threads, total);
        };
        let each = [
            times.by_rows(segments, total, threads),
            times.by_trees(segments, threads),
        ];
        match Self::best(
            alone,
            each.map(|time| time.unwrap_or(f64::INFINITY)),
            times.wake_latency,
        ) {
            WorkDivision::SingleThread => None,
            WorkDivision::Rows => Self::by_rows(total, threads, alone, times.wake_latency),
            WorkDivision::Trees => Self::by_trees(jobs(segments).count(), threads),
        }
    }

    /// The fastest way, given the time of one thread alone, and the time of each thread if split by
    /// rows or by trees.
    pub(super) fn best(
        alone: f64,
        [by_rows, by_trees]: [f64; 2],
        wake_latency: f64,
    ) -> WorkDivision {
        if alone < SHARING_PAYS * wake_latency || alone <= by_rows.min(by_trees) + wake_latency {
            WorkDivision::SingleThread
        } else if by_rows <= by_trees {
            WorkDivision::Rows
        } else {
            WorkDivision::Trees
        }
    }

    /// Splits a batch of `total` rows that takes `time` nanoseconds.
    pub(super) fn by_rows(
        total: usize,
        threads: usize,
        time: f64,
        wake_latency: f64,
    ) -> Option<Self> {
        // No piece is shorter than the latency of waking a thread for it.
        let pieces = (time / wake_latency.max(1.0)) as usize;
        let pieces = pieces.clamp(threads, threads * PIECES_PER_THREAD);
        Self::of(total.div_ceil(pieces), total)
    }

    fn by_trees(jobs: usize, threads: usize) -> Option<Self> {
        let parts = threads * TREE_PARTS_PER_THREAD;
        Some(Self::Trees {
            parts: u32::try_from(parts).ok()?,
            pieces: u32::try_from(jobs * parts).ok()?,
        })
    }

    /// Decides without measurements, by the number of rows.
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
        Some(Self::Rows { rows, pieces })
    }

    pub(super) fn pieces(self) -> u32 {
        match self {
            Self::Rows { pieces, .. } | Self::Trees { pieces, .. } => pieces,
        }
    }

    pub(super) fn work_division(self) -> WorkDivision {
        match self {
            Self::Rows { .. } => WorkDivision::Rows,
            Self::Trees { .. } => WorkDivision::Trees,
        }
    }
}

#[cfg(test)]
mod tests;
