//! What one thread computes: rows of a batch in, results out, both in place.

use std::ops::Range;

use albacore_os::Extent;
use albacore_trees::{
    Accumulator, ElementType, OutputMut, PartialOutput, PredictError, PredictScratch, Rows,
};

use super::batch_split::TreePiece;
use super::front_memory::View;
use super::models::{OpenModel, Table};
use crate::layout::Layout;
use crate::ring::Segment;
use crate::{KindSet, OutputInfo};

/// The memory that one thread computes with. Each thread maps the results for itself, so that each
/// has an exclusive view; threads and workers write disjoint bytes.
pub(super) struct ThreadContext {
    view: View,
    scratch: PredictScratch,
    /// The sums of an output whose trees are divided.
    sums: Accumulator,
    /// The batch, read from the ring.
    pub(super) segments: Vec<Segment>,
}

impl ThreadContext {
    pub(super) fn new(view: View) -> Self {
        Self {
            view,
            scratch: PredictScratch::default(),
            sums: Accumulator::default(),
            segments: Vec::new(),
        }
    }

    /// Computes with other memory from now on.
    pub(super) fn set_view(&mut self, view: View) {
        self.view = view;
    }

    /// Computes rows `from..to` of a segment (counted from its first row).
    pub(super) fn compute(
        &mut self,
        models: &Table,
        segment: &Segment,
        from: usize,
        to: usize,
    ) -> Result<(), String> {
        let model = models.get(segment.edition).ok_or(NO_MODEL)?;
        let kinds = KindSet::from_bits(segment.kinds);
        let place = SegmentRows {
            first: segment.first_row + from,
            count: to - from,
        };
        let rows = input(self.view.rows.as_slice(), model, segment, place)?;
        let outputs = model.outputs.iter();
        for output in outputs.filter(|output| kinds.contains(output.kind)) {
            let out = results(&mut self.view.results, model, segment, output, place)?;
            model
                .predictor
                .predict(output.kind, rows, out, &mut self.scratch)
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Computes the partial sums that some of the trees add to one output of a segment.
    pub(super) fn compute_partial(
        &mut self,
        models: &Table,
        piece: &TreePiece<'_>,
        partial: &mut PartialOutput,
    ) -> Result<(), String> {
        let segment = piece.segment;
        let model = models.get(segment.edition).ok_or(NO_MODEL)?;
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

    /// Adds the partial sums of a piece, in the order of the pieces, and with the last one writes
    /// the output.
    pub(super) fn add_partial(
        &mut self,
        models: &Table,
        piece: &TreePiece<'_>,
        partial: &PartialOutput,
    ) -> Result<(), String> {
        let (segment, kind) = (piece.segment, piece.kind);
        let model = models.get(segment.edition).ok_or(NO_MODEL)?;
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
        let output = output.ok_or("the model does not give this output")?;
        let rows = SegmentRows::all(segment);
        let out = results(&mut self.view.results, model, segment, output, rows)?;
        predictor.finish_sums(sums, out).map_err(described)
    }
}

const NO_MODEL: &str = "no such model";

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
    fn all(segment: &Segment) -> Self {
        Self {
            first: segment.first_row,
            count: segment.rows,
        }
    }

    /// Their bytes in an array that starts at `start`.
    fn bytes(self, start: usize, row_bytes: usize) -> Option<Range<usize>> {
        let from = start.checked_add(self.first.checked_mul(row_bytes)?)?;
        Some(from..from.checked_add(self.count.checked_mul(row_bytes)?)?)
    }
}

/// The input values of some rows.
fn input<'a>(
    memory: &'a [u8],
    model: &OpenModel<'_>,
    segment: &Segment,
    rows: SegmentRows,
) -> Result<Rows<'a>, String> {
    let element = match segment.is_double {
        true => ElementType::F64,
        false => ElementType::F32,
    };
    let row_bytes = model.predictor.features() * element.bytes();
    let bytes = rows
        .bytes(segment.input_offset, row_bytes)
        .and_then(|range| memory.get(range))
        .ok_or("the rows are outside of the shared memory")?;
    Ok(match segment.is_double {
        true => Rows::F64(bytemuck::try_cast_slice(bytes).map_err(misaligned)?),
        false => Rows::F32(bytemuck::try_cast_slice(bytes).map_err(misaligned)?),
    })
}

/// The bytes that an output of some rows is written to.
fn results<'a>(
    memory: &'a mut Extent,
    model: &OpenModel<'_>,
    segment: &Segment,
    output: &OutputInfo,
    rows: SegmentRows,
) -> Result<OutputMut<'a>, String> {
    let kinds = KindSet::from_bits(segment.kinds);
    let layout = Layout::new(&model.outputs, kinds, segment.request_rows)
        .ok_or("the outputs are too large")?;
    let start = segment
        .results_offset
        .saturating_add(layout.offset(output.kind));
    let out = rows
        .bytes(start, output.row_bytes())
        .and_then(|range| memory.as_mut_slice().get_mut(range))
        .ok_or("the results are outside of the shared memory")?;
    Ok(match output.element {
        ElementType::F32 => OutputMut::F32(bytemuck::try_cast_slice_mut(out).map_err(misaligned)?),
        ElementType::F64 => OutputMut::F64(bytemuck::try_cast_slice_mut(out).map_err(misaligned)?),
        ElementType::I32 => OutputMut::I32(bytemuck::try_cast_slice_mut(out).map_err(misaligned)?),
    })
}
