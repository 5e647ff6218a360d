//! How many file descriptors this process may have.

use nix::errno::Errno;
use nix::libc;

use crate::OsError;

/// Raises the limit of this process's open files as far as it may be raised without a privilege,
/// and tells it.
///
/// # Errors
/// The kernel refuses to tell or to raise it.
pub fn raise_descriptor_limit() -> Result<u64, OsError> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes one structure, which lives through the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(OsError::call("getrlimit(RLIMIT_NOFILE)", Errno::last()));
    }
    if limit.rlim_cur < limit.rlim_max {
        let raised = libc::rlimit {
            rlim_cur: limit.rlim_max,
            rlim_max: limit.rlim_max,
        };
        // SAFETY: the kernel reads one structure, which lives through the call.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } != 0 {
            return Err(OsError::call("setrlimit(RLIMIT_NOFILE)", Errno::last()));
        }
    }
    Ok(limit.rlim_max)
}

/// The limit of this process's open files now.
///
/// # Errors
/// The kernel refuses to tell.
pub fn read_descriptor_limit() -> Result<u64, OsError> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes one structure, which lives through the call.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        0 => Ok(limit.rlim_cur),
        _ => Err(OsError::call("getrlimit(RLIMIT_NOFILE)", Errno::last())),
    }
}
