//! What a container's cgroups say beside its cpuset: whether it shares its cpus, and whether its quota holds it back.

use albacore_api::Isolation;
use albacore_os::{Cgroup, HostRoot, Kubepods, read_isolation};

use crate::facts::Strain;

/// Reads it. What cannot be read is taken for the weaker claim.
pub(crate) fn read(host: &HostRoot, cgroup: &Cgroup) -> Strain {
    let isolation = Kubepods::find(host)
        .ok()
        .and_then(|kubepods| read_isolation(host, &kubepods, cgroup).ok());
    Strain {
        isolation: match isolation {
            Some(albacore_os::Isolation::Exclusive) => Isolation::Exclusive,
            Some(albacore_os::Isolation::SharedPool) => Isolation::SharedPool,
            Some(albacore_os::Isolation::None) | None => Isolation::None,
        },
        ..Strain::default()
    }
}
