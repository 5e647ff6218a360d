//! How much of its cpus a container has for itself. Pins give order among our threads; what keeps others away is the
//! kubelet's cpu manager, and this tells what it does.

use super::Kubepods;
use crate::{Cgroup, HostRoot, OsError, read_comm, read_online};

/// How much of its cpus a container has for itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Isolation {
    /// It may use every cpu of the machine, and so may others.
    None,
    /// It may use some cpus, and other containers may use some of these, too.
    SharedPool,
    /// No other container may use its cpus.
    Exclusive,
}

impl Isolation {
    /// The level as the API spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::SharedPool => "SharedPool",
            Self::Exclusive => "Exclusive",
        }
    }
}

/// Compares the effective cpuset of a container with those of all others that have processes. Sandboxes do not count:
/// their only process waits for ever, and no kubelet takes cpus from them.
///
/// # Errors
/// A file cannot be read. Containers that end meanwhile are passed over.
pub fn read_isolation(
    host: &HostRoot,
    kubepods: &Kubepods,
    cgroup: &Cgroup,
) -> Result<Isolation, OsError> {
    let own = cgroup.read_effective(host)?.cpus;
    let mut is_shared = false;
    for other in kubepods.containers()? {
        if other.directory == cgroup.directory || is_idle(host, &other)? {
            continue;
        }
        match other.read_effective(host) {
            Ok(effective) => is_shared |= !effective.cpus.intersection(&own).is_empty(),
            Err(e) if e.is_gone() => {}
            Err(e) => return Err(e),
        }
    }
    Ok(match is_shared {
        false if own != read_online(host)? => Isolation::Exclusive,
        true if own != read_online(host)? => Isolation::SharedPool,
        _ => Isolation::None,
    })
}

/// True for a cgroup without processes, or with a sandbox's alone.
fn is_idle(host: &HostRoot, cgroup: &Cgroup) -> Result<bool, OsError> {
    let pids = cgroup.read_processes()?;
    Ok(match pids.as_slice() {
        [] => true,
        // Who gives himself that name in a container of one process is overlooked in a report, no more.
        [pid] if pid.0 != 0 => read_comm(host, *pid).is_ok_and(|comm| comm == "pause"),
        _ => false,
    })
}
