//! One thread's computing: rows of a batch in, results out, both in place.

use albacore_os::Extent;
use albacore_trees::{ElementType, Kind, OutputMut, Predictor, Rows, Scratch};

use super::models::Table;
use crate::KindSet;
use crate::layout::Layout;
use crate::ring::Segment;

/// What one thread computes with. Each thread maps the results for itself, so that each has an
/// exclusive view; threads and workers write disjoint bytes.
pub(super) struct Hands<'a> {
    rows: &'a [u8],
    results: Extent,
    scratch: Scratch,
    /// The batch, read from the ring.
    pub(super) segments: Vec<Segment>,
}

impl<'a> Hands<'a> {
    pub(super) fn new(rows: &'a [u8], results: Extent) -> Self {
        Self {
            rows,
            results,
            scratch: Scratch::default(),
            segments: Vec::new(),
        }
    }

    /// Computes rows `from..to` of a segment (counted from its first row).
    pub(super) fn compute(
        &mut self,
        models: &Table,
        segment: &Segment,
        from: usize,
        to: usize,
    ) -> Result<(), String> {
        let served = models.get(segment.edition).ok_or("no such model")?;
        let kinds = KindSet::from_bits(segment.kinds);
        let layout = Layout::new(&served.outputs, kinds, segment.request_rows)
            .ok_or("the outputs are too large")?;
        let element = if segment.is_double {
            ElementType::F64
        } else {
            ElementType::F32
        };
        let row_bytes = served.predictor.features() * element.bytes();
        let (first, rows) = (segment.first_row + from, to - from);
        let input = part(segment.input_offset, first, rows, row_bytes)
            .and_then(|range| self.rows.get(range))
            .ok_or("the rows are outside of the shared memory")?;
        for output in served
            .outputs
            .iter()
            .filter(|output| kinds.contains(output.kind))
        {
            let start = segment
                .results_offset
                .saturating_add(layout.offset(output.kind));
            let out = part(start, first, rows, output.row_bytes())
                .and_then(|range| self.results.as_mut_slice().get_mut(range))
                .ok_or("the results are outside of the shared memory")?;
            let (kind, to) = (output.kind, output.element);
            predict(
                &served.predictor,
                kind,
                (element, input),
                (to, out),
                &mut self.scratch,
            )?;
        }
        Ok(())
    }
}

/// The bytes of `rows` rows from row `first` of an array that starts at `start`.
fn part(
    start: usize,
    first: usize,
    rows: usize,
    row_bytes: usize,
) -> Option<std::ops::Range<usize>> {
    let from = start.checked_add(first.checked_mul(row_bytes)?)?;
    Some(from..from.checked_add(rows.checked_mul(row_bytes)?)?)
}

fn predict(
    predictor: &Predictor<'_>,
    kind: Kind,
    (element, rows): (ElementType, &[u8]),
    (to, out): (ElementType, &mut [u8]),
    scratch: &mut Scratch,
) -> Result<(), String> {
    let misaligned = |_| "the shared memory is not aligned".to_owned();
    let rows = match element {
        ElementType::F64 => Rows::F64(bytemuck::try_cast_slice(rows).map_err(misaligned)?),
        ElementType::F32 | ElementType::I32 => {
            Rows::F32(bytemuck::try_cast_slice(rows).map_err(misaligned)?)
        }
    };
    let out = match to {
        ElementType::F32 => OutputMut::F32(bytemuck::try_cast_slice_mut(out).map_err(misaligned)?),
        ElementType::F64 => OutputMut::F64(bytemuck::try_cast_slice_mut(out).map_err(misaligned)?),
        ElementType::I32 => OutputMut::I32(bytemuck::try_cast_slice_mut(out).map_err(misaligned)?),
    };
    predictor
        .predict(kind, rows, out, scratch)
        .map_err(|error| error.to_string())
}
