//! Where the kernel's trees are mounted: the live machine's places, or a recording's.

use std::path::{Path, PathBuf};

/// Roots of the kernel's file trees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostRoot {
    /// procfs, usually `/proc`.
    pub proc: PathBuf,
    /// sysfs, usually `/sys`.
    pub sys: PathBuf,
    /// Where cgroups are mounted, usually `/sys/fs/cgroup`.
    pub cgroup: PathBuf,
}

impl HostRoot {
    /// The machine this runs on.
    pub fn live() -> Self {
        Self {
            proc: PathBuf::from("/proc"),
            sys: PathBuf::from("/sys"),
            cgroup: PathBuf::from("/sys/fs/cgroup"),
        }
    }

    /// A recording below one directory: `proc`, `sys` and `cgroup` in it.
    pub fn recorded(root: &Path) -> Self {
        Self {
            proc: root.join("proc"),
            sys: root.join("sys"),
            cgroup: root.join("cgroup"),
        }
    }

    /// True if the pids in this /proc are pids that system calls of this process can name.
    pub fn is_live(&self) -> bool {
        self.proc == Path::new("/proc")
    }
}
