//! Errors of benchmarks.

use std::path::PathBuf;

use albacore_load::{GetError, LoadError, TraceError};

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// An option is wrong; the message names the option, its value and what is expected.
    #[error("{0}")]
    Usage(String),
    /// The benchmark failed.
    #[error("{0}")]
    Failed(String),
    /// A file cannot be read.
    #[error("{}", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A file of recorded times cannot be parsed.
    #[error("{}", path.display())]
    Record { path: PathBuf, source: TraceError },
    /// Metadata or metrics of the server cannot be read.
    #[error("cannot read {url}")]
    Fetch { url: String, source: GetError },
    /// The load generator failed.
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
