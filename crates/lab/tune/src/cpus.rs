//! The cpus of this process, and how much work they do at once.

use std::collections::BTreeMap;

use albacore_os::{HostRoot, Tid, read_mask, read_sysfs};
use albacore_topology::{Topology, parse_sysfs};

use crate::error::TuneError;

/// Work of two threads that share a core, in threads that have a core each; an assumption, for
/// ranking alone.
pub(crate) const SMT_YIELD: f64 = 1.3;

/// Where candidates run.
#[derive(Debug)]
pub(crate) struct Cpus {
    pub(crate) topology: Topology,
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
        Ok(Self { topology })
    }

    #[cfg(test)]
    pub(crate) fn of_tests(cores: usize, threads: usize) -> Self {
        let text = format!("package:1 core:{cores} pu:{threads}");
        Self {
            topology: albacore_topology::parse_synthetic(&text).unwrap(),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.topology.cpus().len()
    }

    /// Work that all cpus do at once, in cpus of cores that have one thread.
    pub(crate) fn capacity(&self) -> f64 {
        let mut cores: BTreeMap<_, usize> = BTreeMap::new();
        for cpu in self.topology.cpus() {
            *cores.entry(cpu.core).or_default() += 1;
        }
        let of_core = |&threads: &usize| if threads > 1 { SMT_YIELD } else { 1.0 };
        cores.values().map(of_core).sum()
    }
}
