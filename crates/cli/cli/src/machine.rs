//! The machine of a command: this one, a saved copy of its sysfs, or a synthetic one; and the
//! usable CPUs.

use std::path::Path;

use albacore_os::{HostRoot, read_sysfs};
use albacore_topology::{CpuSet, SysfsError, Topology, parse_synthetic, parse_sysfs};

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
            None => read_directory(&HostRoot::live().sys.join("devices/system"))?,
            Some(spec) if Path::new(spec).is_dir() => read_directory(Path::new(spec))?,
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

fn read_directory(system: &Path) -> Result<Topology, Failure> {
    let files = read_sysfs(system).map_err(|e| Failure::Failed(sentence(&e)))?;
    parse_sysfs(&files).map_err(|e| refused(system, &e))
}

/// The failure for an invalid tree: a copy may be incomplete, this machine's own tree cannot.
fn refused(system: &Path, error: &SysfsError) -> Failure {
    let own = HostRoot::live().sys.join("devices/system");
    let is_copy = system.canonicalize().map_or(true, |path| path != own);
    let advice = match is_copy && error.is_unlike_kernel() {
        true => ": the copy may be incomplete",
        false => "",
    };
    let (path, what) = (system.display(), sentence(error));
    Failure::Failed(format!("{path}: {what}{advice}"))
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
    use super::*;

    #[test]
    fn only_a_copy_is_said_to_be_incomplete() {
        let files = [
            ("cpu/online".to_owned(), "0".to_owned()),
            ("cpu/cpu0/topology/core_id".to_owned(), String::new()),
        ];
        let error = parse_sysfs(&files.into()).unwrap_err();
        let what = "cpu/cpu0/topology/core_id: \"\" is not a number";
        let own = "/sys/devices/system";
        assert_eq!(
            refused(Path::new(own), &error).text(),
            format!("{own}: {what}")
        );
        let copy = refused(Path::new("/copy"), &error);
        let due = format!("/copy: {what}: the copy may be incomplete");
        assert_eq!(copy.text(), due);
        let none = parse_sysfs(&[].into()).unwrap_err();
        assert!(
            !refused(Path::new("/copy"), &none)
                .text()
                .contains("incomplete")
        );
    }
}
