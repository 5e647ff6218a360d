//! How much cpu time a cgroup may use, and how often it was stopped for having used it: `cpu.max`
//! and `cpu.stat` of v2, `cpu.cfs_quota_us` and `cpu.stat` of v1's cpu controller, which is a
//! hierarchy of its own with the same paths.

use std::path::{Path, PathBuf};

use crate::kubepods::subdirectories;
use crate::read::read_text_if_present;
use crate::{Cgroup, CgroupVersion, HostRoot, OsError};

/// The cpu time that a cgroup may use, and what came of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CpuQuota {
    /// Thousandths of a cpu: the smallest quota on the way up. `None`: as much as there is.
    pub millicpus: Option<u32>,
    /// Periods that have begun in the cgroups with a quota.
    pub periods: u64,
    /// How many of these ended with all threads stopped.
    pub throttled_periods: u64,
    /// For how long threads were stopped in all.
    pub throttled_micros: u64,
}

/// Reads the quota of a cgroup and its ancestors.
///
/// # Errors
/// A file is there but cannot be read or understood.
pub fn read_cpu_quota(host: &HostRoot, cgroup: &Cgroup) -> Result<CpuQuota, OsError> {
    let mut quota = CpuQuota::default();
    let Some(mount) = find_cpu_mount(host, cgroup)? else {
        return Ok(quota);
    };
    for directory in cgroup.ancestry() {
        // infallible: ancestors begin with the mount.
        let below = directory.strip_prefix(&cgroup.mount).unwrap_or(directory);
        let directory = mount.join(below);
        let Some(millicpus) = read_limit(cgroup.version, &directory)? else {
            continue;
        };
        quota.millicpus = Some(quota.millicpus.map_or(millicpus, |m| m.min(millicpus)));
        if let Some(text) = read_text_if_present(&directory.join("cpu.stat"))? {
            let value = |name: &str| field(&text, name).unwrap_or(0);
            quota.periods += value("nr_periods");
            quota.throttled_periods += value("nr_throttled");
            // v2 counts microseconds, v1 nanoseconds.
            quota.throttled_micros += value("throttled_usec") + value("throttled_time") / 1_000;
        }
    }
    Ok(quota)
}

/// The files whose writes set the quota of a cgroup, its own and its ancestors'.
///
/// # Errors
/// The mounts of controllers cannot be listed.
pub fn quota_files(host: &HostRoot, cgroup: &Cgroup) -> Result<Vec<PathBuf>, OsError> {
    let Some(mount) = find_cpu_mount(host, cgroup)? else {
        return Ok(Vec::new());
    };
    let name = match cgroup.version {
        CgroupVersion::V2 => "cpu.max",
        CgroupVersion::V1 => "cpu.cfs_quota_us",
    };
    let file = |at: &Path| {
        // infallible: ancestors begin with the mount.
        let below = at.strip_prefix(&cgroup.mount).unwrap_or(at);
        mount.join(below).join(name)
    };
    let files = cgroup.ancestry().map(file);
    Ok(files.filter(|file| file.exists()).collect())
}

/// Where the cpu controller of this cgroup is mounted.
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

/// The quota that one directory sets, in thousandths of a cpu.
fn read_limit(version: CgroupVersion, directory: &Path) -> Result<Option<u32>, OsError> {
    let number = |path: &Path, text: &str| {
        let expected = "a quota of cpu time in microseconds";
        let parsed = text.trim().parse::<i64>();
        parsed.map_err(|_| OsError::content(path, text, expected))
    };
    let (quota, period) = match version {
        CgroupVersion::V2 => {
            let path = directory.join("cpu.max");
            let Some(text) = read_text_if_present(&path)? else {
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
            let Some(text) = read_text_if_present(&path)? else {
                return Ok(None);
            };
            let quota = number(&path, &text)?;
            if quota < 0 {
                return Ok(None);
            }
            let path = directory.join("cpu.cfs_period_us");
            let text = read_text_if_present(&path)?.unwrap_or_default();
            (quota, number(&path, &text)?)
        }
    };
    // infallible: clamped to the range.
    Ok(Some(
        (quota.max(1).saturating_mul(1_000) / period.max(1)).clamp(1, 8_192_000) as u32,
    ))
}

/// A field of a flat keyed file.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(key, _)| *key == name)?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests;
