//! Processes that a server leaves behind when it ends: workers of a master that was killed,
//! daemons.
//!
//! `albacore run` is their reaper (`PR_SET_CHILD_SUBREAPER`), so that they become its children and
//! cannot get away.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use albacore_os::{HostRoot, Pid, PidFd, become_subreaper, read_children, reap_orphans};

use albacore_command::{Failure, sentence};

/// How long they may take to notice by themselves that their master is gone.
const GRACE: Duration = Duration::from_secs(1);

/// After this, what could not be killed (it belongs to another user, or hangs in the kernel) is
/// left.
const PATIENCE: Duration = Duration::from_secs(5);

/// Pause between two looks.
const PERIOD: Duration = Duration::from_millis(10);

/// From now on orphans of the server become children of this process.
pub(crate) fn adopt() -> Result<(), Failure> {
    become_subreaper().map_err(|error| Failure::Failed(sentence(&error)))
}

/// Takes note of the end of orphans while `server` lives, so that they are no zombies.
pub(crate) fn reap(server: Pid) {
    // A look that fails is repeated with the next table.
    drop(reap_orphans(&HostRoot::live(), &[server]));
}

/// Ends what is left but for processes that are kept; how many had to be killed. Blocks for up to
/// [`PATIENCE`].
pub(crate) fn end(is_kept: impl Fn(Pid) -> bool) -> usize {
    let (host, me) = (HostRoot::live(), Pid(std::process::id() as i32));
    let start = Instant::now();
    let mut killed = BTreeSet::new();
    // bound: PATIENCE; a killed process hands its own children on to us
    while start.elapsed() < PATIENCE {
        drop(reap_orphans(&host, &[]));
        let mut left = read_children(&host, me).unwrap_or_default();
        left.retain(|&pid| !is_kept(pid));
        if left.is_empty() {
            break;
        }
        if start.elapsed() >= GRACE {
            for pid in left {
                // Whoever ended since it was listed needs no signal.
                if PidFd::open(pid).and_then(|handle| handle.kill()).is_ok() {
                    killed.insert(pid);
                }
            }
        }
        std::thread::sleep(PERIOD);
    }
    killed.len()
}
