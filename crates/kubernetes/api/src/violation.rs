//! An invalid field of a spec with its value and the remedy.

use std::fmt;

use crate::limits::QUOTED_CHARS_MAX;

/// An invalid field and its problem. Formatted as one sentence: `spec.workers is 0; it must be from
/// 1 to 256`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The path of the field: `spec.models[0].slo.latency`.
    pub field: String,
    /// The rest of the sentence after the field: its value and the remedy.
    pub problem: String,
    /// Line of the file, from 1; `None` without a file.
    pub line: Option<u64>,
}

impl Violation {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
            line: None,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.field, self.problem)
    }
}

/// A user's text in quotes, truncated and without control characters.
pub(crate) fn quoted(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(QUOTED_CHARS_MAX)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(QUOTED_CHARS_MAX).is_some() {
        shown.push('…');
    }
    format!("\"{shown}\"")
}
