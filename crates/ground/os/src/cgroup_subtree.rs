//! Tests whether a task is in a cgroup or its descendants, from any cgroup namespace.
//!
//! Problem: a reader in a container sees `/proc/PID/cgroup` relative to its own cgroup namespace
//! (`/../../pod.../...`), and a process that may create cgroups can forge the end of a path.
//! Approach: the kernel lists the processes of a cgroup in `cgroup.procs`; the path that `/proc`
//! shows for one of them is the path of this cgroup as seen by this reader. Tasks with that path,
//! or one below it, are members.

use crate::cgroup::parse_membership;
use crate::kubepods::{is_directory_below, may_hide_processes, read_procs, tree_of};
use crate::read::read_text;
use crate::{Cgroup, HostRoot, OsError, Pid, Tid};

/// A cgroup and its descendants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CgroupSubtree {
    cgroup: Cgroup,
    /// Its path in `/proc/PID/cgroup` as seen by this reader, without a trailing slash.
    proc_path: String,
}

impl CgroupSubtree {
    /// Determines the path of `cgroup` from one of its processes, `member`; `None` if `member` is
    /// not in `cgroup` or a descendant.
    ///
    /// # Errors
    /// The process has exited, or a file cannot be read.
    pub fn of(host: &HostRoot, cgroup: &Cgroup, member: Pid) -> Result<Option<Self>, OsError> {
        if !is_directory_below(&cgroup.mount, &cgroup.directory) {
            return Ok(None);
        }
        let mut all = Vec::new();
        for directory in tree_of(cgroup)? {
            let listed = read_procs(&directory)?;
            all.extend_from_slice(&listed);
            if !listed.contains(&member) {
                continue;
            }
            let Some(path) = read_path(host, cgroup, &format!("{}/cgroup", member.0))? else {
                return Ok(None);
            };
            // infallible: every directory of the tree is at or below the directory of the cgroup.
            let below = directory
                .strip_prefix(&cgroup.directory)
                .unwrap_or(&directory);
            let below = below.to_string_lossy();
            let proc_path = path.trim_end_matches('/').strip_suffix(below.as_ref());
            let proc_path = proc_path.map(|s| s.trim_end_matches('/').to_owned());
            // If the process was moved to another cgroup meanwhile, its path is useless.
            let is_still_listed = read_procs(&directory)?.contains(&member);
            return Ok(proc_path.filter(|_| is_still_listed).map(|proc_path| Self {
                cgroup: cgroup.clone(),
                proc_path,
            }));
        }
        if may_hide_processes(host, cgroup, &all) && !host.is_live() {
            return Self::by_name(host, cgroup, member);
        }
        Ok(None)
    }

    /// Matches only the last two components of the path: for observation only, in a PID namespace
    /// for which the kernel translates no pids.
    fn by_name(host: &HostRoot, cgroup: &Cgroup, member: Pid) -> Result<Option<Self>, OsError> {
        let Some(path) = read_path(host, cgroup, &format!("{}/cgroup", member.0))? else {
            return Ok(None);
        };
        let names: Vec<_> = cgroup
            .directory
            .iter()
            .rev()
            .take(2)
            .map(|name| name.to_string_lossy())
            .collect();
        let [own, above] = names.as_slice() else {
            return Ok(None);
        };
        let end = format!("/{above}/{own}");
        let at = path.find(&end).map(|at| at + end.len());
        let proc_path = at
            .map(|at| path.split_at(at))
            .filter(|(_, rest)| rest.is_empty() || rest.starts_with('/'));
        Ok(proc_path.map(|(proc_path, _)| Self {
            cgroup: cgroup.clone(),
            proc_path: proc_path.to_owned(),
        }))
    }

    /// The root of the subtree.
    pub fn cgroup(&self) -> &Cgroup {
        &self.cgroup
    }

    /// The cgroup of a process, if it is the root or a descendant of it; otherwise `None`.
    ///
    /// # Errors
    /// The process has exited, or the file cannot be read.
    pub fn cgroup_of(&self, host: &HostRoot, pid: Pid) -> Result<Option<Cgroup>, OsError> {
        self.cgroup_in_file(host, &format!("{}/cgroup", pid.0))
    }

    /// True if a thread is in the root or a descendant.
    ///
    /// # Errors
    /// The thread has exited, or the file cannot be read.
    pub fn contains(&self, host: &HostRoot, pid: Pid, tid: Tid) -> Result<bool, OsError> {
        let file = format!("{}/task/{}/cgroup", pid.0, tid.0);
        Ok(self.cgroup_in_file(host, &file)?.is_some())
    }

    fn cgroup_in_file(&self, host: &HostRoot, file: &str) -> Result<Option<Cgroup>, OsError> {
        let path = read_path(host, &self.cgroup, file)?;
        let below = path
            .as_deref()
            .and_then(|path| path.trim_end_matches('/').strip_prefix(&self.proc_path))
            .filter(|rest| rest.is_empty() || rest.starts_with('/'))
            .filter(|rest| !rest.split('/').any(|name| name == ".."));
        Ok(below.map(|rest| Cgroup {
            version: self.cgroup.version,
            mount: self.cgroup.mount.clone(),
            directory: match rest.trim_start_matches('/') {
                "" => self.cgroup.directory.clone(),
                rest => self.cgroup.directory.join(rest),
            },
        }))
    }
}

/// The path in a `cgroup` file of procfs for the hierarchy of `cgroup`.
fn read_path(host: &HostRoot, cgroup: &Cgroup, file: &str) -> Result<Option<String>, OsError> {
    let text = read_text(&host.proc.join(file))?;
    let line = parse_membership(&text).filter(|(version, _, _)| *version == cgroup.version);
    Ok(line.map(|(_, _, path)| path.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::CgroupVersion;

    fn put(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn enclosed(proc_of_7: &str, procs: &str) -> (tempfile::TempDir, HostRoot, Cgroup) {
        let keep = tempfile::tempdir().unwrap();
        let host = HostRoot::recorded(keep.path());
        put(&host.cgroup, "kubepods/pod1/c1/cgroup.procs", "");
        put(&host.cgroup, "kubepods/pod1/c1/inner/cgroup.procs", procs);
        put(&host.proc, "7/cgroup", &format!("0::{proc_of_7}\n"));
        let cgroup = Cgroup {
            version: CgroupVersion::V2,
            mount: host.cgroup.clone(),
            directory: host.cgroup.join("kubepods/pod1/c1"),
        };
        (keep, host, cgroup)
    }

    #[test]
    fn only_paths_at_or_below_that_of_a_listed_process_are_inside() {
        for above in ["/kubepods", "/../..", "/../../../kubepods"] {
            let path = format!("{above}/pod1/c1/inner");
            let (_keep, host, cgroup) = enclosed(&path, "7\n");
            let found = CgroupSubtree::of(&host, &cgroup, Pid(7)).unwrap().unwrap();
            let inside = |path: String| {
                put(&host.proc, "8/task/9/cgroup", &format!("0::{path}\n"));
                found.contains(&host, Pid(8), Tid(9)).unwrap()
            };
            for inner in ["", "/inner", "/other/deeper"] {
                assert!(inside(format!("{above}/pod1/c1{inner}")), "{above} {inner}");
            }
            for other in [
                "/pod1",
                "/pod1/c12",
                "/pod2/c1",
                "/x/pod1/c1",
                "/pod1/c1/../c2",
                "",
            ] {
                assert!(!inside(format!("{above}{other}")), "{above} {other}");
            }
            assert!(!inside(format!("/evil{above}/pod1/c1")), "{above}");
            let place = found.cgroup_of(&host, Pid(7)).unwrap().unwrap();
            assert_eq!(place.directory, cgroup.directory.join("inner"));
        }
    }

    #[test]
    fn a_process_that_the_kernel_does_not_list_is_not_believed() {
        let (_keep, host, cgroup) = enclosed("/../../pod1/c1/inner", "8\n");
        assert_eq!(CgroupSubtree::of(&host, &cgroup, Pid(7)).unwrap(), None);
        // A v1 path where the cgroup is of v2.
        let (_keep, host, cgroup) = enclosed("/../../pod1/c1/inner", "7\n");
        put(
            &host.proc,
            "7/cgroup",
            "3:cpuset:/../../pod1/c1/inner\n0::/\n",
        );
        assert_eq!(CgroupSubtree::of(&host, &cgroup, Pid(7)).unwrap(), None);
        // pids are 0 in this namespace: matched by name.
        let (_keep, host, cgroup) = enclosed("/../../pod1/c1/inner", "0\n");
        assert!(CgroupSubtree::of(&host, &cgroup, Pid(7)).unwrap().is_some());
    }
}
