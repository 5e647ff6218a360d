//! Errors of images and predictions.

use thiserror::Error;

use crate::output::{ElementType, Kind};

/// The bytes are not a compiled model.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ImageError {
    /// The bytes do not start on an 8-byte boundary; a memory mapping and an [`Image`] do.
    ///
    /// [`Image`]: crate::Image
    #[error("compiled model: the bytes do not start at a multiple of 8; map the file, or copy it")]
    Misaligned,
    /// The bytes are not a compiled model, or come from another version or byte order.
    #[error("compiled model: the header has {found:#x} instead of {expected:#x}; compile it again")]
    Header {
        found: u64,
        /// Value that this version writes.
        expected: u64,
    },
    /// Fewer or more bytes than the header announces.
    #[error("compiled model: {found} bytes, but the header announces {expected}; compile it again")]
    Length {
        /// Bytes given.
        found: usize,
        /// Bytes announced.
        expected: usize,
    },
    /// The contents do not match the checksum.
    #[error("compiled model: the checksum does not match; compile it again")]
    Checksum,
    /// An index or a count points outside of its section.
    #[error("compiled model: {section} of tree {tree} is out of range; compile it again")]
    Range {
        section: &'static str,
        /// The tree, or 0 for arrays of the whole model.
        tree: usize,
    },
}

/// A prediction was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PredictError {
    /// The values given are not a whole number of rows.
    #[error("{values} values are not rows of {features} features")]
    Rows {
        values: usize,
        /// Features of the model.
        features: usize,
    },
    /// The length of the output is not that of the results.
    #[error("the output holds {found} values; {rows} rows of kind {kind} give {expected}")]
    OutputLength {
        /// Values that the output holds.
        found: usize,
        /// Values that it must hold.
        expected: usize,
        /// Rows given.
        rows: usize,
        /// The requested kind.
        kind: Kind,
    },
    /// The output has another element type than the kind gives.
    #[error("kind {kind} of this model gives {expected}, not {found}")]
    OutputElement {
        /// Element type of the output.
        found: ElementType,
        /// Element type that the kind gives.
        expected: ElementType,
        /// The requested kind.
        kind: Kind,
    },
    /// The range of iterations is not inside the model.
    #[error("iterations {start}..{end} are not within the model's {iterations}")]
    Iterations {
        /// First requested iteration.
        start: usize,
        /// End of the requested range.
        end: usize,
        /// Iterations of the model.
        iterations: usize,
    },
    /// The base margin does not hold one value per row and group.
    #[error("the base margin holds {found} values; {expected} are needed, one per row and group")]
    BaseMargin { found: usize, expected: usize },
    /// Partial outputs of a call that is divided by trees do not fit together.
    #[error("the call cannot be divided like this: {reason}")]
    Divided { reason: &'static str },
    /// The model cannot give this kind.
    #[error("kind {kind} is not supported for this model: {reason}")]
    Unsupported {
        /// The requested kind.
        kind: Kind,
        reason: &'static str,
    },
}
