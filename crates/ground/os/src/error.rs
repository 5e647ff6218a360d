//! Error of all functions here that open a file or make a plain system call.

use std::io;
use std::path::{Path, PathBuf};

use crate::StatError;

/// A file could not be read or a system call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OsError {
    /// A file of procfs, sysfs or a cgroup could not be read.
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A file has unexpected content.
    #[error("{}: expected {expected}, found {text:?}", path.display())]
    Content {
        path: PathBuf,
        /// The content, truncated.
        text: String,
        /// Description of the expected content.
        expected: &'static str,
    },
    /// A `stat` file of a process or thread could not be parsed.
    #[error("cannot parse {}", path.display())]
    Stat {
        path: PathBuf,
        /// The parse error.
        source: StatError,
    },
    /// A system call failed.
    #[error("{call} failed")]
    Call {
        call: &'static str,
        source: io::Error,
    },
}

impl OsError {
    pub(crate) fn read(path: &Path, source: io::Error) -> Self {
        Self::Read {
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn content(path: &Path, text: &str, expected: &'static str) -> Self {
        let text = text.chars().take(80).collect();
        Self::Content {
            path: path.to_owned(),
            text,
            expected,
        }
    }

    pub(crate) fn call(call: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Call {
            call,
            source: source.into(),
        }
    }

    /// True if the file exists but does not support the operation (EOPNOTSUPP).
    pub(crate) fn is_not_supported(&self) -> bool {
        matches!(self, Self::Read { source, .. } if source.raw_os_error() == Some(nix::libc::EOPNOTSUPP))
    }

    /// True if a message was not sent because the receiver's queue is full.
    pub fn is_queue_full(&self) -> bool {
        matches!(self, Self::Call { source, .. } if source.kind() == io::ErrorKind::WouldBlock)
    }

    /// True if the process, thread or file no longer exists: normal when observing objects with an
    /// independent lifetime.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Read { source, .. } | Self::Call { source, .. } => {
                source.kind() == io::ErrorKind::NotFound
                    || source.raw_os_error() == Some(nix::libc::ESRCH)
            }
            Self::Content { .. } | Self::Stat { .. } => false,
        }
    }
}
