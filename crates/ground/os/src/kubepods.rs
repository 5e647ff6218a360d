//! Finds the cgroup of a Kubernetes container from its pod uid and container id by walking the
//! mounted cgroup tree.
//!
//! Problem: every container runtime uses a different path, `/proc/PID/cgroup` is relative to the
//! reader's cgroup namespace (`/../../pod...`), and a container with a writable cgroup can create
//! subdirectories of any name. Approach: search for the kubelet's directory (`kubepods`,
//! `kubepods.slice`, or one below a custom slice or directory as in kind) from the mount point
//! downwards; the highest match is used, because a container cannot create one there. Below it, the
//! container is at a fixed position: optional QoS class, pod, container. Only these few paths are
//! tried, so a directory that is deeper, has another form or is a symbolic link is never matched.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use crate::limits::{CGROUPS_MAX, KUBEPODS_DEPTH_MAX};
use crate::{Cgroup, CgroupVersion, HostRoot, OsError};

mod isolation;
mod members;
mod pod_paths;

pub use isolation::{CpuIsolation, Neighbors};
pub use members::{Members, read_members};
pub(crate) use members::{may_hide_processes, read_procs, tree_of};
use pod_paths::{ContainerNames, is_kubepods};

/// Directories with the pods of a kubelet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kubepods {
    version: CgroupVersion,
    mount: PathBuf,
    /// Usually one; several if several kubelets share a machine.
    directories: Vec<PathBuf>,
}

/// A container's cgroup and its possible path names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Container {
    /// Its cgroup. The processes are in it or in a descendant (CRI-O with crun, systemd in a
    /// container).
    pub cgroup: Cgroup,
    names: ContainerNames,
}

/// Reason why the cgroup of a container was not found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KubepodsError {
    /// A directory could not be read.
    #[error(transparent)]
    Os(#[from] OsError),
    /// No cgroup hierarchy is mounted.
    #[error("{} contains no cgroups: mount the cgroup tree of the host there", path.display())]
    NoTree {
        /// Expected mount point.
        path: PathBuf,
    },
    /// The hierarchy contains no kubelet directory.
    #[error(
        "no directory kubepods or kubepods.slice found in {}: mount the cgroup tree of the host \
         there",
        mount.display()
    )]
    NoKubelet {
        /// Mount point of the hierarchy.
        mount: PathBuf,
    },
    /// An invalid pod uid or container id.
    #[error("{id:?} is not {expected}")]
    BadId {
        id: String,
        /// Description of a valid id.
        expected: &'static str,
    },
    /// The kubelet's directory contains no such container.
    #[error(
        "container {container} of pod {pod} has no cgroup in {}: it has ended, or its runtime keeps its containers \
         outside the kubelet's cgroups (a sandboxed runtime, or a runtime with another cgroup driver than the kubelet's)",
        directory.display()
    )]
    NotFound {
        pod: String,
        container: String,
        /// Directory that was searched.
        directory: PathBuf,
    },
    /// Two cgroups match the container; neither is used.
    #[error(
        "container {container} has more than one cgroup: {} and {}",
        first.display(), second.display()
    )]
    Ambiguous {
        container: String,
        first: PathBuf,
        second: PathBuf,
    },
}

impl Kubepods {
    /// Searches for the kubelet's directory in the hierarchy of the cpuset controller.
    ///
    /// # Errors
    /// There is no such directory, or the hierarchy cannot be read.
    pub fn find(host: &HostRoot) -> Result<Self, KubepodsError> {
        let (version, mount) = find_mount(host)?;
        let mut level = VecDeque::from([(mount.clone(), 0)]);
        let mut directories: Vec<PathBuf> = Vec::new();
        let mut found_at = usize::MAX;
        let mut seen = 0;
        // bound: CGROUPS_MAX directories
        while let Some((directory, depth)) = level.pop_front() {
            if depth >= found_at || depth >= KUBEPODS_DEPTH_MAX || seen > CGROUPS_MAX {
                break;
            }
            for child in subdirectories(&directory)? {
                seen += 1;
                if is_kubepods(&child, &mount) {
                    found_at = depth + 1;
                    directories.push(child);
                } else {
                    level.push_back((child, depth + 1));
                }
            }
        }
        if directories.is_empty() {
            return Err(KubepodsError::NoKubelet { mount });
        }
        Ok(Self {
            version,
            mount,
            directories,
        })
    }

    /// Finds the cgroup of a container. `container` may have a runtime prefix, as in the pod status
    /// (`containerd://...`).
    ///
    /// # Errors
    /// An id is malformed, or the container has no cgroup here, or more than one.
    pub fn container(&self, pod: &str, container: &str) -> Result<Container, KubepodsError> {
        let names = ContainerNames::new(pod, container)?;
        let mut found: Option<PathBuf> = None;
        for directory in &self.directories {
            for path in names.paths(directory) {
                if !is_directory_below(&self.mount, &path) {
                    continue;
                }
                if let Some(first) = found {
                    return Err(KubepodsError::Ambiguous {
                        container: container.to_owned(),
                        first,
                        second: path,
                    });
                }
                found = Some(path);
            }
        }
        let Some(directory) = found else {
            return Err(KubepodsError::NotFound {
                pod: pod.to_owned(),
                container: container.to_owned(),
                directory: self.directories.first().cloned().unwrap_or_default(),
            });
        };
        let cgroup = self.cgroup(directory);
        Ok(Container { cgroup, names })
    }

    /// The cgroups of all containers of all pods, including pod sandboxes (pause containers).
    ///
    /// # Errors
    /// A directory cannot be read. Directories removed during the walk are skipped.
    pub fn containers(&self) -> Result<Vec<Cgroup>, OsError> {
        let mut found = Vec::new();
        for directory in &self.directories {
            for pod in pod_paths::pods_in(directory)? {
                let containers = subdirectories(&pod)?.into_iter();
                let own = containers.filter(|path| pod_paths::is_container(path));
                found.extend(own.map(|path| self.cgroup(path)).take(CGROUPS_MAX));
            }
        }
        Ok(found)
    }

    fn cgroup(&self, directory: PathBuf) -> Cgroup {
        Cgroup {
            version: self.version,
            mount: self.mount.clone(),
            directory,
        }
    }
}

/// Finds the hierarchy of the cpuset controller: in v1 mounted alone or together with other
/// controllers, otherwise the v2 hierarchy.
fn find_mount(host: &HostRoot) -> Result<(CgroupVersion, PathBuf), KubepodsError> {
    let alone = host.cgroup.join("cpuset");
    if alone.join("cgroup.procs").exists() {
        return Ok((CgroupVersion::V1, alone));
    }
    let has_cpuset = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.split(',').any(|controller| controller == "cpuset"))
    };
    let mounts = subdirectories(&host.cgroup)?;
    if let Some(together) = mounts.into_iter().find(has_cpuset) {
        return Ok((CgroupVersion::V1, together));
    }
    let beside = host.cgroup.join("unified");
    for mount in [&beside, &host.cgroup] {
        if mount.join("cgroup.procs").exists() {
            return Ok((CgroupVersion::V2, mount.clone()));
        }
    }
    let path = host.cgroup.clone();
    Err(KubepodsError::NoTree { path })
}

/// Subdirectories, sorted, without symbolic links. Empty if the directory no longer exists.
pub(crate) fn subdirectories(directory: &Path) -> Result<Vec<PathBuf>, OsError> {
    let error = |source| OsError::read(directory, source);
    let entries = match fs::read_dir(directory).map_err(error) {
        Ok(entries) => entries,
        Err(e) if e.is_gone() => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut found = Vec::new();
    for entry in entries.take(CGROUPS_MAX) {
        let entry = match entry.map_err(error) {
            Ok(entry) => entry,
            Err(e) if e.is_gone() => break,
            Err(e) => return Err(e),
        };
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// True if a path below `mount` is a directory and none of its components is a symbolic link.
pub(crate) fn is_directory_below(mount: &Path, path: &Path) -> bool {
    let steps = path.ancestors().take_while(|step| *step != mount);
    path.starts_with(mount)
        && steps
            .into_iter()
            .all(|step| fs::symlink_metadata(step).is_ok_and(|meta| meta.is_dir()))
}

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;
