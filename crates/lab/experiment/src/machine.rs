//! Properties of the machine of an experiment.

use std::path::Path;

use serde::{Deserialize, Serialize};

use albacore_os::{HostRoot, read_topology};
use albacore_values::sentence;

use crate::ExperimentError;

/// Properties of the machine that readers of the results need.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    /// Number of cpus in this process's affinity mask.
    pub cpus: usize,
    pub kernel: String,
    /// Governor of the first cpu; `None` if the kernel does not scale frequencies, as in most
    /// virtual machines.
    pub governor: Option<String>,
    pub smt: Option<String>,
    /// Vulnerabilities that the kernel mitigates, and the mitigations.
    pub mitigations: Vec<String>,
    /// Hash that identifies the topology, as in `albacore topology`.
    pub topology: String,
}

impl Machine {
    /// Reads the properties of this machine.
    ///
    /// # Errors
    /// Its topology cannot be read.
    pub(crate) fn read() -> Result<Self, ExperimentError> {
        let host = HostRoot::live();
        let system = host.sys.join("devices/system");
        let failed = |error: &dyn std::error::Error| ExperimentError::Machine(sentence(error));
        let topology = read_topology(&system).map_err(|error| failed(&error))?;
        let cpus = std::thread::available_parallelism().map_err(|error| failed(&error))?;
        let cpu_folder = system.join("cpu");
        Ok(Self {
            cpu: cpu_model(&host).unwrap_or_else(|| "unknown".to_owned()),
            cpus: cpus.get(),
            kernel: text(&host.proc.join("sys/kernel/osrelease")).unwrap_or_default(),
            governor: text(&cpu_folder.join("cpu0/cpufreq/scaling_governor")),
            smt: text(&cpu_folder.join("smt/control")),
            mitigations: mitigations(&cpu_folder.join("vulnerabilities")),
            topology: topology.hash_hex(),
        })
    }

    /// An arbitrary machine with two cpus.
    #[cfg(test)]
    pub(crate) fn of_tests() -> Self {
        Self {
            cpu: "a cpu".to_owned(),
            cpus: 2,
            kernel: "6.1".to_owned(),
            governor: None,
            smt: None,
            mitigations: Vec::new(),
            topology: "0".to_owned(),
        }
    }

    /// Whether the results of both are comparable.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.cpu, self.cpus, &self.kernel, &self.topology)
            == (&other.cpu, other.cpus, &other.kernel, &other.topology)
    }
}

fn text(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

/// Parses the line `model name : ...` of x86, or `CPU part : ...` of ARM.
fn cpu_model(host: &HostRoot) -> Option<String> {
    let info = text(&host.proc.join("cpuinfo"))?;
    let value = |key: &str| {
        let mut lines = info.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(name, _)| name.trim() == key)
    };
    let (_, model) = value("model name").or_else(|| value("CPU part"))?;
    Some(model.trim().to_owned())
}

fn mitigations(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<String> = files
        .filter_map(|file| {
            let what = text(&file.path()).filter(|what| what != "Not affected")?;
            Some(format!("{}: {what}", file.file_name().to_string_lossy()))
        })
        .collect();
    found.sort();
    found
}
