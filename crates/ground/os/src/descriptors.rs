//! Limit of open file descriptors of this process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::OsError;

/// Raises the soft limit of open files (RLIMIT_NOFILE) to the hard limit and returns it.
///
/// # Errors
/// The limit cannot be read or raised.
pub fn raise_descriptor_limit() -> Result<u64, OsError> {
    let (soft, hard) = read_limits()?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
            .map_err(|e| OsError::call("setrlimit(RLIMIT_NOFILE)", e))?;
    }
    Ok(hard)
}

/// The current soft limit of open files.
///
/// # Errors
/// The limit cannot be read.
pub fn read_descriptor_limit() -> Result<u64, OsError> {
    Ok(read_limits()?.0)
}

/// Soft and hard limit.
fn read_limits() -> Result<(u64, u64), OsError> {
    getrlimit(Resource::RLIMIT_NOFILE).map_err(|e| OsError::call("getrlimit(RLIMIT_NOFILE)", e))
}
