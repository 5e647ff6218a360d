//! Conditions of the node that limit the agent: hidden processes, read-only cgroups, a foreign
//! scheduler, a cpuset without CPUs. Each has its own reason, and the loop neither exits nor spins.
#![allow(clippy::unwrap_used, clippy::panic)] // tests fail by panicking

mod rig;

use std::fs;
use std::path::Path;
use std::time::Duration;

use rig::{Agent, NODE, Pod, Rig, wait};
use serde_json::json;

/// A shell command that drops all capabilities except the agent's, as its DaemonSet does.
const ONE_CAPABILITY: &str = "exec setpriv --no-new-privs --bounding-set=-all,+sys_nice --inh-caps=-all \
                              --regid=65532 --clear-groups \"$0\" \"$@\"";

fn one_pod(rig: &Rig) -> Pod {
    rig.deploy("fraud", 2, 1, &json!({}));
    rig.pod("fraud-1", "fraud", &["2", "1", "named"])
}

/// Asserts that the agent neither exits nor spins: 5 s use less than 1 s of CPU time.
fn assert_not_spinning(agent: &mut Agent) {
    let cpu = agent.cpu_seconds();
    std::thread::sleep(Duration::from_secs(5));
    let cpu = agent.cpu_seconds() - cpu;
    assert!(!agent.has_ended());
    assert!(cpu < 1.0, "{cpu} s of cpu time in 5 s: a busy loop");
}

#[test]
fn hidden_processes_are_reported_and_nothing_is_touched() {
    let rig = Rig::start();
    let pod = one_pod(&rig);
    rig.open_folders();
    let hide = "mount -t proc -o hidepid=2,gid=0 proc /proc";
    let mut agent = rig.agent_after(&format!("{hide}; {ONE_CAPABILITY}"), &[]);
    wait("it says so", || {
        rig.condition("Degraded") == "True/HiddenProcesses"
    });
    rig.wait_for_event(NODE, "HiddenProcesses");
    let report = rig.kubectl(&["get", "npl", NODE, "-o", "json"]);
    assert!(report.contains("hidepid"), "{report}");
    assert_not_spinning(&mut agent);
    assert!(pod.masks().iter().all(|mask| mask == "0-1"));
    assert!(agent.stop().success());

    // Members of the group in the mount option see every process, including an agent in that group.
    let seen = ONE_CAPABILITY.replace("--regid=65532", "--regid=0");
    let agent = rig.agent_after(&format!("{hide}; {seen}"), &[]);
    pod.wait_until_pinned(2);
    rig.wait_for_verified(&pod, 2);
    wait("nothing is wrong", || rig.condition("Degraded").is_empty());
    assert!(agent.stop().success());
}

#[test]
fn with_read_only_cgroups_the_agent_places_and_reports_the_skipped_probes() {
    let rig = Rig::start();
    let pod = one_pod(&rig);
    let (folder, tree) = (rig.cgroup_root(), rig.cgroup().to_owned());
    let bind = |path: &Path| {
        let path = path.display();
        format!("mount --bind {path} {path}; mount -o remount,bind,ro {path}; ")
    };
    let script = format!("{}{}exec \"$0\" \"$@\"", bind(&folder), bind(&tree));
    let mut agent = rig.agent_after(&script, &[]);
    pod.wait_until_pinned(2);
    rig.wait_for_verified(&pod, 2);
    wait("it says what was not tried", || {
        rig.condition("MasksRemembered") == "Unknown/ReadOnlyCgroups"
    });
    assert_eq!(rig.condition("Degraded"), "");
    pod.set_cpus("0");
    wait("cpusets are followed", || {
        pod.threads().values().all(|(_, mask)| mask == "0")
    });
    pod.set_cpus("0-1");
    wait("and again", || {
        let threads = pod.threads();
        let on = |cpu: &str| threads.values().filter(|(_, mask)| mask == cpu).count();
        (on("0"), on("1")) == (1, 1)
    });
    assert_not_spinning(&mut agent);
    assert!(agent.stop().success());
    assert!(pod.masks().iter().all(|mask| mask == "0-1"));
}

/// This kernel has no sched_ext, so its state file is a recording; the rest of `/sys` is real.
#[test]
fn while_a_foreign_scheduler_is_active_nothing_is_written() {
    let rig = Rig::start();
    let pod = one_pod(&rig);
    let sys = rig.folder.path().join("sys");
    let state = sys.join("kernel/sched_ext/state");
    fs::create_dir_all(state.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/sys/devices", sys.join("devices")).unwrap();
    fs::write(&state, "enabled\n").unwrap();
    let mut agent = rig.agent(&["--sys", sys.to_str().unwrap()]);
    wait("it says so", || {
        rig.condition("Enforcing") == "False/SchedExt"
    });
    wait("it is planned", || rig.entry(&pod)["planned"] == 2);
    rig.wait_for_event(NODE, "ForeignScheduler");
    assert_not_spinning(&mut agent);
    assert!(pod.masks().iter().all(|mask| mask == "0-1"));
    fs::write(&state, "disabled\n").unwrap();
    pod.wait_until_pinned(2);
    wait("it says so", || {
        rig.condition("Enforcing") == "True/MasksWritten"
    });
    // Enabled again: a thread that starts now is not pinned.
    fs::write(&state, "enabled\n").unwrap();
    wait("it says so", || {
        rig.condition("Enforcing") == "False/SchedExt"
    });
    let killed = pod.worker(1);
    pod.kill(killed);
    wait("another worker that is left alone", || {
        let threads = pod.threads();
        let is_new = !threads.contains_key(&killed) && threads.len() == 2;
        is_new && threads[&pod.worker(1)].1 == "0-1"
    });
    assert_not_spinning(&mut agent);
    assert_eq!(pod.threads()[&pod.worker(1)].1, "0-1");
    assert!(agent.stop().success());
}

/// The kernel does not allow emptying the cpuset of a cgroup with processes; if a CPU removal does
/// so, there is no notification. Therefore the cgroup and its processes are real, and its effective
/// cpuset is a file of this test that is mounted for the agent.
#[test]
fn an_empty_cpuset_is_reported_and_used_again_when_it_has_cpus() {
    let rig = Rig::start();
    let pod = one_pod(&rig);
    let refused = fs::write(pod.cgroup.join("cpuset.cpus"), "\n").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::StorageFull, "ENOSPC");
    let file = rig.folder.path().join("effective");
    fs::write(&file, "0-1\n").unwrap();
    let script = format!(
        "mount --bind {} {}; exec \"$0\" \"$@\"",
        file.display(),
        pod.cgroup.join("cpuset.effective_cpus").display()
    );
    let mut agent = rig.agent_after(&script, &[]);
    pod.wait_until_pinned(2);
    rig.wait_for_verified(&pod, 2);
    fs::write(&file, "\n").unwrap();
    rig.wait_for_reason(&pod, "its cpuset has no online cpu");
    wait("it says so", || {
        rig.condition("CpusetEmpty") == "True/NoOnlineCpu"
    });
    rig.wait_for_event("fraud-1", "CpusetEmpty");
    assert_not_spinning(&mut agent);
    fs::write(&file, "1\n").unwrap();
    wait("what there is is used", || {
        pod.threads().values().all(|(_, mask)| mask == "1")
    });
    fs::write(&file, "0-1\n").unwrap();
    rig.wait_for_verified(&pod, 2);
    wait("it is well", || rig.condition("CpusetEmpty").is_empty());
    assert!(agent.stop().success());
}

/// A CPU quota for a pod, in a real cpu hierarchy next to that of its cpuset.
struct Quota(Vec<std::path::PathBuf>);

impl Quota {
    fn of(rig: &Rig, pod: &Pod, cpus: u32) -> Self {
        let below = pod.cgroup.strip_prefix("/sys/fs/cgroup/cpuset").unwrap();
        let top = Path::new("/sys/fs/cgroup/cpu").join(below.iter().next().unwrap());
        std::os::unix::fs::symlink(&top, rig.cgroup_root().join("cpu")).unwrap();
        let own = Path::new("/sys/fs/cgroup/cpu").join(below);
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("cpu.cfs_quota_us"), (cpus * 100_000).to_string()).unwrap();
        let made = own.ancestors().take_while(|path| path.starts_with(&top));
        Self(made.map(Path::to_owned).collect())
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        for directory in &self.0 {
            let _ = fs::remove_dir(directory);
        }
    }
}

#[test]
fn under_a_quota_as_many_threads_are_placed_as_it_lets_run() {
    let rig = Rig::start();
    rig.deploy("fraud", 2, 2, &json!({}));
    let pod = rig.pod("fraud-1", "fraud", &["2", "2", "named"]);
    let quota = Quota::of(&rig, &pod, 2);
    let agent = rig.agent(&[]);
    wait("the quota is reported", || {
        rig.entry(&pod)["quotaThreads"] == 1
    });
    rig.wait_for_verified(&pod, 2);
    let threads = pod.threads();
    let mask = |name: &str| &threads.values().find(|(n, _)| n == name).unwrap().1;
    assert_ne!(mask("albw0.0"), mask("albw1.0"), "a cpu for each worker");
    assert_eq!(mask("albw0.0"), mask("albw0.1"), "and no more than that");
    drop(quota);
    wait("without it all are placed", || {
        let entry = rig.entry(&pod);
        entry["quotaThreads"].is_null() && entry["verified"] == 4
    });
    assert!(agent.stop().success());
}
