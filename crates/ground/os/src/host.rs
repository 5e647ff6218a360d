//! Mount points of procfs, sysfs and cgroups: of the live machine or of a recording.

use std::path::{Path, PathBuf};

/// Roots of the kernel's file systems.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostRoot {
    /// procfs, usually `/proc`.
    pub proc: PathBuf,
    /// sysfs, usually `/sys`.
    pub sys: PathBuf,
    /// Mount point of cgroups, usually `/sys/fs/cgroup`.
    pub cgroup: PathBuf,
}

impl HostRoot {
    /// The live machine.
    pub fn live() -> Self {
        Self {
            proc: PathBuf::from("/proc"),
            sys: PathBuf::from("/sys"),
            cgroup: PathBuf::from("/sys/fs/cgroup"),
        }
    }

    /// A recording in one directory, with the subdirectories `proc`, `sys` and `cgroup`.
    pub fn recorded(root: &Path) -> Self {
        Self {
            proc: root.join("proc"),
            sys: root.join("sys"),
            cgroup: root.join("cgroup"),
        }
    }

    /// True if the pids of this procfs are in the PID namespace of this process, usable in system
    /// calls.
    pub fn is_live(&self) -> bool {
        self.proc == Path::new("/proc")
    }
}
