//! Why a bench cannot be run.

use std::path::PathBuf;

use albacore_load::{GetError, LoadError, TraceError};

/// Why a bench cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// What was asked cannot be asked; names the option, its value and what is due.
    #[error("{0}")]
    Usage(String),
    /// It could be asked, but it could not be done.
    #[error("{0}")]
    Failed(String),
    /// A file cannot be read.
    #[error("{}", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A file of recorded times is none.
    #[error("{}", path.display())]
    Record { path: PathBuf, source: TraceError },
    /// The server does not tell its model's metadata.
    #[error("{url}: name --features and --input if it has no metadata")]
    Look { url: String, source: GetError },
    /// The load could not be made.
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl From<BenchError> for albacore_command::Failure {
    fn from(error: BenchError) -> Self {
        let text = albacore_command::sentence(&error);
        match error {
            BenchError::Usage(_) => Self::Usage(text),
            _ => Self::Failed(text),
        }
    }
}
