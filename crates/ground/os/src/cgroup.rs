//! The cgroup of a process and its effective cpuset, for cgroup v1, v2 and hybrid mounts.
//!
//! In cgroup v2, a cgroup without the cpuset controller has no cpuset files, and a cgroup whose
//! `cpuset.cpus` was never set inherits it. Therefore the *effective* file of the nearest ancestor
//! that has one is read; without one, the online cpus are used. The kernel sends no notification
//! when an effective cpuset changes, so it must be polled; writes to `cpuset.cpus` of the cgroup
//! and of its ancestors can be watched with inotify.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use albacore_topology::CpuSet;

use crate::limits::CGROUP_DEPTH_MAX;
use crate::read::{parse_cpus, read_optional_text, read_text};
use crate::{HostRoot, OsError, Pid, read_online};

/// Version of the hierarchy that contains the cpusets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CgroupVersion {
    /// A v1 hierarchy with the cpuset controller.
    V1,
    V2,
}

impl CgroupVersion {
    fn effective_file(self) -> &'static str {
        match self {
            Self::V1 => "cpuset.effective_cpus",
            Self::V2 => "cpuset.cpus.effective",
        }
    }
}

/// The cgroup that determines the allowed cpus of a process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Cgroup {
    pub version: CgroupVersion,
    /// Mount point of its hierarchy.
    pub mount: PathBuf,
    /// Directory of the cgroup, at or below `mount`.
    pub directory: PathBuf,
}

/// Effective cpuset of a cgroup, and the file from which it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EffectiveCpuset {
    /// The cpus, a subset of the online cpus; may be empty.
    pub cpus: CpuSet,
    /// The file that was read.
    pub source: PathBuf,
}

/// The cgroup of a process cannot be determined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CgroupError {
    /// A file could not be read.
    #[error(transparent)]
    Os(#[from] OsError),
    /// The process is outside the reader's cgroup namespace.
    #[error(
        "the cgroup {path:?} of process {} lies outside this cgroup namespace: \
         run in the cgroup namespace of the host, or mount its cgroups", pid.0
    )]
    OutsideNamespace {
        pid: Pid,
        /// Path of the cgroup, starting with `/..`.
        path: String,
    },
    /// `/proc/PID/cgroup` lists no hierarchy that can contain cpusets.
    #[error("process {} is in no cgroup hierarchy that can have a cpuset", pid.0)]
    None { pid: Pid },
    /// The process is in the v1 hierarchy with the cpuset controller, but the hierarchy is not
    /// mounted.
    #[error(
        "process {} is in the cpuset hierarchy of cgroup v1, which is not mounted at {}: \
         mount it there", pid.0, mount.display()
    )]
    NotMounted {
        pid: Pid,
        /// Where its mount point was expected.
        mount: PathBuf,
    },
}

/// Finds the cgroup that determines the allowed cpus of a process.
///
/// # Errors
/// The process has exited, or its cgroup is not visible from this namespace.
pub fn find_cgroup(host: &HostRoot, pid: Pid) -> Result<Cgroup, CgroupError> {
    let text = read_text(&host.proc.join(format!("{}/cgroup", pid.0)))?;
    let (version, controllers, path) = parse_membership(&text).ok_or(CgroupError::None { pid })?;
    if path.split('/').any(|part| part == "..") {
        return Err(CgroupError::OutsideNamespace {
            pid,
            path: path.to_owned(),
        });
    }
    let mount = match version {
        // Mounted as `cpuset`, or together with other controllers (`cpu,cpuset`).
        CgroupVersion::V1 => [Path::new("cpuset"), Path::new(controllers)]
            .iter()
            .map(|name| host.cgroup.join(name))
            .find(|mount| mount.is_dir())
            .ok_or_else(|| CgroupError::NotMounted {
                pid,
                mount: host.cgroup.join("cpuset"),
            })?,
        CgroupVersion::V2 => {
            let beside = host.cgroup.join("unified");
            if beside.is_dir() {
                beside
            } else {
                host.cgroup.clone()
            }
        }
    };
    let directory = mount.join(path.trim_start_matches('/'));
    Ok(Cgroup {
        version,
        mount,
        directory,
    })
}

/// Returns the entry for cpusets: the v1 hierarchy with the cpuset controller if there is one,
/// otherwise the v2 hierarchy. A path may contain colons, so only the first two separate fields.
pub(crate) fn parse_membership(text: &str) -> Option<(CgroupVersion, &str, &str)> {
    let lines = || {
        text.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':');
            Some((parts.next()?, parts.next()?, parts.next()?))
        })
    };
    let v1 = lines()
        .find(|(_, controllers, _)| controllers.split(',').any(|c| c == "cpuset"))
        .map(|(_, controllers, path)| (CgroupVersion::V1, controllers, path));
    v1.or_else(|| {
        lines()
            .find(|&(id, controllers, _)| id == "0" && controllers.is_empty())
            .map(|(_, controllers, path)| (CgroupVersion::V2, controllers, path))
    })
}

impl Cgroup {
    /// This cgroup and its ancestors up to the mount point, nearest first.
    pub fn ancestors(&self) -> impl Iterator<Item = &Path> {
        let mount = self.mount.as_path();
        self.directory
            .ancestors()
            .take_while(move |d| d.starts_with(mount))
            .take(CGROUP_DEPTH_MAX)
    }

    /// Files to watch for writes that can change the effective cpuset: `cpuset.cpus` of the cgroup
    /// and of its ancestors.
    pub fn watched_files(&self) -> Vec<PathBuf> {
        self.ancestors()
            .map(|d| d.join("cpuset.cpus"))
            .filter(|file| file.exists())
            .collect()
    }

    /// Opens its effective cpuset file and keeps it open: reading it again costs a tenth of opening
    /// it.
    ///
    /// # Errors
    /// Neither the cgroup nor any ancestor has a file that can be opened.
    pub fn open_effective_cpuset(&self) -> Result<EffectiveCpusetFile, OsError> {
        let mut refusal = None;
        for directory in self.ancestors() {
            let path = directory.join(self.version.effective_file());
            match File::open(&path) {
                Ok(file) => return Ok(EffectiveCpusetFile { path, file }),
                Err(source) => refusal = refusal.or(Some(OsError::read(&path, source))),
            }
        }
        Err(refusal
            .unwrap_or_else(|| OsError::read(&self.directory, std::io::ErrorKind::NotFound.into())))
    }

    /// The allowed cpus of processes in this cgroup: its effective cpuset, or that of the nearest
    /// ancestor that has one, otherwise the online cpus. Always a subset of the online cpus.
    ///
    /// # Errors
    /// A file cannot be read or does not contain a cpu list.
    pub fn read_effective_cpuset(&self, host: &HostRoot) -> Result<EffectiveCpuset, OsError> {
        self.read_effective_cpuset_of(host, read_online(host)?)
    }

    /// As [`Cgroup::read_effective_cpuset`], with the online cpus already read.
    ///
    /// # Errors
    /// As [`Cgroup::read_effective_cpuset`].
    pub fn read_effective_cpuset_of(
        &self,
        host: &HostRoot,
        online: CpuSet,
    ) -> Result<EffectiveCpuset, OsError> {
        for directory in self.ancestors() {
            let source = directory.join(self.version.effective_file());
            if let Some(text) = read_optional_text(&source)? {
                return Ok(EffectiveCpuset {
                    cpus: parse_cpus(&source, &text)?.intersection(&online),
                    source,
                });
            }
        }
        Ok(EffectiveCpuset {
            cpus: online,
            source: host.sys.join("devices/system/cpu/online"),
        })
    }
}

/// Open effective cpuset file.
#[derive(Debug)]
pub struct EffectiveCpusetFile {
    path: PathBuf,
    file: File,
}

impl EffectiveCpusetFile {
    /// Reads the effective cpuset, without offline cpus.
    ///
    /// # Errors
    /// The cgroup was removed, or the file does not contain a cpu list.
    pub fn read(&self, online: &CpuSet) -> Result<EffectiveCpuset, OsError> {
        // A list of 1,024 isolated cpus ("0,2,4,...") takes 2.5 KiB.
        let mut bytes = [0_u8; 4096];
        let length = self
            .file
            .read_at(&mut bytes, 0)
            .map_err(|source| OsError::read(&self.path, source))?;
        let text = String::from_utf8_lossy(&bytes[..length]);
        Ok(EffectiveCpuset {
            cpus: parse_cpus(&self.path, &text)?.intersection(online),
            source: self.path.clone(),
        })
    }
}

impl AsFd for EffectiveCpusetFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests;
