//! Recorded trees of cgroup v1 and v2.

use std::fs;

use super::*;

fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, HostRoot) {
    let keep = tempfile::tempdir().unwrap();
    let host = HostRoot::recorded(keep.path());
    for (path, text) in files {
        let path = host.cgroup.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    (keep, host)
}

fn cgroup(host: &HostRoot, version: CgroupVersion, mount: &str, below: &str) -> Cgroup {
    let mount = host.cgroup.join(mount);
    Cgroup {
        version,
        directory: mount.join(below),
        mount,
    }
}

#[test]
fn the_smallest_quota_on_the_way_up_holds_in_both_versions() {
    let (_keep, host) = host(&[
        ("kubepods/cpu.max", "max 100000\n"),
        ("kubepods/pod1/cpu.max", "250000 100000\n"),
        (
            "kubepods/pod1/cpu.stat",
            "usage_usec 9\nnr_periods 10\nnr_throttled 4\nthrottled_usec 77\n",
        ),
        ("kubepods/pod1/c1/cpu.max", "400000 100000\n"),
        (
            "kubepods/pod1/c1/cpu.stat",
            "nr_periods 10\nnr_throttled 0\nthrottled_usec 0\n",
        ),
    ]);
    let own = cgroup(&host, CgroupVersion::V2, "", "kubepods/pod1/c1");
    let expected = CpuQuota {
        millicpus: Some(2500),
        periods: 20,
        throttled_periods: 4,
        throttled_micros: 77,
    };
    assert_eq!(read_cpu_quota(&host, &own).unwrap(), expected);
    let files = ["kubepods/pod1/c1", "kubepods/pod1", "kubepods"];
    let files = files.map(|below| host.cgroup.join(below).join("cpu.max"));
    assert_eq!(quota_files(&host, &own).unwrap(), files);
}

#[test]
fn v1_has_its_quota_in_the_hierarchy_of_the_cpu_controller() {
    for mount in ["cpu", "cpu,cpuacct"] {
        let (_keep, host) = host(&[
            (&format!("{mount}/kubepods/pod1/cpu.cfs_quota_us"), "-1\n"),
            (
                &format!("{mount}/kubepods/pod1/c1/cpu.cfs_quota_us"),
                "150000\n",
            ),
            (
                &format!("{mount}/kubepods/pod1/c1/cpu.cfs_period_us"),
                "100000\n",
            ),
            (
                &format!("{mount}/kubepods/pod1/c1/cpu.stat"),
                "nr_periods 5\nnr_throttled 1\nthrottled_time 2000000\n",
            ),
            ("cpuset/kubepods/pod1/c1/cpuset.cpus", "0-3\n"),
        ]);
        let own = cgroup(&host, CgroupVersion::V1, "cpuset", "kubepods/pod1/c1");
        let quota = read_cpu_quota(&host, &own).unwrap();
        assert_eq!(
            (quota.millicpus, quota.throttled_micros),
            (Some(1500), 2000)
        );
        let files = ["kubepods/pod1/c1", "kubepods/pod1"]
            .map(|below| host.cgroup.join(mount).join(below).join("cpu.cfs_quota_us"));
        assert_eq!(quota_files(&host, &own).unwrap(), files);
    }
    let (_keep, bare) = host_without_cpu();
    let own = cgroup(&bare, CgroupVersion::V1, "cpuset", "kubepods");
    assert_eq!(read_cpu_quota(&bare, &own).unwrap(), CpuQuota::default());
}

fn host_without_cpu() -> (tempfile::TempDir, HostRoot) {
    host(&[("cpuset/kubepods/cpuset.cpus", "0-3\n")])
}

#[test]
fn a_malformed_quota_is_reported_with_its_file() {
    let (_keep, host) = host(&[("cpu.max", "much 100000\n")]);
    let own = cgroup(&host, CgroupVersion::V2, "", "");
    let error = read_cpu_quota(&host, &own).unwrap_err().to_string();
    assert!(
        error.contains("cpu.max") && error.contains("much"),
        "{error}"
    );
}
