//! Reads the topology of a machine from `/sys/devices/system`, live or from a copy.

use std::path::{Path, PathBuf};

use albacore_topology::{CpuSet, SysfsError, SysfsFiles, Topology, parse_sysfs, sysfs_paths};

use crate::OsError;
use crate::read::{parse_cpus, read_optional_text, read_text};

/// The topology of a machine cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TopologyReadError {
    /// `cpu/online` or `node/online` is not a cpu list, or a file exists but cannot be read.
    #[error(transparent)]
    Os(#[from] OsError),
    /// The files do not describe a valid machine.
    #[error("{}", system.display())]
    Sysfs {
        /// `/sys/devices/system` or the copy of it.
        system: PathBuf,
        source: SysfsError,
    },
}

/// Reads the topology of the online cpus from `/sys/devices/system` or from a copy of it at
/// `system`.
///
/// # Errors
/// A file cannot be read, or the files do not describe a valid machine.
pub fn read_topology(system: &Path) -> Result<Topology, TopologyReadError> {
    parse_sysfs(&read_sysfs(system)?).map_err(|source| TopologyReadError::Sysfs {
        system: system.to_owned(),
        source,
    })
}

/// Reads the files that describe cpus and caches. Files that do not exist are omitted.
fn read_sysfs(system: &Path) -> Result<SysfsFiles, OsError> {
    let list = |name: &str| -> Result<CpuSet, OsError> {
        let path = system.join(name);
        parse_cpus(&path, &read_optional_text(&path)?.unwrap_or_default())
    };
    let mut files = SysfsFiles::new();
    for name in sysfs_paths(&list("cpu/online")?, &list("node/online")?) {
        let text = match read_optional_text(&system.join(&name)) {
            // The cpu lists by core type (cpu_core, cpu_atom) are in the parent directory.
            Ok(None) => read_kinds_above(system, &name)?,
            other => other?,
        };
        if let Some(text) = text {
            files.insert(name, text);
        }
    }
    Ok(files)
}

fn read_kinds_above(system: &Path, name: &str) -> Result<Option<String>, OsError> {
    match (name.strip_suffix("/cpus"), system.parent()) {
        (Some(_), Some(above)) => match read_text(&above.join(name)) {
            Err(e) if e.is_gone() => Ok(None),
            other => other.map(Some),
        },
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use albacore_values::sentence;

    use super::*;

    #[test]
    fn this_machine_is_read_and_understood() {
        let host = crate::HostRoot::live();
        let topology = read_topology(&host.sys.join("devices/system")).unwrap();
        assert_eq!(topology.cpuset(), crate::read_online(&host).unwrap());
    }

    #[test]
    fn an_error_of_the_topology_names_the_folder_and_every_cause_once() {
        let folder = tempfile::tempdir().unwrap();
        let system = folder.path();
        let error = || sentence(&read_topology(system).unwrap_err());
        let own = system.display();
        assert_eq!(error(), format!("{own}: cpu/online is missing"));
        let topology = system.join("cpu/cpu0/topology");
        std::fs::create_dir_all(&topology).unwrap();
        std::fs::write(system.join("cpu/online"), "0\n").unwrap();
        std::fs::write(topology.join("core_cpus_list"), "0-x\n").unwrap();
        let error = error();
        let due = format!("{own}: cpu/cpu0/topology/core_cpus_list is not a list of cpus: ");
        assert!(error.starts_with(&due), "{error}");
        assert_eq!(error.matches("\"0-x\" is not a cpu").count(), 1, "{error}");
    }
}
