//! Remaining memory of a cgroup: `memory.max` (v2). Inactive page cache counts as free.

use std::path::Path;

use crate::read::read_optional_text;
use crate::{Cgroup, CgroupVersion, HostRoot, OsError};

/// Bytes left below the limits of a cgroup and its ancestors; on v1, those of the memory
/// controller. `None` without a limit.
///
/// # Errors
/// A file exists but cannot be read or parsed.
pub fn read_available_memory(host: &HostRoot, cgroup: &Cgroup) -> Result<Option<u64>, OsError> {
    let (mount, limit, usage, idle) = match cgroup.version {
        CgroupVersion::V2 => (
            cgroup.mount.clone(),
            "memory.max",
            "memory.current",
            "inactive_file",
        ),
        CgroupVersion::V1 => (
            host.cgroup.join("memory"),
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_inactive_file",
        ),
    };
    let mut least: Option<u64> = None;
    for directory in cgroup.ancestors() {
        // infallible: the path of an ancestor starts with the mount point.
        let below = directory.strip_prefix(&cgroup.mount).unwrap_or(directory);
        let directory = mount.join(below);
        let Some(limit) = read_number(&directory.join(limit))? else {
            continue;
        };
        let used = read_number(&directory.join(usage))?.unwrap_or(0);
        let stat = read_optional_text(&directory.join("memory.stat"))?.unwrap_or_default();
        let mut fields = stat.lines().filter_map(|line| line.split_once(' '));
        let idle = fields.find(|&(key, _)| key == idle);
        let idle: u64 = idle.and_then(|(_, bytes)| bytes.parse().ok()).unwrap_or(0);
        let left = limit.saturating_sub(used.saturating_sub(idle));
        least = Some(least.map_or(left, |least| least.min(left)));
    }
    Ok(least)
}

/// A number of bytes; `None` for `max` or if the file does not exist.
fn read_number(path: &Path) -> Result<Option<u64>, OsError> {
    match read_optional_text(path)?.as_deref().map(str::trim) {
        None | Some("max") => Ok(None),
        Some(text) => text
            .parse()
            .map(Some)
            .map_err(|_| OsError::content(path, text, "a number of bytes")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_nearest_limit_that_is_reached_counts_and_idle_files_do_not() {
        let keep = tempfile::tempdir().unwrap();
        let host = HostRoot::recorded(keep.path());
        let write = |path: &str, text: &str| {
            let path = host.cgroup.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let left = |version, mount: &str| {
            let mount = host.cgroup.join(mount);
            let directory = mount.join("pod/container");
            let cgroup = Cgroup {
                version,
                mount,
                directory,
            };
            read_available_memory(&host, &cgroup).unwrap()
        };
        assert_eq!(left(CgroupVersion::V2, ""), None);
        write("pod/memory.max", "1000\n");
        write("pod/memory.current", "700\n");
        write("pod/memory.stat", "anon 1\ninactive_file 200\n");
        write("pod/container/memory.max", "max\n");
        assert_eq!(left(CgroupVersion::V2, ""), Some(500));
        write("pod/container/memory.max", "800\n");
        write("pod/container/memory.current", "900\n");
        assert_eq!(left(CgroupVersion::V2, ""), Some(0));
        write("memory/pod/memory.limit_in_bytes", "64\n");
        write("memory/pod/memory.usage_in_bytes", "60\n");
        write("memory/pod/memory.stat", "total_inactive_file 10\n");
        assert_eq!(left(CgroupVersion::V1, "cpuset"), Some(14));
    }
}
