//! The cpus of this process, and how much work they do at once.

use std::collections::BTreeMap;

use albacore_os::{HostRoot, Pid, Tid, find_cgroup, read_cpu_quota, read_mask, read_sysfs};
use albacore_topology::{Topology, parse_sysfs};

use crate::error::TuneError;

/// Work of two threads that share a core, in threads that have a core each; an assumption, for
/// ranking alone.
pub(crate) const SMT_YIELD: f64 = 1.3;

/// Where candidates run.
#[derive(Debug)]
pub(crate) struct Cpus {
    pub(crate) topology: Topology,
    /// What the cgroup may use of them, as the limit of a container; `None`: all.
    quota: Option<f64>,
}

impl Cpus {
    pub(crate) fn read() -> Result<Self, TuneError> {
        let failed = |what: String| TuneError::Failed(format!("this machine's cpus: {what}"));
        let host = HostRoot::live();
        let files =
            read_sysfs(&host.sys.join("devices/system")).map_err(|e| failed(e.to_string()))?;
        let whole = parse_sysfs(&files).map_err(|e| failed(e.to_string()))?;
        let main = i32::try_from(std::process::id()).unwrap_or_default();
        let mask = read_mask(&host, Tid(main)).map_err(|e| failed(e.to_string()))?;
        let topology = whole.restrict(&mask).map_err(|e| failed(e.to_string()))?;
        // where no cgroup is seen, there is none whose limit counts
        let quota = match find_cgroup(&host, Pid(main)) {
            Ok(cgroup) => {
                read_cpu_quota(&host, &cgroup)
                    .map_err(|e| failed(e.to_string()))?
                    .millicpus
            }
            Err(_) => None,
        };
        Ok(Self {
            topology,
            quota: quota.map(|millicpus| f64::from(millicpus) / 1e3),
        })
    }

    #[cfg(test)]
    pub(crate) fn of_tests(cores: usize, threads: usize) -> Self {
        let text = format!("package:1 core:{cores} pu:{threads}");
        Self {
            topology: albacore_topology::parse_synthetic(&text).unwrap(),
            quota: None,
        }
    }

    /// How many can work at once.
    pub(crate) fn count(&self) -> usize {
        let all = self.topology.cpus().len();
        let within = |quota: f64| all.min(quota.ceil() as usize).max(1);
        self.quota.map_or(all, within)
    }

    /// Work that all cpus do at once, in cpus of cores that have one thread.
    pub(crate) fn capacity(&self) -> f64 {
        let mut cores: BTreeMap<_, usize> = BTreeMap::new();
        for cpu in self.topology.cpus() {
            *cores.entry(cpu.core).or_default() += 1;
        }
        let of_core = |&threads: &usize| if threads > 1 { SMT_YIELD } else { 1.0 };
        let all: f64 = cores.values().map(of_core).sum();
        self.quota.map_or(all, |quota| all.min(quota))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_the_container_counts_as_fewer_cpus() {
        let all = Cpus::of_tests(8, 2);
        assert_eq!(all.count(), 16);
        assert!((all.capacity() - 8.0 * SMT_YIELD).abs() < 1e-9);
        let limited = Cpus {
            quota: Some(3.5),
            ..all
        };
        assert_eq!((limited.count(), limited.capacity()), (4, 3.5));
    }
}
