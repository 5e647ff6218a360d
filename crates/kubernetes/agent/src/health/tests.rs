//! Each cause has its own code, and decisions of the operator are reported first.

use std::fs;

use super::*;
use crate::placer_stats::PlacerFailure;

/// A recorded node: process 1, the kubelet's cgroups, no sched_ext scheduler.
fn node() -> (tempfile::TempDir, HostRoot) {
    let folder = tempfile::tempdir().unwrap();
    let host = HostRoot::recorded(folder.path());
    fs::create_dir_all(host.proc.join("1")).unwrap();
    fs::copy("/proc/self/stat", host.proc.join("1/stat")).unwrap();
    fs::create_dir_all(host.cgroup.join("kubepods.slice")).unwrap();
    fs::write(host.cgroup.join("cgroup.procs"), "").unwrap();
    fs::create_dir_all(host.sys.join("kernel/sched_ext")).unwrap();
    (folder, host)
}

fn self_test(has_sys_nice: bool) -> SelfTest {
    SelfTest {
        has_sys_nice,
        has_read_only_cgroups: false,
        mask_restoration: None,
    }
}

const UNRESTRICTED: NodeRules = NodeRules {
    enforcement: Enforcement::Enforce,
    kill_switch: KillSwitch::Absent,
};

fn codes(health: &Health) -> Vec<&'static str> {
    health.degraded.iter().map(|reason| reason.code).collect()
}

#[test]
fn each_cause_of_degradation_has_its_own_reason() {
    let (_folder, host) = node();
    let look = |test: &SelfTest, stats: &PlacerStats| health(&host, test, UNRESTRICTED, stats);
    assert!(codes(&look(&self_test(true), &PlacerStats::default())).is_empty());
    assert_eq!(
        codes(&look(&self_test(false), &PlacerStats::default())),
        ["NoSysNice"]
    );
    let mut stats = PlacerStats {
        write_refusal: Some("thread 7: not permitted".to_owned()),
        ..PlacerStats::default()
    };
    assert_eq!(codes(&look(&self_test(true), &stats)), ["WriteRefused"]);
    stats.write_refusal = None;
    stats.polling_reason = Some("CAP_NET_ADMIN".to_owned());
    assert_eq!(codes(&look(&self_test(true), &stats)), ["BirthsPolled"]);
    stats.polling_reason = None;
    for (category, word) in [
        ("files_exhausted", "FilesExhausted"),
        ("os", "PlacerFailed"),
        ("invariant", "BrokenInvariant"),
        ("empty_cpuset", "CpusetEmpty"),
    ] {
        stats.failure = Some(PlacerFailure {
            category,
            message: "text".to_owned(),
        });
        assert_eq!(codes(&look(&self_test(true), &stats)), [word]);
    }
    fs::write(host.sys.join("kernel/sched_ext/state"), "enabled\n").unwrap();
    fs::remove_dir(host.cgroup.join("kubepods.slice")).unwrap();
    fs::remove_file(host.proc.join("1/stat")).unwrap();
    let all = look(&self_test(true), &PlacerStats::default());
    assert_eq!(
        codes(&all),
        ["HiddenProcesses", "NoKubelet", "ForeignScheduler"]
    );
    fs::remove_file(host.cgroup.join("cgroup.procs")).unwrap();
    let all = look(&self_test(true), &PlacerStats::default());
    assert_eq!(codes(&all)[1], "CgroupsUnreadable");
}

#[test]
fn the_first_applicable_reason_explains_why_no_mask_is_written() {
    let (_folder, recorded) = node();
    let live = HostRoot {
        proc: "/proc".into(),
        ..recorded.clone()
    };
    let not_enforcing = |host: &HostRoot, nice: bool, enforcement, kill_switch| {
        let rules = NodeRules {
            enforcement,
            kill_switch,
        };
        let health = health(host, &self_test(nice), rules, &PlacerStats::default());
        health.not_enforcing.map(|reason| reason.code)
    };
    use Enforcement::{Enforce, Observe};
    assert_eq!(
        not_enforcing(&live, true, Enforce, KillSwitch::Absent),
        None
    );
    assert_eq!(
        not_enforcing(&live, false, Enforce, KillSwitch::Absent),
        Some("NoSysNice")
    );
    assert_eq!(
        not_enforcing(&recorded, true, Enforce, KillSwitch::Absent),
        Some("OtherPidNamespace")
    );
    assert_eq!(
        not_enforcing(&recorded, false, Observe, KillSwitch::Absent),
        Some("Observe")
    );
    for kill_switch in [KillSwitch::Observe, KillSwitch::None, KillSwitch::Invalid] {
        assert_eq!(
            not_enforcing(&live, false, Observe, kill_switch),
            Some("KillSwitch")
        );
    }
    fs::write(live.sys.join("kernel/sched_ext/state"), "enabled\n").unwrap();
    assert_eq!(
        not_enforcing(&live, true, Enforce, KillSwitch::Absent),
        Some("SchedExt")
    );
}

#[test]
fn without_the_right_to_write_masks_the_agent_observes() {
    let (_folder, recorded) = node();
    let flag = Enforcement::Enforce;
    assert_eq!(self_test(true).enforcement(&HostRoot::live(), flag), flag);
    assert_eq!(
        self_test(false).enforcement(&HostRoot::live(), flag),
        Enforcement::Observe
    );
    assert_eq!(
        self_test(true).enforcement(&recorded, flag),
        Enforcement::Observe
    );
}
