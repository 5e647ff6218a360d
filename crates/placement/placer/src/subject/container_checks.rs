//! What concerns a container's subject as a whole and changes rarely: its quota of cpu time, who
//! else is in its cgroup, and a mask that it was spawned with.

use std::path::PathBuf;

use albacore_os::{CgroupSubtree, CpuQuota, HostRoot, Pid, quota_files, read_cpu_quota};
use albacore_plan::PlacementWarning;

use super::Subject;
use crate::PlacerError;
use crate::node_problem::threads_within_quota;
use crate::process::ProcessReader;

/// What was found in the last check.
#[derive(Debug, Default)]
pub(crate) struct ContainerState {
    pub(crate) quota: CpuQuota,
    pub(crate) is_throttled: bool,
    pub(crate) entered: usize,
    /// A check has succeeded once.
    is_known: bool,
}

impl Subject {
    /// Checks the container again; true if something is to be reported or planned because of it.
    pub(crate) fn check_container(&mut self, reader: &ProcessReader) -> Result<bool, PlacerError> {
        let Some(subtree) = self.subtree.as_ref() else {
            return Ok(false);
        };
        let before = self.container_warnings();
        let host = &reader.host;
        let quota = read_cpu_quota(host, subtree.cgroup())?;
        let stopped = quota.throttled_periods > self.container.quota.throttled_periods;
        self.container.is_throttled = self.container.is_known && stopped;
        self.container.quota = quota;
        self.container.is_known = true;
        let members = subtree.cgroup().read_processes()?;
        // 0 is a process of another pid namespace: it cannot be matched with the tree.
        let is_stranger = |pid: &&Pid| pid.0 != 0 && self.tree.get(**pid).is_none();
        self.container.entered = members.iter().filter(is_stranger).count();
        let threads = self.threads_within_quota();
        let is_other = self.policy.set_threads(threads);
        Ok(is_other || before != self.container_warnings())
    }

    /// The files whose writing changes its quota; none without a container.
    pub(crate) fn quota_files(&self, host: &HostRoot) -> Vec<PathBuf> {
        let cgroup = self.subtree.as_ref().map(CgroupSubtree::cgroup);
        // Where they cannot be found the quota is read all the same, in its period.
        let files = cgroup.and_then(|cgroup| quota_files(host, cgroup).ok());
        files.unwrap_or_default()
    }

    /// T, or as many threads per worker as the quota lets run at once.
    pub(crate) fn threads_within_quota(&self) -> u16 {
        let asked = self.policy.asked();
        let millicpus = self.container.quota.millicpus;
        threads_within_quota(asked.workers, asked.threads, millicpus)
    }

    /// Notes that no plan can make.
    pub(crate) fn container_warnings(&self) -> Vec<PlacementWarning> {
        let mut warnings = Vec::new();
        if let Some(millicpus) = self.container.quota.millicpus
            && self.policy().threads < self.policy.asked().threads
        {
            warnings.push(PlacementWarning::Quota {
                millicpus,
                threads: self.policy().threads,
                asked: self.policy.asked().threads,
            });
        }
        if self.container.is_throttled {
            warnings.push(PlacementWarning::Throttled);
        }
        if self.are_distances_ignored {
            warnings.push(PlacementWarning::DistancesIgnored);
        }
        let count = self.solver.slow_mains();
        if count > 0 {
            warnings.push(PlacementWarning::SlowMains { count });
        }
        if self.container.entered > 0 {
            let count = self.container.entered;
            warnings.push(PlacementWarning::Entered { count });
        }
        warnings
    }
}
