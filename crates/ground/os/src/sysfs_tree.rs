//! Reads the files of `/sys/devices/system` that `albacore-topology` parses, live or from a copy.

use std::path::Path;

use albacore_topology::{CpuSet, SysfsFiles, sysfs_paths};

use crate::OsError;
use crate::read::{parse_cpus, read_optional_text, read_text};

/// Reads the files of `/sys/devices/system` or of a copy at `system` that describe cpus and caches.
/// Files that do not exist are omitted.
///
/// # Errors
/// `cpu/online` or `node/online` is not a cpu list, or a file exists but cannot be read.
pub fn read_sysfs(system: &Path) -> Result<SysfsFiles, OsError> {
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
    use super::*;
    use albacore_topology::parse_sysfs;

    #[test]
    fn this_machine_is_read_and_understood() {
        let host = crate::HostRoot::live();
        let topology = parse_sysfs(&read_sysfs(&host.sys.join("devices/system")).unwrap()).unwrap();
        assert_eq!(topology.cpuset(), crate::read_online(&host).unwrap());
    }

    #[test]
    fn a_directory_that_is_no_sysfs_is_left_to_the_parser_to_refuse() {
        let nothing = tempfile::tempdir().unwrap();
        let files = read_sysfs(nothing.path()).unwrap();
        assert!(parse_sysfs(&files).is_err());
    }
}
