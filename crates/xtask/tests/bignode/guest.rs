//! The test steps inside the guest.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use albacore_os::{
    CgroupSubtree, HostRoot, Kubepods, Pid, Tid, read_mask, read_members, write_mask,
};
use nix::sched::{CloneFlags, unshare};

use crate::{DONE, distances, many, memory};

const CGROUPS: &str = "/sys/fs/cgroup";
const UID: &str = "0f0e0d0c-0b0a-4908-8706-050403020100";
const OTHER_UID: &str = "1f0e0d0c-0b0a-4908-8706-050403020100";
const CONTAINER: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const LOG: &str = "/tmp/run.log";

/// Runs all steps in the guest; the machine is powered off when it returns.
pub(crate) fn run_steps() {
    if std::env::var_os(OBSERVER_ENV).is_some() {
        return observe_as_agent();
    }
    let done = std::panic::catch_unwind(|| {
        step("mounts", mounts);
        if online() == many::CPUS {
            many::run_steps();
            return;
        }
        step("the machine", || {
            the_machine(&["8 cpus", "4 cores", "2 numa domains", "2 packages"]);
        });
        step("distances", distances::are_measured);
        let (pod, container) = step("a pod", || make_pod("0-3"));
        let mut placer = step("placed", || start_placer(&container));
        step("the cpuset widens", || cpuset_widens(&container));
        step("and again and again", || {
            cpuset_narrows_and_widens(&container)
        });
        step("a cpu goes and comes back", || hotplug(&container));
        step("seen from another cgroup namespace", || {
            view_from_another_cgroup_namespace(&pod);
        });
        step(
            "seen from another pid namespace",
            view_from_another_pid_namespace,
        );
        step("a change to Observe", || switch_to_observe(&container));
        step("given back", || stop_placer(&mut placer));
        step("memory is near", || memory::memory_is_local(&container));
    });
    match done {
        Ok(()) => println!("{DONE}"),
        Err(_) => {
            println!("{}", fs::read_to_string(LOG).unwrap_or_default());
            print_processes();
        }
    }
    // The console is a slow serial line.
    std::thread::sleep(Duration::from_millis(300));
    fs::write("/proc/sysrq-trigger", "o").unwrap();
    std::thread::sleep(Duration::from_secs(10));
}

pub(crate) fn step<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = work();
    println!("{:6.2} s: {what}", start.elapsed().as_secs_f64());
    done
}

fn run(words: &[&str]) {
    let status = Command::new(format!("/bin/{}", words[0]))
        .args(&words[1..])
        .status();
    assert!(status.unwrap().success(), "{words:?}");
}

fn mounts() {
    for (kind, target) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        run(&["mount", "-t", kind, kind, target]);
    }
    run(&["mount", "-t", "cgroup2", "cgroup2", CGROUPS]);
    run(&["ip", "link", "set", "lo", "up"]);
}

fn online() -> String {
    let text = fs::read_to_string("/sys/devices/system/cpu/online");
    text.unwrap().trim().to_owned()
}

/// Prints the processes of the guest and what they are blocked on.
fn print_processes() {
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let text = |name: &str| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        let line = text("cmdline").replace('\0', " ");
        if !line.is_empty() {
            let pid = entry.file_name();
            println!("{} {line}: {}", pid.display(), text("wchan"));
        }
    }
}

/// Checks the first line of the output of `albacore topology`.
pub(crate) fn the_machine(parts: &[&str]) {
    let output = Command::new("/albacore").arg("topology").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let first = text.lines().next().unwrap_or_default();
    println!("{first}");
    for part in parts {
        assert!(first.contains(part), "{part}: {text}");
    }
}

/// Creates the cgroups of a container like the kubelet and containerd; returns that of the pod and
/// that of the container.
pub(crate) fn make_pod(cpus: &str) -> (PathBuf, PathBuf) {
    let mut directory = PathBuf::from(CGROUPS);
    for name in ["", "kubepods", "burstable", &format!("pod{UID}"), CONTAINER] {
        directory.push(name);
        fs::create_dir_all(&directory).unwrap();
        if name != CONTAINER {
            fs::write(directory.join("cgroup.subtree_control"), "+cpuset").unwrap();
        }
    }
    fs::write(directory.join("cpuset.cpus"), cpus).unwrap();
    (directory.parent().unwrap().to_owned(), directory)
}

fn enter(directory: &Path) {
    fs::write(directory.join("cgroup.procs"), "0").unwrap();
}

/// Starts a program in a cgroup.
fn start(directory: &Path, command: &mut Command) -> Child {
    enter(directory);
    let child = command.stdin(Stdio::null()).spawn();
    enter(Path::new(CGROUPS));
    child.unwrap()
}

pub(crate) fn wait_until(what: &str, limit: Duration, is_so: impl Fn() -> bool) -> Duration {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
    start.elapsed()
}

/// The masks of the worker threads in this cgroup by thread name, in the kernel's format.
pub(crate) fn masks(directory: &Path) -> BTreeMap<String, String> {
    let pids = fs::read_to_string(directory.join("cgroup.procs")).unwrap();
    let mut found = BTreeMap::new();
    for pid in pids.lines() {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten();
        for task in tasks.flatten() {
            let text = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
            // The server sets these names.
            let name = text("comm").trim().to_owned();
            if name.starts_with("albw") {
                let status = text("status");
                let mask = status
                    .lines()
                    .find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
                found.extend(mask.map(|mask| (name, mask.trim().to_owned())));
            }
        }
    }
    found
}

/// Whether four threads run on one CPU each, all within `cpus`.
fn is_placed(directory: &Path, cpus: &[u32]) -> bool {
    let masks = masks(directory);
    let own: BTreeSet<u32> = masks
        .values()
        .filter_map(|mask| mask.parse().ok())
        .collect();
    masks.len() == 4 && own.len() == 4 && own.iter().all(|cpu| cpus.contains(cpu))
}

pub(crate) const LONG: Duration = Duration::from_secs(60);

fn start_placer(container: &Path) -> Child {
    let placer = serve(container, "/fraud.yaml");
    wait_until("placed", LONG, || is_placed(container, &[0, 1, 2, 3]));
    placer
}

/// Starts `albacore run` in a container.
pub(crate) fn serve(container: &Path, file: &str) -> Child {
    let log = fs::File::create(LOG).unwrap();
    let mut command = Command::new("/albacore");
    command
        .args(["run", "-f", file])
        .stdout(log.try_clone().unwrap())
        .stderr(log);
    start(container, &mut command)
}

/// Next to the server runs a pinned process without a placer, which shows the behavior of this
/// kernel.
fn cpuset_widens(container: &Path) {
    let beside = container.with_file_name(CONTAINER.replace('0', "f"));
    fs::create_dir_all(&beside).unwrap();
    fs::write(beside.join("cpuset.cpus"), "0-3").unwrap();
    let mut command = Command::new("/bin/ip");
    let mut witness = start(
        &beside,
        command.args(["monitor", "link"]).stdout(Stdio::null()),
    );
    let tid = Tid(i32::try_from(witness.id()).unwrap());
    write_mask(tid, &"2".parse().unwrap()).unwrap();
    for directory in [container, &beside] {
        fs::write(directory.join("cpuset.cpus"), "0-7").unwrap();
    }
    let took = wait_until("placed again", LONG, || {
        is_placed(container, &[0, 1, 2, 3, 4, 5, 6, 7])
    });
    println!("placed again after {took:?}");
    assert_eq!(
        read_mask(&HostRoot::live(), tid).unwrap().to_string(),
        "0-7",
        "this kernel forgets pins"
    );
    witness.kill().unwrap();
    witness.wait().unwrap();
    wait_until("each lost pin reported", LONG, || {
        let log = fs::read_to_string(LOG).unwrap();
        let is_reported = |line: &&str| {
            line.contains(r#""event":"drift""#) && line.contains(r#""cause":"cpuset_change""#)
        };
        // More than four if the kernel was still resetting masks when the first of them was pinned
        // again.
        log.lines().filter(is_reported).count() >= 4
    });
}

/// Emulates a kubelet with Guaranteed pods that start and stop: each time all pins are lost.
fn cpuset_narrows_and_widens(container: &Path) {
    let mut times = Vec::new();
    for _ in 0..10 {
        for (cpuset, cpus) in [
            ("0-3", &[0, 1, 2, 3][..]),
            ("0-7", &[0, 1, 2, 3, 4, 5, 6, 7]),
        ] {
            fs::write(container.join("cpuset.cpus"), cpuset).unwrap();
            times.push(wait_until("placed again", LONG, || {
                is_placed(container, cpus)
            }));
        }
    }
    println!("placed again after {times:.0?}");
    let log = fs::read_to_string(LOG).unwrap();
    let is_blamed = |line: &&str| line.contains("foreign") || line.contains("another program");
    assert_eq!(log.lines().find(is_blamed), None, "nobody did that");
}

fn hotplug(container: &Path) {
    let before: BTreeSet<String> = masks(container).into_values().collect();
    let victim = before.iter().find(|cpu| *cpu != "0").unwrap().clone();
    let online = format!("/sys/devices/system/cpu/cpu{victim}/online");
    fs::write(&online, "0").unwrap();
    let gone: u32 = victim.parse().unwrap();
    let left: Vec<u32> = (0..8).filter(|&cpu| cpu != gone).collect();
    let took = wait_until("placed without it", LONG, || is_placed(container, &left));
    println!("placed without cpu {victim} after {took:?}");
    fs::write(&online, "1").unwrap();
    wait_until("placed with it", LONG, || {
        is_placed(container, &[0, 1, 2, 3, 4, 5, 6, 7])
    });
}

/// The view of an agent in a pod of another QoS class, in whose cgroup namespace its own cgroup is
/// the root of all paths.
fn view_from_another_cgroup_namespace(pod: &Path) {
    let agent = Path::new(CGROUPS).join(format!("kubepods/besteffort/pod{OTHER_UID}/{CONTAINER}"));
    fs::create_dir_all(&agent).unwrap();
    enter(&agent);
    let seen = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWCGROUP).unwrap();
        let host = HostRoot::live();
        let kubepods = Kubepods::find(&host).unwrap();
        let container = kubepods
            .container(UID, &format!("containerd://{CONTAINER}"))
            .unwrap();
        let members = read_members(&host, &container).unwrap();
        let root = members.root.unwrap();
        let path = fs::read_to_string(format!("/proc/{}/cgroup", root.0)).unwrap();
        (container.cgroup.directory, members.processes.len(), path)
    });
    let (directory, processes, path) = seen.join().unwrap();
    enter(Path::new(CGROUPS));
    println!("{processes} processes, whose cgroup is {}", path.trim());
    assert!(
        path.starts_with("0::/../"),
        "the kernel tells it relative to the reader: {path}"
    );
    assert_eq!(directory, pod.join(CONTAINER));
    assert!(processes >= 4, "run, front, two workers");
}

/// Set for the process that runs in another pid namespace, in which it is also the first process.
const OBSERVER_ENV: &str = "ALBACORE_GUEST_LOOKS";

/// The view of an agent without the host's pid namespace that has the node's procfs mounted.
fn view_from_another_pid_namespace() {
    std::os::unix::fs::symlink("/proc", "/tmp/proc").unwrap();
    let observer = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWPID).unwrap();
        let mut command = Command::new("/proc/self/exe");
        command.args(["--nocapture", "--test-threads=1"]);
        command.env(OBSERVER_ENV, "yes").status().unwrap()
    });
    assert!(observer.join().unwrap().success());
}

/// Body of that process.
fn observe_as_agent() {
    let host = HostRoot {
        proc: "/tmp/proc".into(),
        ..HostRoot::live()
    };
    let kubepods = Kubepods::find(&host).unwrap();
    let container = kubepods.container(UID, CONTAINER).unwrap();
    let listed = container.cgroup.read_processes().unwrap();
    println!("cgroup.procs lists {listed:?}");
    assert_eq!(listed, [Pid(0)], "the kernel numbers none of them here");
    let members = read_members(&host, &container).unwrap();
    println!("seen all the same: {members:?}");
    assert!(members.processes.len() >= 4, "run, front, two workers");
    let root = members.root.unwrap();
    let found = CgroupSubtree::of(&host, &container.cgroup, root).unwrap();
    assert!(found.unwrap().contains(&host, root, Tid(root.0)).unwrap());
}

/// The enforcement in the file is edited during the run: masks are given back once.
fn switch_to_observe(container: &Path) {
    let text = fs::read_to_string("/fraud.yaml").unwrap();
    fs::write(
        "/fraud.yaml",
        format!("{text}  placement: {{enforcement: Observe}}\n"),
    )
    .unwrap();
    let is_free = || masks(container).values().all(|mask| mask == "0-7");
    wait_until("given back", LONG, is_free);
    std::thread::sleep(Duration::from_secs(2));
    assert!(is_free(), "and not written again");
    fs::write("/fraud.yaml", text).unwrap();
    wait_until("placed again", LONG, || {
        is_placed(container, &[0, 1, 2, 3, 4, 5, 6, 7])
    });
}

pub(crate) fn stop_placer(placer: &mut Child) {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(placer.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert!(placer.wait().unwrap().success());
}
