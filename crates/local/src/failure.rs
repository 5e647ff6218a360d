//! Why a run failed.

use std::fmt::Write as _;
use std::path::Path;

/// Why a run failed: one sentence that names file, field and value and says what to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// What was asked could not be done.
    Failed(String),
    /// Something that this program guarantees does not hold: a bug.
    Broken(String),
    /// The built-in server failed with this exit code and has said why on standard error.
    Told(u8),
}

impl Failure {
    /// [`Failure::Failed`] because of a file.
    pub(crate) fn file(path: &Path, error: &dyn std::error::Error) -> Self {
        Self::Failed(format!("{}: {}", path.display(), sentence(error)))
    }

    /// The sentence.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Failed(text) | Self::Broken(text) => text,
            Self::Told(_) => "the server said why",
        }
    }
}

/// An error with its sources on one line.
pub fn sentence(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    // bound: sources of errors are finite chains of values.
    while let Some(cause) = source {
        // infallible: writing to a String.
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}
