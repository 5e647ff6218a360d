//! The computation of one thread: reads rows of a batch, and writes results, both in place.

use std::ops::Range;

use albacore_os::Extent;
use albacore_trees::{
    Accumulator, ElementType, OutputMut, PartialOutput, PredictError, PredictScratch, Rows,
};

use super::batch_split::TreePiece;
use super::front_memory::{MemoryChange, View};
use super::gathered::{Gathered, SegmentRowRange, first_group};
use super::models::{ImageTable, OpenModel};
use crate::kind::KindSet;
use crate::layout::{Layout, OutputInfo};
use crate::ring::Segment;

/// The memory of one thread. Each thread maps the results itself, so that each has an exclusive
/// view; threads and workers write disjoint bytes.
pub(super) struct ThreadContext {
    view: View,
    scratch: PredictScratch,
    /// Sums of an output whose trees are split.
    sums: Accumulator,
    gathered: Gathered,
    /// The batch, read from the ring.
    pub(super) segments: Vec<Segment>,
    /// The parts of it that this thread computes.
    pub(super) parts: Vec<SegmentRowRange>,
}

impl ThreadContext {
    pub(super) fn new(view: View) -> Self {
        Self {
            view,
            scratch: PredictScratch::default(),
            sums: Accumulator::default(),
            gathered: Gathered::default(),
            segments: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// Applies a change of memory.
    pub(super) fn change(&mut self, change: MemoryChange) {
        if let Some(view) = change.view {
            self.view = view;
        }
        if change.is_scratch_moved {
            self.scratch = PredictScratch::default();
            self.sums = Accumulator::default();
            self.gathered = Gathered::default();
            self.segments = Vec::new();
            self.parts = Vec::new();
            // Memory allocated from now on is first touched by this thread, on its NUMA node.
            albacore_os::release_free_memory();
        }
    }

    /// The number of leading parts that are computed in one call.
    pub(super) fn group(
        models: &ImageTable,
        segments: &[Segment],
        parts: &[SegmentRowRange],
    ) -> usize {
        let segment = parts.first().map(|part| &segments[part.segment]);
        let model = segment.and_then(|segment| Some((segment, models.get(segment.revision)?)));
        model.map_or(1, |(segment, model)| {
            let kinds = KindSet::from_bits(segment.kinds);
            let outputs = model.outputs_of(kinds).map(OutputInfo::row_bytes);
            let row_bytes = model.row_bytes(segment) + outputs.max().unwrap_or(0);
            first_group(segments, parts, row_bytes)
        })
    }

    /// Computes one part.
    pub(super) fn compute(
        &mut self,
        models: &ImageTable,
        segment: &Segment,
        part: SegmentRowRange,
    ) -> Result<(), String> {
        let model = models.get(segment.revision).ok_or(NO_MODEL)?;
        let segment_rows = SegmentRows::of(segment, part);
        let rows = input(self.view.rows.as_slice(), model, segment, segment_rows)?;
        for output in model.outputs_of(KindSet::from_bits(segment.kinds)) {
            let out = results(&mut self.view.results, model, segment, output, segment_rows)?;
            model
                .predictor
                .predict(output.kind, rows, out, &mut self.scratch)
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Computes parts of segments of the same model and kinds in one call.
    pub(super) fn compute_gathered(
        &mut self,
        models: &ImageTable,
        segments: &[Segment],
        parts: &[SegmentRowRange],
    ) -> Result<(), String> {
        let first = parts.first().map(|part| &segments[part.segment]);
        let first = first.ok_or("there are no rows")?;
        let model = models.get(first.revision).ok_or(NO_MODEL)?;
        let outputs = model.outputs_of(KindSet::from_bits(first.kinds));
        let count: usize = parts.iter().map(|part| part.rows()).sum();
        let widest = outputs.clone().map(OutputInfo::row_bytes).max();
        let (rows, results) = self.gathered.memory(
            count * model.row_bytes(first),
            count * widest.unwrap_or_default(),
        );
        let all_segment_rows = parts.iter().map(|part| {
            let segment = &segments[part.segment];
            (segment, SegmentRows::of(segment, *part))
        });
        let mut free = &mut *rows;
        for (segment, segment_rows) in all_segment_rows.clone() {
            let from = input_bytes(self.view.rows.as_slice(), model, segment, segment_rows)?;
            let to = free.split_off_mut(..from.len()).ok_or(OUTSIDE)?;
            to.copy_from_slice(from);
        }
        for output in outputs {
            let results = &mut results[..count * output.row_bytes()];
            let out = output_of(output, &mut *results)?;
            model
                .predictor
                .predict(output.kind, rows_of(first, rows)?, out, &mut self.scratch)
                .map_err(|error| error.to_string())?;
            let mut left = &*results;
            for (segment, segment_rows) in all_segment_rows.clone() {
                let to =
                    result_bytes(&mut self.view.results, model, segment, output, segment_rows)?;
                let from = left.split_off(..to.len()).ok_or(OUTSIDE)?;
                to.copy_from_slice(from);
            }
        }
        Ok(())
    }

    /// Computes the partial sums of some of the trees for one output of a segment.
    pub(super) fn compute_partial(
        &mut self,
        models: &ImageTable,
        piece: &TreePiece<'_>,
        partial: &mut PartialOutput,
    ) -> Result<(), String> {
        let segment = piece.segment;
        let model = models.get(segment.revision).ok_or(NO_MODEL)?;
        let rows = input(
            self.view.rows.as_slice(),
            model,
            segment,
            SegmentRows::all(segment),
        )?;
        let units = model.predictor.work_units(piece.kind, segment.rows);
        let at = |part: u32| units * part as usize / piece.parts as usize;
        model
            .predictor
            .predict_partial(
                piece.kind,
                rows,
                at(piece.part)..at(piece.part + 1),
                partial,
                &mut self.scratch,
            )
            .map_err(|error| error.to_string())
    }

    /// Adds the partial sums of a piece, in the order of the pieces, and writes the output after
    /// the last one.
    pub(super) fn add_partial(
        &mut self,
        models: &ImageTable,
        piece: &TreePiece<'_>,
        partial: &PartialOutput,
    ) -> Result<(), String> {
        let (segment, kind) = (piece.segment, piece.kind);
        let model = models.get(segment.revision).ok_or(NO_MODEL)?;
        let (predictor, sums) = (&model.predictor, &mut self.sums);
        let described = |error: PredictError| error.to_string();
        if piece.part == 0 {
            predictor
                .start_sums(kind, segment.rows, sums)
                .map_err(described)?;
        }
        predictor.accumulate(sums, partial).map_err(described)?;
        if piece.part + 1 < piece.parts {
            return Ok(());
        }
        let output = model.outputs.iter().find(|output| output.kind == kind);
        let output = output.ok_or("the model does not have this output")?;
        let rows = SegmentRows::all(segment);
        let out = results(&mut self.view.results, model, segment, output, rows)?;
        predictor.finish_sums(sums, out).map_err(described)
    }
}

const NO_MODEL: &str = "no such model";
const OUTSIDE: &str = "the rows are outside of the shared memory";

fn misaligned<E>(_: E) -> &'static str {
    "the shared memory is not aligned"
}

/// Rows of a segment's request.
#[derive(Clone, Copy)]
struct SegmentRows {
    first: usize,
    count: usize,
}

impl SegmentRows {
    fn of(segment: &Segment, part: SegmentRowRange) -> Self {
        Self {
            first: segment.first_row + part.from,
            count: part.rows(),
        }
    }

    fn all(segment: &Segment) -> Self {
        Self {
            first: segment.first_row,
            count: segment.rows,
        }
    }

    /// Their byte range in an array that starts at `start`.
    fn bytes(self, start: usize, row_bytes: usize) -> Option<Range<usize>> {
        let from = start.checked_add(self.first.checked_mul(row_bytes)?)?;
        Some(from..from.checked_add(self.count.checked_mul(row_bytes)?)?)
    }
}

/// The input bytes of some rows.
fn input_bytes<'a>(
    memory: &'a [u8],
    model: &OpenModel<'_>,
    segment: &Segment,
    rows: SegmentRows,
) -> Result<&'a [u8], &'static str> {
    rows.bytes(segment.input_offset, model.row_bytes(segment))
        .and_then(|range| memory.get(range))
        .ok_or(OUTSIDE)
}

/// The input values of some rows.
fn input<'a>(
    memory: &'a [u8],
    model: &OpenModel<'_>,
    segment: &Segment,
    rows: SegmentRows,
) -> Result<Rows<'a>, &'static str> {
    rows_of(segment, input_bytes(memory, model, segment, rows)?)
}

/// Casts bytes to the rows of a segment.
fn rows_of<'a>(segment: &Segment, bytes: &'a [u8]) -> Result<Rows<'a>, &'static str> {
    Ok(match segment.is_double {
        true => Rows::F64(bytemuck::try_cast_slice(bytes).map_err(misaligned)?),
        false => Rows::F32(bytemuck::try_cast_slice(bytes).map_err(misaligned)?),
    })
}

/// The bytes of an output of some rows.
fn result_bytes<'a>(
    memory: &'a mut Extent,
    model: &OpenModel<'_>,
    segment: &Segment,
    output: &OutputInfo,
    rows: SegmentRows,
) -> Result<&'a mut [u8], &'static str> {
    let kinds = KindSet::from_bits(segment.kinds);
    let layout = Layout::new(&model.outputs, kinds, segment.request_rows)
        .ok_or("the outputs are too large")?;
    let start = segment
        .results_offset
        .saturating_add(layout.offset(output.kind));
    rows.bytes(start, output.row_bytes())
        .and_then(|range| memory.as_mut_slice().get_mut(range))
        .ok_or("the results are outside of the shared memory")
}

/// The elements of an output of some rows.
fn results<'a>(
    memory: &'a mut Extent,
    model: &OpenModel<'_>,
    segment: &Segment,
    output: &OutputInfo,
    rows: SegmentRows,
) -> Result<OutputMut<'a>, &'static str> {
    output_of(output, result_bytes(memory, model, segment, output, rows)?)
}

/// Casts bytes to the elements of an output.
fn output_of<'a>(output: &OutputInfo, out: &'a mut [u8]) -> Result<OutputMut<'a>, &'static str> {
    Ok(match output.element {
        ElementType::F32 => OutputMut::F32(bytemuck::try_cast_slice_mut(out).map_err(misaligned)?),
        ElementType::F64 => OutputMut::F64(bytemuck::try_cast_slice_mut(out).map_err(misaligned)?),
        ElementType::I32 => OutputMut::I32(bytemuck::try_cast_slice_mut(out).map_err(misaligned)?),
    })
}
