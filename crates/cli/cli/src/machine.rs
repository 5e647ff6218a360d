//! The machine of a command: this one, a saved copy of its sysfs, or a synthetic one; and the
//! usable CPUs.

use std::path::{Path, PathBuf};

use albacore_os::{HostRoot, TopologyReadError, read_topology};
use albacore_topology::{CpuSet, SysfsError, Topology, parse_synthetic};

use crate::args::MachineArgs;
use albacore_command::{Failure, sentence};

/// A machine and its usable CPUs.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) whole: Topology,
    /// The part of the machine within the cpuset.
    pub(crate) usable: Topology,
}

impl Machine {
    /// Reads or parses the machine selected by the options.
    ///
    /// # Errors
    /// Usage: the machine does not exist, or the cpuset is empty or exceeds it. Failed: files
    /// cannot be read.
    pub(crate) fn open(args: &MachineArgs) -> Result<Self, Failure> {
        let whole = match args.topology.as_deref() {
            None => read_topology(&own_system()).map_err(|e| refused(&e))?,
            Some(spec) if Path::new(spec).is_dir() => {
                read_topology(Path::new(spec)).map_err(|e| refused(&e))?
            }
            Some(spec) if spec.contains('/') => {
                let what = "is not a directory: give a copy of /sys/devices/system";
                return Err(Failure::Usage(format!("--topology {spec} {what}")));
            }
            Some(spec) => parse_synthetic(spec).map_err(|e| Failure::usage("--topology", &e))?,
        };
        let usable = match &args.cpuset {
            None => whole.clone(),
            Some(cpuset) => restrict(&whole, "--cpuset ", cpuset)?,
        };
        Ok(Self { whole, usable })
    }
}

fn own_system() -> PathBuf {
    HostRoot::live().sys.join("devices/system")
}

/// The failure for an invalid tree: a copy may be incomplete, this machine's own tree cannot.
fn refused(error: &TopologyReadError) -> Failure {
    let advice = match error {
        TopologyReadError::Sysfs { system, source } if is_copy(system) => advice(source),
        TopologyReadError::Sysfs { .. } | TopologyReadError::Os(_) => "",
    };
    Failure::Failed(format!("{}{advice}", sentence(error)))
}

/// Whether the files are not those of this machine, which may be missing where sysfs is not
/// mounted.
fn is_copy(system: &Path) -> bool {
    let own = own_system();
    system != own && system.canonicalize().map_or(true, |path| path != own)
}

/// What may be wrong with a copy.
fn advice(error: &SysfsError) -> &'static str {
    match error {
        SysfsError::NoOnline => {
            ": this is not a copy of /sys/devices/system (copy at least cpu/online, \
             cpu/cpu*/topology, cpu/cpu*/cache and node/node*/cpulist)"
        }
        error if error.is_unlike_kernel() => ": the copy may be incomplete",
        _ => "",
    }
}

/// Restricts a machine to `cpuset`; `option` is the prefix of error messages, such as `--cpuset `.
///
/// # Errors
/// Usage: the cpuset is empty or exceeds the machine.
pub(crate) fn restrict(
    whole: &Topology,
    option: &str,
    cpuset: &CpuSet,
) -> Result<Topology, Failure> {
    let there = whole.cpuset();
    let missing = cpuset.difference(&there);
    if cpuset.is_empty() {
        let advice = format!("give at least one of the machine's cpus, {there}");
        let option = option.trim_end();
        return Err(Failure::Usage(format!("{option} is empty: {advice}")));
    }
    if !missing.is_empty() {
        let (noun, verb) = if missing.len() == 1 {
            ("cpu", "is")
        } else {
            ("cpus", "are")
        };
        return Err(Failure::Usage(format!(
            "{option}{cpuset}: {noun} {missing} {verb} not online in this machine, \
             which has {there}"
        )));
    }
    whole
        .restrict(cpuset)
        .map_err(|e| Failure::usage(option.trim_end(), &e))
}

#[cfg(test)]
mod tests {
    use albacore_topology::{SysfsFiles, parse_sysfs};

    use super::*;

    /// The messages about the same files at /sys/devices/system and in a copy.
    fn messages(files: &SysfsFiles) -> [String; 2] {
        ["/sys/devices/system", "/copy"].map(|system| {
            let error = TopologyReadError::Sysfs {
                system: system.into(),
                source: parse_sysfs(files).unwrap_err(),
            };
            refused(&error).text().to_owned()
        })
    }

    #[test]
    fn only_a_copy_is_said_to_be_incomplete() {
        let files = [
            ("cpu/online".to_owned(), "0".to_owned()),
            ("cpu/cpu0/topology/core_id".to_owned(), String::new()),
        ];
        let [own, copy] = messages(&files.into());
        let what = "cpu/cpu0/topology/core_id: \"\" is not a number";
        assert_eq!(own, format!("/sys/devices/system: {what}"));
        assert_eq!(copy, format!("/copy: {what}: the copy may be incomplete"));
    }

    #[test]
    fn only_a_copy_without_cpus_is_said_to_be_none() {
        let [own, copy] = messages(&SysfsFiles::new());
        assert_eq!(own, "/sys/devices/system: cpu/online is missing");
        let due = "/copy: cpu/online is missing: this is not a copy of /sys/devices/system (copy";
        assert!(copy.starts_with(due), "{copy}");
        assert!(!copy.contains("incomplete"), "{copy}");
    }
}
