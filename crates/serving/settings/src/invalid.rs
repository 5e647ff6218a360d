//! What is wrong with a file or a line.

use crate::limits::{FEED_LINE_BYTES_MAX, FILE_BYTES_MAX, QUOTED_CHARS_MAX};

/// Why settings or a snapshot of the feed cannot be used. The sentence does not name the file: the
/// caller knows it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Invalid {
    /// More bytes than a ConfigMap holds.
    #[error("{bytes} bytes are too many: settings have at most {FILE_BYTES_MAX}")]
    TooLarge { bytes: usize },
    /// No YAML, or several documents.
    #[error("line {line}: {problem}")]
    NotYaml {
        /// The line, from 1; 0 where it is not known.
        line: u64,
        /// What the reader says.
        problem: String,
    },
    /// More bytes than a line of the feed may have.
    #[error("{bytes} bytes are too many: a line of the feed has at most {FEED_LINE_BYTES_MAX}")]
    TooLong { bytes: usize },
    /// No JSON on one line.
    #[error("{problem}")]
    NotJson {
        /// What the reader says.
        problem: String,
    },
    /// A field is missing, unknown, or holds what it must not.
    #[error("{field}: {problem}")]
    Field {
        /// Where it is, as in `models[0].slo.latency`.
        field: String,
        /// What is wrong with it, and what to write instead.
        problem: String,
    },
}

impl Invalid {
    /// Of a field and the sentence about it.
    pub(crate) fn of(field: impl Into<String>, problem: impl Into<String>) -> Self {
        let (field, problem) = (field.into(), problem.into());
        Self::Field { field, problem }
    }
}

/// A piece of the user's file on one line, quoted and shortened.
pub(crate) fn quoted(text: &str) -> String {
    let mut short: String = text.chars().take(QUOTED_CHARS_MAX).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    format!("{short:?}")
}
