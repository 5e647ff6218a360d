//! Real cgroups with a cpuset, v1 or v2, whichever the machine has; needs root.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use albacore_os::{Cgroup, CgroupVersion, HostRoot, Pid, find_cgroup};
use albacore_topology::CpuSet;

use super::own_cpus;

/// A cgroup with a cpuset below that of this test, removed on drop.
pub(crate) struct Group {
    pub(crate) directory: PathBuf,
    own: Cgroup,
}

impl Group {
    pub(crate) fn new(name: &str, cpuset: &CpuSet) -> Self {
        let own = find_cgroup(&HostRoot::live(), Pid(std::process::id() as i32)).unwrap();
        if own.version == CgroupVersion::V2 {
            // In cgroup v2, only the root may contain processes next to child groups with
            // controllers.
            fs::write(own.mount.join("cgroup.subtree_control"), "+cpuset").unwrap();
        }
        let directory = own
            .mount
            .join(format!("albacore-test-{}-{name}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let group = Self { directory, own };
        if group.own.version == CgroupVersion::V1 {
            let mems = fs::read(group.own.mount.join("cpuset.effective_mems")).unwrap();
            fs::write(group.directory.join("cpuset.mems"), mems).unwrap();
        }
        group.set(cpuset);
        group
    }

    /// The cgroup in the form used by a container's subject.
    pub(crate) fn cgroup(&self) -> Cgroup {
        Cgroup {
            directory: self.directory.clone(),
            ..self.own.clone()
        }
    }

    pub(crate) fn set(&self, cpuset: &CpuSet) {
        fs::write(self.directory.join("cpuset.cpus"), cpuset.to_string()).unwrap();
    }

    pub(crate) fn take(&self, root: Pid) {
        for pid in super::tree_of(root) {
            // A process that has exited since it was listed cannot be moved.
            let _ = fs::write(self.directory.join("cgroup.procs"), pid.0.to_string());
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..200 {
            let left = fs::read_to_string(self.directory.join("cgroup.procs")).unwrap_or_default();
            for pid in left.lines() {
                let _ = fs::write(self.own.mount.join("cgroup.procs"), pid);
            }
            if fs::remove_dir(&self.directory).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The two lowest cpus that this test may use, individually and together.
pub(crate) fn two() -> (CpuSet, CpuSet, CpuSet) {
    let mut ids = own_cpus();
    let low: CpuSet = ids.first().into_iter().collect();
    ids = ids.difference(&low);
    let high: CpuSet = ids.first().into_iter().collect();
    let both = low.union(&high);
    assert_eq!(both.len(), 2, "these tests need two cpus");
    (low, high, both)
}
