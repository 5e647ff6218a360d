//! What can go wrong, and what to do about it.

use thiserror::Error;

use crate::limits::{
    DEPTH_MAX, EXCERPT_MAX, FEATURES_MAX, GROUPS_MAX, NESTING_MAX, TREE_NODES_MAX, TREES_MAX,
};
use crate::output::{ElementType, Kind};

/// The start of a text from a file, short enough for a message.
pub(crate) fn excerpt(text: &str) -> &str {
    let mut end = text.len().min(EXCERPT_MAX);
    // bound: a character has at most four bytes.
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Why bytes are not a model that this crate can run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ModelError {
    /// The bytes are in no known format.
    #[error(
        "not a model: the bytes are neither XGBoost UBJSON or JSON (save_model to .ubj or .json) \
         nor LightGBM text (save_model)"
    )]
    UnknownFormat,
    /// The bytes end or are damaged in the middle of the format.
    #[error("damaged model: {path} at byte {offset}: {reason}")]
    Syntax {
        /// The field being read, such as `learner.gradient_booster.model.trees[3].id`.
        path: String,
        /// Where in the bytes.
        offset: usize,
        /// What was found there.
        reason: String,
    },
    /// A field is missing or its value contradicts the rest of the model.
    #[error("damaged model: {path}: {reason}")]
    Inconsistent {
        /// The field.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The model is whole but of a kind that this crate does not run.
    #[error("model not supported: {0}")]
    Unsupported(String),
    /// The model is larger than a written bound.
    #[error(
        "model too large: {0} (bounds: {TREES_MAX} trees, {TREE_NODES_MAX} nodes a tree, \
         {DEPTH_MAX} levels, {FEATURES_MAX} features, {GROUPS_MAX} groups, nesting {NESTING_MAX})"
    )]
    TooLarge(String),
}

impl ModelError {
    /// The same error, seen from the field that holds the one it names.
    pub(crate) fn inside(self, parent: &str) -> Self {
        let parent = excerpt(parent);
        let join = |path: String| match path.as_str() {
            "" => parent.to_owned(),
            child if child.starts_with('[') => format!("{parent}{child}"),
            child => format!("{parent}.{child}"),
        };
        match self {
            Self::Syntax {
                path,
                offset,
                reason,
            } => Self::Syntax {
                path: join(path),
                offset,
                reason,
            },
            Self::Inconsistent { path, reason } => Self::Inconsistent {
                path: join(path),
                reason,
            },
            other => other,
        }
    }

    /// A field contradicts the rest.
    pub(crate) fn inconsistent(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Inconsistent {
            path: path.into(),
            reason: reason.into(),
        }
    }
}

/// Why bytes are not a compiled model.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ImageError {
    /// The bytes do not start on an 8-byte boundary; a memory mapping and an [`Image`] do.
    ///
    /// [`Image`]: crate::Image
    #[error("compiled model: the bytes do not start at a multiple of 8; map the file, or copy it")]
    Misaligned,
    /// The bytes are not a compiled model, or come from another version or byte order.
    #[error("compiled model: header says {found:#x} where {expected:#x} is due; compile it again")]
    Header {
        /// What is there.
        found: u64,
        /// What this version writes.
        expected: u64,
    },
    /// Fewer or more bytes than the header announces.
    #[error(
        "compiled model: {found} bytes where the header announces {expected}; compile it again"
    )]
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
        /// The array.
        section: &'static str,
        /// The tree, or 0 for arrays of the whole model.
        tree: usize,
    },
}

/// Why a prediction was not made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PredictError {
    /// The values given are not a whole number of rows.
    #[error("{values} values are not rows of {features} features")]
    Rows {
        /// Values given.
        values: usize,
        /// Features of the model.
        features: usize,
    },
    /// The output does not hold what the rows give.
    #[error("the output holds {found} values; {rows} rows of kind {kind} give {expected}")]
    OutputLength {
        /// Values that the output holds.
        found: usize,
        /// Values that it must hold.
        expected: usize,
        /// Rows given.
        rows: usize,
        /// What was asked for.
        kind: Kind,
    },
    /// The output has another element type than the kind gives.
    #[error("kind {kind} of this model gives {expected}, not {found}")]
    OutputElement {
        /// Element type of the output.
        found: ElementType,
        /// Element type that the kind gives.
        expected: ElementType,
        /// What was asked for.
        kind: Kind,
    },
    /// The range of iterations is not inside the model.
    #[error("iterations {start}..{end} are not within the model's {iterations}")]
    Iterations {
        /// First iteration asked for.
        start: usize,
        /// End of the range asked for.
        end: usize,
        /// Iterations of the model.
        iterations: usize,
    },
    /// The base margin does not hold one value per row and group.
    #[error("the base margin holds {found} values; {expected} are needed, one per row and group")]
    BaseMargin {
        /// Values given.
        found: usize,
        /// Values needed.
        expected: usize,
    },
    /// The model cannot give this kind.
    #[error("kind {kind} is not supported for this model: {reason}")]
    Unsupported {
        /// What was asked for.
        kind: Kind,
        /// Why not.
        reason: &'static str,
    },
}
