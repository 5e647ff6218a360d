//! Errors of settings files and snapshot lines.

use crate::limits::{FILE_BYTES_MAX, QUOTED_CHARS_MAX, SNAPSHOT_LINE_BYTES_MAX};

/// Why settings or a snapshot are rejected. The message does not name the file, because the caller
/// knows it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ValidationError {
    /// The file is larger than a ConfigMap can be.
    #[error("{bytes} bytes are too many: settings have at most {FILE_BYTES_MAX}")]
    FileTooLarge { bytes: usize },
    /// Not YAML, or more than one document.
    #[error("line {line}: {problem}")]
    NotYaml {
        /// Line number from 1; 0 if it is not known.
        line: u64,
        /// The parser's message.
        problem: String,
    },
    /// The snapshot line is too long.
    #[error("{bytes} bytes are too many: a snapshot line has at most {SNAPSHOT_LINE_BYTES_MAX}")]
    LineTooLong { bytes: usize },
    /// Not a single JSON value.
    #[error("{problem}")]
    NotJson {
        /// The parser's message.
        problem: String,
    },
    /// A field is missing or unknown, or its value is not allowed.
    #[error("{path}: {problem}")]
    Field {
        /// Path of the field, such as `models[0].slo.latency`.
        path: String,
        /// Describes the problem and what to write instead.
        problem: String,
    },
}

impl ValidationError {
    pub(crate) fn field(path: impl Into<String>, problem: impl Into<String>) -> Self {
        let (path, problem) = (path.into(), problem.into());
        Self::Field { path, problem }
    }
}

/// Quotes and shortens an excerpt of the input, on one line.
pub(crate) fn quoted(text: &str) -> String {
    let mut short: String = text.chars().take(QUOTED_CHARS_MAX).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    format!("{short:?}")
}
