//! Computes rows of several requests in one call.
//!
//! Trees are read once for all rows of a call, and each lane of a vector holds one row, so a row
//! costs much less among many than alone. Rows of different requests are not adjacent in shared
//! memory: those for the same model and outputs are copied into one buffer, and their results back.
//! A result does not depend on the other rows of the call.
//!
//! **Limits.** Interactions are computed row by row, so they are not gathered. If a segment is
//! invalid, each is computed separately to find out which one.

use albacore_trees::Kind;

use crate::kind::KindSet;
use crate::limits::{GATHERED_BYTES_MAX, GATHERED_ROWS_MAX};
use crate::ring::Segment;

/// Rows of one segment that are computed by one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentRowRange {
    pub(super) segment: usize,
    /// Relative to the segment's first row.
    pub(super) from: usize,
    pub(super) to: usize,
}

impl SegmentRowRange {
    pub(super) fn rows(self) -> usize {
        self.to - self.from
    }
}

/// Copies of rows and of their results, aligned for every element type.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    rows: Vec<u64>,
    results: Vec<u64>,
}

impl Gathered {
    /// Returns memory for `rows` and `results` bytes.
    pub(super) fn memory(&mut self, rows: usize, results: usize) -> (&mut [u8], &mut [u8]) {
        fn first(words: &mut Vec<u64>, bytes: usize) -> &mut [u8] {
            if words.len() < bytes.div_ceil(8) {
                words.resize(bytes.div_ceil(8), 0);
            }
            &mut bytemuck::cast_slice_mut(words)[..bytes]
        }
        (
            first(&mut self.rows, rows),
            first(&mut self.results, results),
        )
    }
}

/// The parts of a batch in `range`, a range over the rows of all segments.
pub(super) fn parts_of(
    segments: &[Segment],
    range: std::ops::Range<usize>,
) -> impl Iterator<Item = SegmentRowRange> {
    let mut start = 0_usize;
    let parts = segments.iter().enumerate().map(move |(index, segment)| {
        let end = start.saturating_add(segment.rows);
        let (from, to) = (range.start.max(start), range.end.min(end));
        // For a segment outside the range, `to` may be less than `start`.
        let part = (from < to).then(|| SegmentRowRange {
            segment: index,
            from: from - start,
            to: to - start,
        });
        start = end;
        part
    });
    parts.flatten()
}

/// The number of leading parts that are computed in one call; at least one. `row_bytes` is the size
/// of a row and its results.
pub(super) fn first_group(
    segments: &[Segment],
    parts: &[SegmentRowRange],
    row_bytes: usize,
) -> usize {
    let Some(first) = parts.first() else {
        return 0;
    };
    let call = |part: &SegmentRowRange| {
        let segment = &segments[part.segment];
        (segment.revision, segment.kinds, segment.is_double)
    };
    let kinds = KindSet::from_bits(segments[first.segment].kinds);
    if kinds.contains(Kind::Interactions) {
        return 1;
    }
    let rows_max = GATHERED_BYTES_MAX / row_bytes.max(1);
    let mut rows = 0;
    let fits = parts.iter().take_while(|part| {
        rows += part.rows();
        call(part) == call(first) && part.rows() < GATHERED_ROWS_MAX && rows <= rows_max
    });
    fits.count().max(1)
}

#[cfg(test)]
mod tests;
