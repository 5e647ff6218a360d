//! Why a settings file or a snapshot line is refused.

use crate::limits::{FILE_BYTES_MAX, QUOTED_CHARS_MAX, SNAPSHOT_LINE_BYTES_MAX};

/// Why settings or a snapshot cannot be used. The message does not name the file: the caller
/// knows it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ValidationError {
    /// More bytes than a ConfigMap holds.
    #[error("{bytes} bytes are too many: settings have at most {FILE_BYTES_MAX}")]
    FileTooLarge { bytes: usize },
    /// Not YAML, or several documents.
    #[error("line {line}: {problem}")]
    NotYaml {
        /// The line, from 1; 0 where it is not known.
        line: u64,
        /// The parser's message.
        problem: String,
    },
    /// More bytes than a snapshot line may have.
    #[error("{bytes} bytes are too many: a snapshot line has at most {SNAPSHOT_LINE_BYTES_MAX}")]
    LineTooLong { bytes: usize },
    /// Not one JSON value.
    #[error("{problem}")]
    NotJson {
        /// The parser's message.
        problem: String,
    },
    /// A field is missing, unknown, or has a value that is not allowed.
    #[error("{path}: {problem}")]
    Field {
        /// Path of the field, as `models[0].slo.latency`.
        path: String,
        /// What is wrong with it, and what to write instead.
        problem: String,
    },
}

impl ValidationError {
    pub(crate) fn field(path: impl Into<String>, problem: impl Into<String>) -> Self {
        let (path, problem) = (path.into(), problem.into());
        Self::Field { path, problem }
    }
}

/// A piece of the input on one line, quoted and shortened.
pub(crate) fn quoted(text: &str) -> String {
    let mut short: String = text.chars().take(QUOTED_CHARS_MAX).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    format!("{short:?}")
}
