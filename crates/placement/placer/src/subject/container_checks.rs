//! Slowly changing state of a container's subject as a whole: its CPU quota, unrelated processes in
//! its cgroup, and an inherited mask.

use std::path::PathBuf;

use albacore_os::{CgroupSubtree, CpuQuota, HostRoot, Pid, quota_files, read_cpu_quota};
use albacore_plan::PlacementWarning;

use super::Subject;
use crate::PlacerError;
use crate::node_problem::threads_within_quota;
use crate::process::ProcessReader;

/// Result of the last check.
#[derive(Debug, Default)]
pub(crate) struct ContainerState {
    pub(crate) quota: CpuQuota,
    pub(crate) is_throttled: bool,
    pub(crate) foreign_processes: usize,
    /// A check has succeeded before.
    is_known: bool,
}

impl Subject {
    /// Checks the container again; true if a change must be reported or planned.
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
        // 0 is a process of another PID namespace, which cannot be matched with the tree.
        let is_stranger = |pid: &&Pid| pid.0 != 0 && self.tree.get(**pid).is_none();
        self.container.foreign_processes = members.iter().filter(is_stranger).count();
        let threads = self.threads_within_quota();
        let is_other = self.policy.set_threads(threads);
        Ok(is_other || before != self.container_warnings())
    }

    /// The files whose writes change its quota; empty without a container.
    pub(crate) fn quota_files(&self, host: &HostRoot) -> Vec<PathBuf> {
        let cgroup = self.subtree.as_ref().map(CgroupSubtree::cgroup);
        // If the files cannot be found, the quota is still polled.
        let files = cgroup.and_then(|cgroup| quota_files(host, cgroup).ok());
        files.unwrap_or_default()
    }

    /// T, or the number of threads per worker that the quota lets run concurrently.
    pub(crate) fn threads_within_quota(&self) -> u16 {
        let requested = self.policy.requested();
        let millicpus = self.container.quota.millicpus;
        threads_within_quota(requested.workers, requested.threads, millicpus)
    }

    /// Warnings that do not come from a plan.
    pub(crate) fn container_warnings(&self) -> Vec<PlacementWarning> {
        let mut warnings = Vec::new();
        if let Some(millicpus) = self.container.quota.millicpus
            && self.policy().threads < self.policy.requested().threads
        {
            warnings.push(PlacementWarning::LimitedByQuota {
                millicpus,
                threads: self.policy().threads,
                requested: self.policy.requested().threads,
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
        if self.container.foreign_processes > 0 {
            let count = self.container.foreign_processes;
            warnings.push(PlacementWarning::ForeignProcesses { count });
        }
        warnings
    }
}
