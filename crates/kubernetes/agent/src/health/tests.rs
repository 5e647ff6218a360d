//! Each ill has a word of its own, and what a human decided is said first.

use std::fs;

use super::*;

/// A node as files: process 1, a kubelet's cgroups, no other scheduler.
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

fn able(has_sys_nice: bool) -> SelfTest {
    SelfTest {
        has_sys_nice,
        has_read_only_cgroups: false,
        user_masks: None,
    }
}

const FREE: NodeRules = NodeRules {
    enforcement: Enforcement::Enforce,
    switch: Switch::Absent,
};

fn words(health: &Health) -> Vec<&'static str> {
    health.ills.iter().map(|(word, _)| *word).collect()
}

#[test]
fn each_ill_has_a_word_of_its_own() {
    let (_folder, host) = node();
    let look = |test: &SelfTest, journal: &Journal| {
        health(&host, test, Enforcement::Enforce, FREE, journal)
    };
    assert!(words(&look(&able(true), &Journal::default())).is_empty());
    assert_eq!(
        words(&look(&able(false), &Journal::default())),
        ["NoSysNice"]
    );
    let mut journal = Journal {
        refused: Some("thread 7: not permitted".to_owned()),
        ..Journal::default()
    };
    assert_eq!(words(&look(&able(true), &journal)), ["WriteRefused"]);
    journal.refused = None;
    journal.deaf = Some("CAP_NET_ADMIN".to_owned());
    assert_eq!(words(&look(&able(true), &journal)), ["BirthsPolled"]);
    journal.deaf = None;
    for (category, word) in [
        ("files_exhausted", "FilesExhausted"),
        ("os", "PlacerFailed"),
        ("invariant", "BrokenInvariant"),
        ("empty_cpuset", "CpusetEmpty"),
    ] {
        journal.trouble = Some((category, "text".to_owned()));
        assert_eq!(words(&look(&able(true), &journal)), [word]);
    }
    fs::write(host.sys.join("kernel/sched_ext/state"), "enabled\n").unwrap();
    fs::remove_dir(host.cgroup.join("kubepods.slice")).unwrap();
    fs::remove_file(host.proc.join("1/stat")).unwrap();
    let all = look(&able(true), &Journal::default());
    assert_eq!(
        words(&all),
        ["HiddenProcesses", "NoKubelet", "ForeignScheduler"]
    );
    fs::remove_file(host.cgroup.join("cgroup.procs")).unwrap();
    let all = look(&able(true), &Journal::default());
    assert_eq!(words(&all)[1], "CgroupsUnreadable");
}

#[test]
fn why_nothing_is_written_is_said_by_the_first_reason_that_holds() {
    let (_folder, recorded) = node();
    let live = HostRoot {
        proc: "/proc".into(),
        ..recorded.clone()
    };
    let idle = |host: &HostRoot, nice: bool, flag, switch| {
        let rules = NodeRules { switch, ..FREE };
        let health = health(host, &able(nice), flag, rules, &Journal::default());
        health.idle.map(|(word, _)| word)
    };
    use Enforcement::{Enforce, Observe};
    assert_eq!(idle(&live, true, Enforce, Switch::Absent), None);
    assert_eq!(
        idle(&live, false, Enforce, Switch::Absent),
        Some("NoSysNice")
    );
    assert_eq!(
        idle(&recorded, true, Enforce, Switch::Absent),
        Some("OtherPidNamespace")
    );
    assert_eq!(
        idle(&recorded, false, Observe, Switch::Absent),
        Some("Observe")
    );
    for switch in [Switch::Observe, Switch::None, Switch::Unknown] {
        assert_eq!(idle(&live, false, Observe, switch), Some("KillSwitch"));
    }
    fs::write(live.sys.join("kernel/sched_ext/state"), "enabled\n").unwrap();
    assert_eq!(idle(&live, true, Enforce, Switch::Absent), Some("SchedExt"));
}

#[test]
fn without_the_right_to_write_nothing_is_tried() {
    let (_folder, recorded) = node();
    let flag = Enforcement::Enforce;
    assert_eq!(able(true).enforcement(&HostRoot::live(), flag), flag);
    assert_eq!(
        able(false).enforcement(&HostRoot::live(), flag),
        Enforcement::Observe
    );
    assert_eq!(
        able(true).enforcement(&recorded, flag),
        Enforcement::Observe
    );
}
