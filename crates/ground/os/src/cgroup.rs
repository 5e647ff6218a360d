//! The cgroup of a process and the cpus it may use, with cgroup v1, v2 and both mounted at once.
//!
//! A v2 cgroup without the cpuset controller has no cpuset files and one whose `cpuset.cpus` was
//! never set inherits: so the *effective* file is read, of the first cgroup on the way up that has
//! it, else the online cpus hold. Nothing announces a change of an effective file, so it is to be
//! polled; writes to the `cpuset.cpus` of the cgroup and of its ancestors can be watched.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use albacore_topology::CpuSet;

use crate::limits::CGROUP_DEPTH_MAX;
use crate::read::{parse_cpus, read_text, read_text_if_present};
use crate::{HostRoot, OsError, Pid, read_online};

/// Which hierarchy holds the cpusets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CgroupVersion {
    /// A hierarchy of its own for the cpuset controller.
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

/// The cgroup that determines which cpus a process may use.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Cgroup {
    pub version: CgroupVersion,
    /// Where that hierarchy is mounted.
    pub mount: PathBuf,
    /// Its directory, at or below `mount`.
    pub directory: PathBuf,
}

/// The cpus that a cgroup may use now, and the file with them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EffectiveCpuset {
    /// The cpus: inside the online ones; empty if the cgroup has none.
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
    /// The process is outside the cgroup namespace of the reader.
    #[error(
        "the cgroup {path:?} of process {} lies outside this cgroup namespace: \
         run in the cgroup namespace of the host, or mount its cgroups", pid.0
    )]
    OutsideNamespace {
        pid: Pid,
        /// Its path, which starts with `/..`.
        path: String,
    },
    /// `/proc/PID/cgroup` names no hierarchy that could hold a cpuset.
    #[error("process {} is in no cgroup hierarchy", pid.0)]
    None { pid: Pid },
}

/// Finds the cgroup of a process that determines its cpus.
///
/// # Errors
/// The process is gone, or its cgroup cannot be seen from here.
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
        // Mounted by its name, or together with others (`cpu,cpuset`).
        CgroupVersion::V1 => [Path::new("cpuset"), Path::new(controllers)]
            .iter()
            .map(|name| host.cgroup.join(name))
            .find(|mount| mount.is_dir())
            .ok_or(CgroupError::None { pid })?,
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

/// The line of the cpusets: the v1 hierarchy of the cpuset controller if there is one, else the v2
/// hierarchy. A path may hold colons; it begins after the second.
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
    /// This cgroup and its ancestors up to the mount, nearest first.
    pub fn ancestry(&self) -> impl Iterator<Item = &Path> {
        let mount = self.mount.as_path();
        self.directory
            .ancestors()
            .take_while(move |d| d.starts_with(mount))
            .take(CGROUP_DEPTH_MAX)
    }

    /// The files whose writing can change the effective cpuset: `cpuset.cpus` of the cgroup and its
    /// ancestors.
    pub fn watched_files(&self) -> Vec<PathBuf> {
        self.ancestry()
            .map(|d| d.join("cpuset.cpus"))
            .filter(|file| file.exists())
            .collect()
    }

    /// The file of its effective cpuset, kept open: reading it again costs a tenth.
    ///
    /// # Errors
    /// Neither it nor any ancestor has one that can be opened.
    pub fn open_effective(&self) -> Result<EffectiveFile, OsError> {
        let mut refusal = None;
        for directory in self.ancestry() {
            let path = directory.join(self.version.effective_file());
            match File::open(&path) {
                Ok(file) => return Ok(EffectiveFile { path, file }),
                Err(source) => refusal = refusal.or(Some(OsError::read(&path, source))),
            }
        }
        Err(refusal
            .unwrap_or_else(|| OsError::read(&self.directory, std::io::ErrorKind::NotFound.into())))
    }

    /// The cpus that processes in this cgroup may use now: its effective cpuset, or that of the
    /// first ancestor that has one, else the online cpus; never more than the online cpus.
    ///
    /// # Errors
    /// A file cannot be read or is not a cpu list.
    pub fn read_effective(&self, host: &HostRoot) -> Result<EffectiveCpuset, OsError> {
        self.read_effective_of(host, read_online(host)?)
    }

    /// The same where the online cpus were read already.
    ///
    /// # Errors
    /// As [`Cgroup::read_effective`].
    pub fn read_effective_of(
        &self,
        host: &HostRoot,
        online: CpuSet,
    ) -> Result<EffectiveCpuset, OsError> {
        for directory in self.ancestry() {
            let source = directory.join(self.version.effective_file());
            if let Some(text) = read_text_if_present(&source)? {
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

/// An open file of an effective cpuset.
#[derive(Debug)]
pub struct EffectiveFile {
    path: PathBuf,
    file: File,
}

impl EffectiveFile {
    /// The effective cpuset now, without cpus that are offline.
    ///
    /// # Errors
    /// The cgroup is gone, or the file is no cpu list.
    pub fn read(&self, online: &CpuSet) -> Result<EffectiveCpuset, OsError> {
        // A list of 1,024 cpus with a hole beside each is 2.5 KiB.
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

impl AsFd for EffectiveFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests;
