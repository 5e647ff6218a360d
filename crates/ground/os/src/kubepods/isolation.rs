//! Whether a container shares its cpus with others. Masks order our threads among themselves; the
//! kubelet's cpu manager keeps other containers away, and this reads its effect.

use std::path::{Path, PathBuf};

use albacore_topology::CpuSet;

use super::{Kubepods, may_hide_processes};
use crate::{HostRoot, OsError, Pid, read_comm, read_online};

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
    /// The level as the API writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::SharedPool => "SharedPool",
            Self::Exclusive => "Exclusive",
        }
    }
}

/// The effective cpusets of all containers of a node, read once: a walk for each container would
/// cost the square of their number. Sandboxes do not count, as their only process waits for ever
/// and no kubelet takes cpus from them; nor do containers without processes.
#[derive(Clone, PartialEq, Debug)]
pub struct Neighbors {
    online: CpuSet,
    containers: Vec<(PathBuf, CpuSet)>,
}

impl Neighbors {
    /// Reads them.
    ///
    /// # Errors
    /// A file cannot be read. Containers that end meanwhile are passed over.
    pub fn read(host: &HostRoot, kubepods: &Kubepods) -> Result<Self, OsError> {
        let mut listed = Vec::new();
        for cgroup in kubepods.containers()? {
            let pids = cgroup.read_processes()?;
            listed.push((cgroup, pids));
        }
        // A reader that sees no process in any container is in another pid namespace.
        let sees_none = listed
            .iter()
            .all(|(cgroup, pids)| may_hide_processes(host, cgroup, pids));
        let mut containers = Vec::new();
        for (cgroup, pids) in listed {
            if !sees_none && is_idle(host, &pids) {
                continue;
            }
            match cgroup.read_effective(host) {
                Ok(effective) => containers.push((cgroup.directory, effective.cpus)),
                Err(e) if e.is_gone() => {}
                Err(e) => return Err(e),
            }
        }
        let online = read_online(host)?;
        Ok(Self { online, containers })
    }

    /// Compares the effective cpuset of the container in `directory` with those of all others; none
    /// if it has no processes.
    pub fn isolation(&self, directory: &Path) -> Option<Isolation> {
        let (_, own) = self.containers.iter().find(|(at, _)| at == directory)?;
        if *own == self.online {
            return Some(Isolation::None);
        }
        let mut others = self.containers.iter().filter(|(at, _)| at != directory);
        let is_shared = others.any(|(_, cpus)| !cpus.intersection(own).is_empty());
        Some(match is_shared {
            true => Isolation::SharedPool,
            false => Isolation::Exclusive,
        })
    }
}

/// True for the processes of a cgroup without any, or with a sandbox's alone.
fn is_idle(host: &HostRoot, pids: &[Pid]) -> bool {
    match pids {
        [] => true,
        // A container of one process of that name is missing in a report, which does no harm.
        [pid] if pid.0 != 0 => read_comm(host, *pid).is_ok_and(|comm| comm == "pause"),
        _ => false,
    }
}
