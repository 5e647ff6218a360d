//! What is wrong with a model file, and where.

use thiserror::Error;

use crate::limits::{
    DEPTH_MAX, EXCERPT_MAX, FEATURES_MAX, GROUPS_MAX, NESTING_MAX, TREE_NODES_MAX, TREES_MAX,
};

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
    /// The bytes are in no format that is read here: another library's, another output of a
    /// supported library, or no model at all.
    #[error("not a model file of XGBoost, LightGBM or scikit-learn: it is {what}. {remedy}")]
    Foreign {
        /// What the file is, as far as its content tells.
        what: String,
        /// How to get a file that is read.
        remedy: String,
    },
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
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The model is whole but of a kind that nothing here runs.
    #[error("model not supported: {0}")]
    Unsupported(String),
    /// The model is larger than a written bound.
    #[error(
        "model too large: {path}{sep}{reason} (bounds: {TREES_MAX} trees, {TREE_NODES_MAX} nodes a tree, \
         {DEPTH_MAX} levels, {FEATURES_MAX} features, {GROUPS_MAX} groups, nesting {NESTING_MAX})",
        sep = if path.is_empty() { "" } else { ": " }
    )]
    TooLarge {
        /// The field; empty where it is the model.
        path: String,
        /// What is too large.
        reason: String,
    },
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
            Self::TooLarge { path, reason } => Self::TooLarge {
                path: join(path),
                reason,
            },
            other => other,
        }
    }

    /// The value at hand is beyond a bound.
    pub(crate) fn too_large(reason: impl Into<String>) -> Self {
        Self::TooLarge {
            path: String::new(),
            reason: reason.into(),
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
