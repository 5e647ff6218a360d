//! The cpus of servers and of the load generator, and their combined capacity.

use std::collections::BTreeMap;

use albacore_os::{
    HostRoot, MaskError, Pid, current_thread, find_cgroup, read_cpu_quota, read_mask,
    read_topology, write_mask,
};
use albacore_topology::{CpuSet, Topology};
use albacore_values::sentence;

use crate::error::TuneError;

/// Throughput of two SMT siblings relative to one thread per core; an assumption, used only for
/// ranking.
pub(crate) const SMT_YIELD: f64 = 1.3;

fn failed(error: &dyn std::error::Error) -> TuneError {
    TuneError::Failed(format!("this machine's cpus: {}", sentence(error)))
}

/// The cpus of candidates and of the load generator.
#[derive(Debug)]
pub(crate) struct Cpus {
    /// Topology of the servers' cpus.
    pub(crate) topology: Topology,
    /// Affinity mask of this process.
    allowed: CpuSet,
    /// Cpus of the load generator: those not used by servers, or the same if there are no others.
    generator: CpuSet,
    /// CPU quota of the cgroup, such as the limit of a container; `None`: unlimited.
    quota: Option<f64>,
}

impl Cpus {
    /// A requested cpu is not allowed for this process; the topology cannot be read.
    pub(crate) fn read(requested: Option<&CpuSet>) -> Result<Self, TuneError> {
        let host = HostRoot::live();
        let whole = read_topology(&host.sys.join("devices/system")).map_err(|e| failed(&e))?;
        let allowed = read_mask(&host, current_thread()).map_err(|e| failed(&e))?;
        let servers = requested.unwrap_or(&allowed);
        let checked = servers.check_selection(&allowed);
        checked.map_err(|e| TuneError::Usage(format!("--cpus {e}")))?;
        let topology = whole.restrict(servers).map_err(|e| failed(&e))?;
        let others = allowed.difference(servers);
        let generator = match others.is_empty() {
            true => servers.clone(),
            false => others,
        };
        // if the cgroup is not visible, no limit applies
        let own = Pid(i32::try_from(std::process::id()).unwrap_or_default());
        let quota = match find_cgroup(&host, own) {
            Ok(cgroup) => {
                read_cpu_quota(&host, &cgroup)
                    .map_err(|e| failed(&e))?
                    .millicpus
            }
            Err(_) => None,
        };
        Ok(Self {
            topology,
            allowed,
            generator,
            quota: quota.map(|millicpus| f64::from(millicpus) / 1e3),
        })
    }

    #[cfg(test)]
    pub(crate) fn of_tests(cores: usize, threads: usize) -> Self {
        let text = format!("package:1 core:{cores} pu:{threads}");
        let topology = albacore_topology::parse_synthetic(&text).unwrap();
        Self {
            allowed: topology.cpuset(),
            generator: topology.cpuset(),
            topology,
            quota: None,
        }
    }

    /// Description of the cpus of servers and load generator.
    pub(crate) fn description(&self) -> String {
        let (servers, generator) = (self.topology.cpuset(), &self.generator);
        match self.is_generator_apart() {
            true => format!("servers on cpus {servers}, load generator on cpus {generator}"),
            false => format!("servers and load generator share cpus {servers}"),
        }
    }

    fn is_generator_apart(&self) -> bool {
        self.generator != self.topology.cpuset()
    }

    /// Whether the load generator takes CPU time from the servers: it has no separate cpus, or a
    /// quota of the cgroup limits both.
    pub(crate) fn is_time_shared(&self) -> bool {
        !self.is_generator_apart() || self.quota.is_some()
    }

    /// Starts a process that may use all cpus; then restricts the calling thread, which sends the
    /// load, to those of the load generator.
    ///
    /// # Errors
    /// Those of `start`; a cpu is no longer online.
    pub(crate) fn start_apart<T>(
        &self,
        start: impl FnOnce() -> Result<T, TuneError>,
    ) -> Result<T, TuneError> {
        if !self.is_generator_apart() {
            return start();
        }
        let failed = |e: MaskError| failed(&e);
        write_mask(current_thread(), &self.allowed).map_err(failed)?;
        let started = start()?;
        write_mask(current_thread(), &self.generator).map_err(failed)?;
        Ok(started)
    }

    /// Number of cpus that can run at the same time.
    pub(crate) fn count(&self) -> usize {
        let all = self.topology.cpus().len();
        let within = |quota: f64| all.min(quota.ceil() as usize).max(1);
        self.quota.map_or(all, within)
    }

    /// Combined capacity of all cpus, in cpus of cores with one thread.
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
    fn the_load_generator_gets_the_cpus_that_servers_do_not_use() {
        let mask = || read_mask(&HostRoot::live(), current_thread()).unwrap();
        let all = mask();
        let one: CpuSet = all.first().into_iter().collect();
        let cpus = Cpus::read(Some(&one)).unwrap();
        assert_eq!((cpus.count(), cpus.topology.cpuset()), (1, one.clone()));
        let others = all.difference(&one);
        let apart = if others.is_empty() { &one } else { &others };
        assert_eq!(cpus.start_apart(|| Ok(mask())).unwrap(), all);
        assert_eq!((&mask(), &cpus.generator), (apart, apart));
        assert!(cpus.description().ends_with(&format!("cpus {apart}")));
        let none = Cpus::read(Some(&CpuSet::new())).unwrap_err();
        assert!(matches!(&none, TuneError::Usage(what) if what.starts_with("--cpus is empty")));
        let far = "8191".parse().unwrap();
        let far = Cpus::read(Some(&far)).unwrap_err().to_string();
        assert!(far.starts_with("--cpus 8191: "), "{far}");
        let shared = Cpus::of_tests(2, 1);
        assert!(shared.is_time_shared() && shared.description().ends_with("share cpus 0-1"));
    }

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
