//! CPU quota (CFS bandwidth control) and throttling of a cgroup: `cpu.max` and `cpu.stat` of v2;
//! `cpu.cfs_quota_us` and `cpu.stat` of v1's cpu controller, which is a separate hierarchy with the
//! same paths.

use std::path::{Path, PathBuf};

use crate::kubepods::subdirectories;
use crate::read::read_optional_text;
use crate::{Cgroup, CgroupVersion, HostRoot, OsError};

/// CPU quota of a cgroup, and its throttling statistics.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CpuQuota {
    /// The smallest quota of the cgroup and its ancestors, in millicpus. `None`: unlimited.
    pub millicpus: Option<u32>,
    /// Elapsed periods of all cgroups that have a quota (nr_periods).
    pub periods: u64,
    /// Number of periods in which threads were throttled (nr_throttled).
    pub throttled_periods: u64,
    /// Total time for which threads were throttled.
    pub throttled_micros: u64,
}

/// Reads the quota of a cgroup and its ancestors.
///
/// # Errors
/// A file exists but cannot be read or parsed.
pub fn read_cpu_quota(host: &HostRoot, cgroup: &Cgroup) -> Result<CpuQuota, OsError> {
    let mut quota = CpuQuota::default();
    let Some(mount) = find_cpu_mount(host, cgroup)? else {
        return Ok(quota);
    };
    for directory in cgroup.ancestors() {
        // infallible: the path of an ancestor starts with the mount point.
        let below = directory.strip_prefix(&cgroup.mount).unwrap_or(directory);
        let directory = mount.join(below);
        let Some(millicpus) = read_limit(cgroup.version, &directory)? else {
            continue;
        };
        quota.millicpus = Some(quota.millicpus.map_or(millicpus, |m| m.min(millicpus)));
        if let Some(text) = read_optional_text(&directory.join("cpu.stat"))? {
            let value = |name: &str| field(&text, name).unwrap_or(0);
            quota.periods += value("nr_periods");
            quota.throttled_periods += value("nr_throttled");
            // v2 reports microseconds, v1 nanoseconds.
            quota.throttled_micros += value("throttled_usec") + value("throttled_time") / 1_000;
        }
    }
    Ok(quota)
}

/// The files that set the quota of a cgroup and of its ancestors.
///
/// # Errors
/// The mounted controllers cannot be listed.
pub fn quota_files(host: &HostRoot, cgroup: &Cgroup) -> Result<Vec<PathBuf>, OsError> {
    let Some(mount) = find_cpu_mount(host, cgroup)? else {
        return Ok(Vec::new());
    };
    let name = match cgroup.version {
        CgroupVersion::V2 => "cpu.max",
        CgroupVersion::V1 => "cpu.cfs_quota_us",
    };
    let file = |at: &Path| {
        // infallible: the path of an ancestor starts with the mount point.
        let below = at.strip_prefix(&cgroup.mount).unwrap_or(at);
        mount.join(below).join(name)
    };
    let files = cgroup.ancestors().map(file);
    Ok(files.filter(|file| file.exists()).collect())
}

/// Mount point of the cpu controller for this cgroup.
fn find_cpu_mount(host: &HostRoot, cgroup: &Cgroup) -> Result<Option<PathBuf>, OsError> {
    if cgroup.version == CgroupVersion::V2 {
        return Ok(Some(cgroup.mount.clone()));
    }
    let alone = host.cgroup.join("cpu");
    if alone.is_dir() {
        return Ok(Some(alone));
    }
    let has_cpu = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.split(',').any(|controller| controller == "cpu"))
    };
    Ok(subdirectories(&host.cgroup)?.into_iter().find(has_cpu))
}

/// The quota set in one directory, in millicpus.
fn read_limit(version: CgroupVersion, directory: &Path) -> Result<Option<u32>, OsError> {
    let number = |path: &Path, text: &str| {
        let expected = "a quota of cpu time in microseconds";
        let parsed = text.trim().parse::<i64>();
        parsed.map_err(|_| OsError::content(path, text, expected))
    };
    let (quota, period) = match version {
        CgroupVersion::V2 => {
            let path = directory.join("cpu.max");
            let Some(text) = read_optional_text(&path)? else {
                return Ok(None);
            };
            let (quota, period) = text
                .trim()
                .split_once(' ')
                .unwrap_or((text.trim(), "100000"));
            if quota == "max" {
                return Ok(None);
            }
            (number(&path, quota)?, number(&path, period)?)
        }
        CgroupVersion::V1 => {
            let path = directory.join("cpu.cfs_quota_us");
            let Some(text) = read_optional_text(&path)? else {
                return Ok(None);
            };
            let quota = number(&path, &text)?;
            if quota < 0 {
                return Ok(None);
            }
            let path = directory.join("cpu.cfs_period_us");
            let text = read_optional_text(&path)?.unwrap_or_default();
            (quota, number(&path, &text)?)
        }
    };
    // infallible: clamped to the range of u32.
    Ok(Some(
        (quota.max(1).saturating_mul(1_000) / period.max(1)).clamp(1, 8_192_000) as u32,
    ))
}

/// A field of a flat-keyed cgroup file.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(key, _)| *key == name)?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests;
