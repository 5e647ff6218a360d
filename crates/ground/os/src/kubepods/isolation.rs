//! Whether a container shares its cpus with other containers. Affinity masks separate only our own
//! threads; exclusive cpus come from the kubelet's CPU manager, whose effect is read here.

use std::path::{Path, PathBuf};

use albacore_topology::CpuSet;

use super::{Kubepods, may_hide_processes};
use crate::{HostRoot, OsError, Pid, read_comm, read_online};

/// How far the cpus of a container are exclusive to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CpuIsolation {
    /// It may use every cpu of the machine, as may others.
    None,
    /// It may use a subset of the cpus, some of which other containers may use as well.
    SharedPool,
    /// No other container may use its cpus.
    Exclusive,
}

impl CpuIsolation {
    /// The name of the level in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::SharedPool => "SharedPool",
            Self::Exclusive => "Exclusive",
        }
    }
}

/// Effective cpusets of all containers of a node, read in one walk: a walk per container would be
/// quadratic. Sandboxes are ignored, because the pause process never runs and the CPU manager does
/// not remove cpus from sandboxes. Containers without processes are ignored as well.
#[derive(Clone, PartialEq, Debug)]
pub struct Neighbors {
    online: CpuSet,
    containers: Vec<(PathBuf, CpuSet)>,
}

impl Neighbors {
    /// Reads the cpusets of all containers.
    ///
    /// # Errors
    /// A file cannot be read. Containers that exit during the walk are skipped.
    pub fn read(host: &HostRoot, kubepods: &Kubepods) -> Result<Self, OsError> {
        let mut listed = Vec::new();
        for cgroup in kubepods.containers()? {
            let pids = cgroup.read_processes()?;
            listed.push((cgroup, pids));
        }
        // A reader that sees no process in any container is in another PID namespace.
        let sees_none = listed
            .iter()
            .all(|(cgroup, pids)| may_hide_processes(host, cgroup, pids));
        let mut containers = Vec::new();
        for (cgroup, pids) in listed {
            if !sees_none && is_idle(host, &pids) {
                continue;
            }
            match cgroup.read_effective_cpuset(host) {
                Ok(effective) => containers.push((cgroup.directory, effective.cpus)),
                Err(e) if e.is_gone() => {}
                Err(e) => return Err(e),
            }
        }
        let online = read_online(host)?;
        Ok(Self { online, containers })
    }

    /// Compares the effective cpuset of the container in `directory` with those of all others;
    /// `None` if it has no processes.
    pub fn isolation(&self, directory: &Path) -> Option<CpuIsolation> {
        let (_, own) = self.containers.iter().find(|(at, _)| at == directory)?;
        if *own == self.online {
            return Some(CpuIsolation::None);
        }
        let mut others = self.containers.iter().filter(|(at, _)| at != directory);
        let is_shared = others.any(|(_, cpus)| !cpus.intersection(own).is_empty());
        Some(match is_shared {
            true => CpuIsolation::SharedPool,
            false => CpuIsolation::Exclusive,
        })
    }
}

/// True if a cgroup has no processes, or only the pause process of a sandbox.
fn is_idle(host: &HostRoot, pids: &[Pid]) -> bool {
    match pids {
        [] => true,
        // A real container whose only process is named "pause" is ignored too, which is harmless.
        [pid] if pid.0 != 0 => read_comm(host, *pid).is_ok_and(|comm| comm == "pause"),
        _ => false,
    }
}
