//! Orphans: processes that outlive the server that started them, such as daemons or the workers of
//! a killed master.
//!
//! `albacore run` is a subreaper (`PR_SET_CHILD_SUBREAPER`), so that orphans become its children
//! and can always be found.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use albacore_os::{HostRoot, Pid, PidFd, become_subreaper, read_children, reap_orphans};

use albacore_command::{Failure, sentence};

/// How long orphans may take to exit on their own before they are killed.
const GRACE_PERIOD: Duration = Duration::from_secs(1);

/// Time after which processes that could not be killed (of another user, or blocked in the kernel)
/// are left alone.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between two scans.
const PERIOD: Duration = Duration::from_millis(10);

/// Makes this process the parent of future orphans of the server.
pub(crate) fn become_reaper() -> Result<(), Failure> {
    become_subreaper().map_err(|error| Failure::Failed(sentence(&error)))
}

/// Reaps orphans that exit while `server` runs, so that they do not remain zombies.
pub(crate) fn reap(server: Pid) {
    // A failed scan is repeated with the next table.
    drop(reap_orphans(&HostRoot::live(), &[server]));
}

/// Waits for all orphans to exit and kills the remaining ones, except processes that `is_kept`
/// accepts. Returns the number of killed processes. Blocks for up to [`KILL_TIMEOUT`].
pub(crate) fn terminate(is_kept: impl Fn(Pid) -> bool) -> usize {
    let (host, me) = (HostRoot::live(), Pid(std::process::id() as i32));
    let start = Instant::now();
    let mut killed = BTreeSet::new();
    // bound: KILL_TIMEOUT; children of a killed process are reparented to this process in turn
    while start.elapsed() < KILL_TIMEOUT {
        drop(reap_orphans(&host, &[]));
        let mut left = read_children(&host, me).unwrap_or_default();
        left.retain(|&pid| !is_kept(pid));
        if left.is_empty() {
            break;
        }
        if start.elapsed() >= GRACE_PERIOD {
            for pid in left {
                // A process that has exited since it was listed needs no signal.
                if PidFd::open(pid).and_then(|handle| handle.kill()).is_ok() {
                    killed.insert(pid);
                }
            }
        }
        std::thread::sleep(PERIOD);
    }
    killed.len()
}
