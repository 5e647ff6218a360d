//! The cpus that a subject may use: the intersection of the effective cpusets of its processes'
//! cgroups with the configured limit.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::time::Instant;

use albacore_os::{
    Cgroup, CgroupError, CgroupSubtree, EffectiveCpuset, EffectiveCpusetFile, HostRoot, OsError,
    Pid, find_cgroup, read_online,
};
use albacore_topology::CpuSet;

use crate::PlacerError;
use crate::limits::{CGROUPS_MAX, CPUSET_WRITE_TIME};

/// The cpuset of one subject.
#[derive(Debug)]
pub(crate) struct CpusetView {
    cgroups: Vec<Cgroup>,
    /// Their effective cpuset files, kept open while descriptors are available; by index into
    /// `cgroups`.
    files: BTreeMap<usize, EffectiveCpusetFile>,
    /// Descriptors with this number or above are not kept open.
    descriptors: i32,
    /// Processes in other cgroups are ignored.
    subtree: Option<CgroupSubtree>,
    limit: Option<CpuSet>,
    /// The cpus that may be used.
    pub(crate) cpus: CpuSet,
    /// The file from which they were read.
    pub(crate) source: PathBuf,
    /// Number of observed or announced changes.
    pub(crate) changes: u64,
    /// Time of the last observed change.
    changed_at: Option<Instant>,
}

impl CpusetView {
    /// Finds the cgroup of the root and reads its cpuset.
    pub(crate) fn read(
        host: &HostRoot,
        root: Pid,
        subtree: Option<CgroupSubtree>,
        limit: Option<CpuSet>,
        descriptors: i32,
    ) -> Result<Self, PlacerError> {
        let cgroup = match &subtree {
            Some(subtree) => subtree.cgroup_of(host, root)?,
            None => Some(find_cgroup(host, root)?),
        };
        let mut view = Self {
            cgroups: cgroup.into_iter().collect(),
            files: BTreeMap::new(),
            descriptors,
            subtree,
            limit,
            cpus: CpuSet::new(),
            source: PathBuf::new(),
            changes: 0,
            changed_at: None,
        };
        view.update(host)?;
        // The first reading is not a change: no mask was written for another cpuset.
        (view.changes, view.changed_at) = (0, None);
        Ok(view)
    }

    /// Finds the cgroups of these processes, the root first; usually there is only one. True if
    /// they differ from before.
    pub(crate) fn find(&mut self, host: &HostRoot, pids: &[Pid]) -> Result<bool, CgroupError> {
        let mut cgroups: Vec<Cgroup> = Vec::new();
        for &pid in pids {
            let found = match &self.subtree {
                Some(subtree) => subtree.cgroup_of(host, pid).map_err(CgroupError::from),
                None => find_cgroup(host, pid).map(Some),
            };
            match found {
                Ok(Some(cgroup)) if cgroups.len() < CGROUPS_MAX && !cgroups.contains(&cgroup) => {
                    cgroups.push(cgroup);
                }
                Ok(_) => {}
                Err(CgroupError::Os(e)) if e.is_gone() => {}
                Err(e) => return Err(e),
            }
        }
        // The cgroup may have got its own cpuset file meanwhile.
        self.files.clear();
        let differs = !cgroups.is_empty() && cgroups != self.cgroups;
        if differs {
            self.cgroups = cgroups;
            self.changes += 1;
        }
        Ok(differs)
    }

    /// Reads the cpusets again; true if the usable cpus changed. If processes are in several
    /// cgroups (while being moved one by one), the intersection of all cpusets is used, or the
    /// cpuset of the root's cgroup if the intersection is empty.
    pub(crate) fn update(&mut self, host: &HostRoot) -> Result<bool, OsError> {
        self.update_of(host, &read_online(host)?)
    }

    /// As [`Self::update`], with the online cpus already read: one read for all subjects.
    pub(crate) fn update_of(&mut self, host: &HostRoot, online: &CpuSet) -> Result<bool, OsError> {
        let mut common: Option<CpuSet> = None;
        let mut first: Option<CpuSet> = None;
        for at in 0..self.cgroups.len() {
            let effective = match self.read_effective_cpuset(at, host, online) {
                Ok(effective) => effective,
                // A removed cgroup no longer contains processes.
                Err(e) if e.is_gone() => continue,
                Err(e) => return Err(e),
            };
            if first.is_none() {
                first = Some(effective.cpus.clone());
                self.source = effective.source;
            }
            common =
                Some(common.map_or(effective.cpus.clone(), |c| c.intersection(&effective.cpus)));
        }
        let Some(mut cpus) = common.filter(|c| !c.is_empty()).or(first) else {
            return Ok(false);
        };
        if let Some(limit) = &self.limit {
            cpus = cpus.intersection(limit);
        }
        let differs = cpus != self.cpus;
        if differs {
            self.cpus = cpus;
            self.changes += 1;
            self.changed_at = Some(Instant::now());
        }
        Ok(differs)
    }

    /// Reads the effective cpuset of one of the cgroups.
    fn read_effective_cpuset(
        &mut self,
        at: usize,
        host: &HostRoot,
        online: &CpuSet,
    ) -> Result<EffectiveCpuset, OsError> {
        if let Some(Ok(effective)) = self.files.get(&at).map(|file| file.read(online)) {
            return Ok(effective);
        }
        // Not open yet, or the cgroup was removed: search again.
        self.files.remove(&at);
        let cgroup = &self.cgroups[at];
        // The kernel assigns the lowest free descriptor, so a high number means that few are left.
        let few = |file: &EffectiveCpusetFile| file.as_fd().as_raw_fd() >= self.descriptors;
        if let Some(file) = cgroup
            .open_effective_cpuset()
            .ok()
            .filter(|file| !few(file))
        {
            self.files.insert(at, file);
        }
        cgroup.read_effective_cpuset_of(host, online.clone())
    }

    /// Counts another change if the last one was recent: an old kernel may still be overwriting
    /// masks, thread by thread, and an overwritten mask must not count as a foreign change.
    pub(crate) fn count_ongoing_change(&mut self) {
        let age = self.changed_at.map(|at| at.elapsed());
        self.changes += u64::from(age.is_some_and(|age| age < CPUSET_WRITE_TIME));
    }

    /// True if masks are restored to a configured limit instead of to the whole cpuset.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// The files whose writes may change the cpuset.
    pub(crate) fn watched_files(&self) -> Vec<PathBuf> {
        self.cgroups
            .iter()
            .flat_map(Cgroup::watched_files)
            .collect()
    }
}
