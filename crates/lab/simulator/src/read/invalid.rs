//! An error in a file, and its location.

use std::fmt;

/// Location of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line, counted from 1.
    Line(u64),
    /// A `--set` option with this text.
    Set(String),
}

/// An error message of one sentence that contains line and key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Invalid {
    pub place: Place,
    /// Key, or column of a table.
    pub key: String,
    /// What is wrong with the value, and what is expected.
    pub problem: String,
}

impl Invalid {
    pub(crate) fn new(place: Place, key: &str, problem: impl Into<String>) -> Self {
        Self {
            place,
            key: key.to_owned(),
            problem: problem.into(),
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            place,
            key,
            problem,
        } = self;
        match place {
            Place::Line(line) => write!(f, "line {line}: {key}: {problem}"),
            Place::Set(set) => write!(f, "--set {set}: {key}: {problem}"),
        }
    }
}
