//! Errors of images and predictions.

use thiserror::Error;

use crate::output::{ElementType, Kind};

/// Why bytes cannot be opened as a compiled model.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ImageError {
    /// The bytes are not 8-byte aligned; a memory mapping and an [`Image`] are.
    ///
    /// [`Image`]: crate::Image
    #[error("compiled model: the bytes do not start at a multiple of 8; map the file, or copy it")]
    Misaligned,
    /// The bytes are not a compiled model, or one of another version or byte order.
    #[error("compiled model: the header has {found:#x} instead of {expected:#x}; compile it again")]
    Header {
        found: u64,
        /// Value written by this version.
        expected: u64,
    },
    /// The number of bytes differs from the length in the header.
    #[error("compiled model: {found} bytes, but the header announces {expected}; compile it again")]
    Length {
        /// Number of bytes.
        found: usize,
        /// Length in the header.
        expected: usize,
    },
    /// The contents do not match the checksum.
    #[error("compiled model: the checksum does not match; compile it again")]
    Checksum,
    /// An index or count is out of range.
    #[error("compiled model: {section} of tree {tree} is out of range; compile it again")]
    Range {
        section: &'static str,
        /// Index of the tree; 0 for arrays of the whole model.
        tree: usize,
    },
}

/// Why a prediction was rejected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PredictError {
    /// The number of values is not a multiple of the number of features.
    #[error("{values} values are not a whole number of rows of {features} features")]
    Rows {
        values: usize,
        /// Number of features of the model.
        features: usize,
    },
    /// The output has the wrong length.
    #[error("the output has {found} values; expected {expected} for {rows} rows of kind {kind}")]
    OutputLength {
        /// Number of values in the output.
        found: usize,
        /// Required number of values.
        expected: usize,
        rows: usize,
        /// The requested kind.
        kind: Kind,
    },
    /// The output has the wrong element type.
    #[error("kind {kind} of this model gives {expected}, not {found}")]
    OutputElement {
        /// Element type of the output.
        found: ElementType,
        /// Required element type.
        expected: ElementType,
        /// The requested kind.
        kind: Kind,
    },
    /// The iterations are out of range.
    #[error("iterations {start}..{end} are not within the model's {iterations}")]
    Iterations {
        /// First requested iteration.
        start: usize,
        /// End of the requested range.
        end: usize,
        /// Number of iterations of the model.
        iterations: usize,
    },
    /// The base margin does not have one value per row and group.
    #[error("the base margin has {found} values; expected {expected}, one per row and group")]
    BaseMargin { found: usize, expected: usize },
    /// Partial outputs of a call divided by trees do not match.
    #[error("invalid partial output: {reason}")]
    Divided { reason: &'static str },
    /// The model does not support this kind of prediction.
    #[error("kind {kind} is not supported for this model: {reason}")]
    Unsupported {
        /// The requested kind.
        kind: Kind,
        reason: &'static str,
    },
}
