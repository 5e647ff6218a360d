//! Errors of router measurements.

use std::path::{Path, PathBuf};

use albacore_load::{GetError, LoadError};

#[derive(Debug, thiserror::Error)]
pub enum RoutingError {
    /// The message contains the failure and a remedy.
    #[error("{0}")]
    Failed(String),
    #[error("{}", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{url}")]
    Ask { url: String, source: GetError },
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The CPU time of a router cannot be read.
    #[error(transparent)]
    Cpu(#[from] albacore_bench::BenchError),
}

impl RoutingError {
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

impl From<RoutingError> for albacore_command::Failure {
    fn from(error: RoutingError) -> Self {
        Self::Failed(albacore_command::sentence(&error))
    }
}
