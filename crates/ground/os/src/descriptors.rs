//! How many file descriptors this process may have.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::OsError;

/// Raises the limit of this process's open files as far as possible without a privilege, and
/// returns it.
///
/// # Errors
/// The kernel refuses to read or to raise it.
pub fn raise_descriptor_limit() -> Result<u64, OsError> {
    let (soft, hard) = read_limits()?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
            .map_err(|e| OsError::call("setrlimit(RLIMIT_NOFILE)", e))?;
    }
    Ok(hard)
}

/// The limit of this process's open files now.
///
/// # Errors
/// The kernel refuses to read it.
pub fn read_descriptor_limit() -> Result<u64, OsError> {
    Ok(read_limits()?.0)
}

/// The soft and the hard limit.
fn read_limits() -> Result<(u64, u64), OsError> {
    getrlimit(Resource::RLIMIT_NOFILE).map_err(|e| OsError::call("getrlimit(RLIMIT_NOFILE)", e))
}
