//! Errors of model files, with the field or the byte offset.

use thiserror::Error;

use crate::limits::{
    DEPTH_MAX, EXCERPT_MAX, FEATURES_MAX, GROUPS_MAX, NESTING_MAX, TREE_NODES_MAX, TREES_MAX,
};

/// Result of reading a part of a model file.
pub(crate) type ModelResult<T> = Result<T, ModelError>;

/// Returns the start of a text from a file, short enough for a message.
pub(crate) fn excerpt(text: &str) -> &str {
    let mut end = text.len().min(EXCERPT_MAX);
    // bound: a character has at most four bytes.
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Why a model file was rejected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ModelError {
    /// The format is not supported: that of another library, another output of a supported library,
    /// or not a model at all.
    #[error("not a model file of XGBoost, LightGBM or scikit-learn: it is {what}. {remedy}")]
    Foreign {
        /// The identified format.
        what: String,
        /// How to get a supported file.
        remedy: String,
    },
    /// The file is truncated or syntactically invalid.
    #[error("damaged model: {path} at byte {offset}: {reason}")]
    Syntax {
        /// The field being read, such as `learner.gradient_booster.model.trees[3].id`.
        path: String,
        /// Byte offset of the error in the file.
        offset: usize,
        reason: String,
    },
    /// A field is missing, or its value contradicts the rest of the model.
    #[error("damaged model: {path}: {reason}")]
    Inconsistent { path: String, reason: String },
    /// This crate does not support this kind of model.
    #[error("model not supported: {0}")]
    Unsupported(String),
    /// The model exceeds a documented bound.
    #[error(
        "model too large: {path}{sep}{reason} (bounds: {TREES_MAX} trees, {TREE_NODES_MAX} nodes \
         per tree, {DEPTH_MAX} levels, {FEATURES_MAX} features, {GROUPS_MAX} groups, nesting \
         {NESTING_MAX})",
        sep = if path.is_empty() { "" } else { ": " }
    )]
    TooLarge {
        /// The field; empty for the model as a whole.
        path: String,
        reason: String,
    },
}

impl ModelError {
    /// Prepends the path of the enclosing field.
    pub(crate) fn inside(mut self, parent: &str) -> Self {
        let parent = excerpt(parent);
        if let Self::Syntax { path, .. }
        | Self::Inconsistent { path, .. }
        | Self::TooLarge { path, .. } = &mut self
        {
            *path = match path.as_str() {
                "" => parent.to_owned(),
                child if child.starts_with('[') => format!("{parent}{child}"),
                child => format!("{parent}.{child}"),
            };
        }
        self
    }

    /// A value exceeds a bound.
    pub(crate) fn too_large(reason: impl Into<String>) -> Self {
        Self::TooLarge {
            path: String::new(),
            reason: reason.into(),
        }
    }

    /// A field contradicts the rest of the model.
    pub(crate) fn inconsistent(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Inconsistent {
            path: path.into(),
            reason: reason.into(),
        }
    }
}
