//! Layout of a request's results: its outputs in the order of [`Kind::ALL`], each aligned. The
//! front and the workers must agree on it, so both use this code.

use albacore_trees::{ElementType, OutputMut, PredictError};
use albacore_trees::{Kind, PredictScratch, Predictor, Rows};

use crate::kind::KindSet;
use crate::limits::ALIGNMENT;

/// An output that a model supports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputInfo {
    pub kind: Kind,
    pub element: ElementType,
    /// The shape of one row's output; empty for a scalar.
    pub row_shape: Vec<usize>,
}

impl OutputInfo {
    #[must_use]
    pub fn row_elements(&self) -> usize {
        self.row_shape.iter().product()
    }

    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.row_elements() * self.element.bytes()
    }
}

/// Offsets of the outputs of one request, in bytes from the start of its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// By `Kind as usize`; only valid for requested kinds.
    offsets: [usize; Kind::ALL.len()],
    /// Bytes of all outputs.
    pub bytes: usize,
}

impl Layout {
    /// Computes the layout of `kinds` for a request of `rows` rows; `None` if it exceeds the
    /// address space.
    pub fn new(outputs: &[OutputInfo], kinds: KindSet, rows: usize) -> Option<Self> {
        let mut layout = Self {
            offsets: [0; Kind::ALL.len()],
            bytes: 0,
        };
        for output in outputs.iter().filter(|output| kinds.contains(output.kind)) {
            let start = layout.bytes.checked_next_multiple_of(ALIGNMENT)?;
            layout.offsets[output.kind as usize] = start;
            layout.bytes = start.checked_add(rows.checked_mul(output.row_bytes())?)?;
        }
        Some(layout)
    }

    /// Start of the output of `kind`.
    pub fn offset(&self, kind: Kind) -> usize {
        self.offsets[kind as usize]
    }
}

/// The outputs in `kinds` that a model supports.
pub fn outputs_of(predictor: &Predictor<'_>, kinds: KindSet) -> Vec<OutputInfo> {
    let outputs = kinds.iter().filter(|&kind| is_supported(predictor, kind));
    outputs
        .map(|kind| OutputInfo {
            kind,
            element: predictor.output_element(kind),
            row_shape: predictor.output_row_shape(kind),
        })
        .collect()
}

/// Whether a model supports `kind`: predicts zero rows and checks the error.
fn is_supported(predictor: &Predictor<'_>, kind: Kind) -> bool {
    let out = match predictor.output_element(kind) {
        ElementType::F32 => OutputMut::F32(&mut []),
        ElementType::F64 => OutputMut::F64(&mut []),
        ElementType::I32 => OutputMut::I32(&mut []),
    };
    let result = predictor.predict(kind, Rows::F32(&[]), out, &mut PredictScratch::default());
    !matches!(result, Err(PredictError::Unsupported { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(kind: Kind, row_shape: &[usize]) -> OutputInfo {
        OutputInfo {
            kind,
            element: ElementType::F32,
            row_shape: row_shape.to_vec(),
        }
    }

    #[test]
    fn outputs_are_aligned_and_do_not_overlap() {
        let outputs = [output(Kind::Value, &[]), output(Kind::Contribs, &[3, 5])];
        let kinds = KindSet::only(Kind::Value).with(Kind::Contribs);
        let layout = Layout::new(&outputs, kinds, 17).unwrap();
        assert_eq!(
            (layout.offset(Kind::Value), layout.offset(Kind::Contribs)),
            (0, 128)
        );
        assert_eq!(layout.bytes, 128 + 17 * 60);
        let only = Layout::new(&outputs, KindSet::only(Kind::Contribs), 17).unwrap();
        assert_eq!((only.offset(Kind::Contribs), only.bytes), (0, 17 * 60));
        assert!(Layout::new(&outputs, kinds, usize::MAX / 3).is_none());
    }
}
