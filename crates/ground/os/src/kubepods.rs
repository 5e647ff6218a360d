//! Finds the cgroup of a Kubernetes container by the uid of its pod and its own id, by walking the
//! mounted tree.
//!
//! Problem: every runtime has its own form of the path, `/proc/PID/cgroup` is relative to the
//! reader's cgroup namespace (`/../../pod...`), and a container with cgroups of its own can make
//! directories of any name in them. Approach: the kubelet's directory (`kubepods`,
//! `kubepods.slice`, or one below a slice or folder of its own as in kind) is looked for from the
//! mount downwards, and the highest wins: a container cannot make one there. Below it a
//! container has its place: pod or QoS class and pod, then container. Only these few paths are
//! tried, so a directory that is deeper, has another form or is a symbolic link is never found.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use crate::limits::{CGROUPS_MAX, KUBEPODS_DEPTH_MAX};
use crate::{Cgroup, CgroupVersion, HostRoot, OsError};

mod isolation;
mod members;
mod pod_paths;

pub use isolation::{Isolation, Neighbors};
pub use members::{Members, read_members};
pub(crate) use members::{may_hide_processes, read_procs, tree_of};
use pod_paths::{ContainerNames, is_kubepods};

/// The directories in which a kubelet keeps its pods.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kubepods {
    version: CgroupVersion,
    mount: PathBuf,
    /// Usually one; several where several kubelets share a machine.
    directories: Vec<PathBuf>,
}

/// A container's cgroup, and the names that its path can have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Container {
    /// Where it is. Its processes are in it, or below (CRI-O with crun, systemd in a container).
    pub cgroup: Cgroup,
    names: ContainerNames,
}

/// Why a container's cgroup was not found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KubepodsError {
    /// A directory could not be read.
    #[error(transparent)]
    Os(#[from] OsError),
    /// There is no cgroup tree.
    #[error("{} holds no cgroups: mount the cgroup tree of the host there", path.display())]
    NoTree {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The kubelet keeps no pods in this tree.
    #[error(
        "there is no directory kubepods or kubepods.slice in {}: mount the cgroup tree of the host there",
        mount.display()
    )]
    NoKubelet {
        /// Where the tree is mounted.
        mount: PathBuf,
    },
    /// An id that no kubelet gives.
    #[error("{id:?} is not {expected}")]
    BadId {
        id: String,
        /// What it should be.
        expected: &'static str,
    },
    /// There is no such container in the kubelet's directory.
    #[error(
        "container {container} of pod {pod} has no cgroup in {}: it has ended, or its runtime keeps its containers \
         outside the kubelet's cgroups (a sandboxed runtime, or a runtime with another cgroup driver than the kubelet's)",
        directory.display()
    )]
    NotFound {
        pod: String,
        container: String,
        /// Where it was looked for.
        directory: PathBuf,
    },
    /// Two cgroups match the container: neither is used.
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
    /// Looks for the kubelet's directory in the hierarchy that decides about cpus.
    ///
    /// # Errors
    /// There is none, or the tree cannot be read.
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

    /// Finds a container's cgroup. `container` may have its runtime in front, as the API server
    /// writes it (`containerd://...`).
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

    /// The cgroups of all containers of all pods, sandboxes among them.
    ///
    /// # Errors
    /// A directory cannot be read; one that vanishes meanwhile is passed over.
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

/// The hierarchy that decides about cpus: that of v1's cpuset controller, by its own name or
/// mounted together with others, else the v2 tree.
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

/// The directories in a directory, sorted; symbolic links are none. One that is gone has none.
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

/// True if a path below `mount` is a directory, reached through no symbolic link.
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
