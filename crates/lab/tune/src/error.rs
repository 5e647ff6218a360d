//! Errors of tuning.

use std::path::PathBuf;

use albacore_api::ReadError;
use albacore_bench::BenchError;
use albacore_values::sentence;

#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// An option or a field is wrong; the message names it, its value and a remedy.
    #[error("{0}")]
    Usage(String),
    /// The deployment's file is not valid.
    #[error(transparent)]
    Deployment(#[from] ReadError),
    #[error("{}", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    /// The file's layout does not allow the edit.
    #[error("{}: cannot write the new values: {what}", path.display())]
    Patch { path: PathBuf, what: String },
    /// No configuration meets the objective; the message contains the nearest feasible objective.
    #[error("{0}")]
    Infeasible(String),
    #[error("{0}")]
    Failed(String),
    #[error("interrupted before a candidate was measured; nothing was changed")]
    Interrupted,
    #[error(
        "ended early: {why}; nothing was changed. Results so far are in {}; the best is {best}",
        folder.display()
    )]
    EndedEarly {
        why: String,
        folder: PathBuf,
        best: String,
    },
    #[error(transparent)]
    Bench(#[from] BenchError),
}

impl TuneError {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }

    /// Reason of an early end, for the results.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Interrupted => "interrupted".to_owned(),
            other => sentence(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_an_early_end_holds_the_cause() {
        let full = || std::io::Error::other("the disk is full");
        let path = PathBuf::from("/x/trace");
        let own = TuneError::file(&path)(full());
        let of_bench = TuneError::Bench(BenchError::File {
            path,
            source: full(),
        });
        for error in [own, of_bench] {
            assert_eq!(error.reason(), "/x/trace: the disk is full");
        }
    }
}
