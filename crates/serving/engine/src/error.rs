//! Errors of starting the engine, looking up a model, or installing one.

use albacore_os::OsError;

use crate::catalog::ModelSlotsExhausted;
use crate::limits::{INSTALL_DEADLINE, STARTUP_DEADLINE};

/// A model of this name cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelLookupError {
    /// It is declared, but not loaded yet.
    NotLoaded,
    /// It is declared, but was unloaded.
    Unloaded,
    Unknown,
}

/// A model could not be installed; the previous one is still served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstallError {
    /// The workers cannot open it, or it is no longer declared.
    #[error("{0}")]
    Refused(String),
    /// The workers did not open it in time.
    #[error("the workers did not open it within {} s", INSTALL_DEADLINE.as_secs())]
    Slow,
}

/// The engine cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the workers cannot be set up")]
    Os(#[from] OsError),
    /// More models than slots.
    #[error("there are too many models")]
    Models(#[from] ModelSlotsExhausted),
    /// A thread or a descriptor of the front could not be created.
    #[error("the workers cannot be supervised")]
    Io(#[from] std::io::Error),
    /// Workers exit before they are ready; their messages are on standard error.
    #[error("a worker ended {failures} times before it was ready, last with {cause}")]
    Workers {
        /// Consecutive incarnations that exited before they were ready.
        failures: u32,
        cause: String,
    },
    #[error("the workers were not ready after {} s", STARTUP_DEADLINE.as_secs())]
    Slow,
}
