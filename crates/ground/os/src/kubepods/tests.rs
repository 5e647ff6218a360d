//! Containers on recorded nodes, and forged paths.

use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::samples::{ContainerSample, SAMPLES};
use super::*;
use crate::Pid;

const STAT: &str =
    "{pid} (server) S {parent} 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 0 0 0";

struct Node {
    _keep: tempfile::TempDir,
    host: HostRoot,
    mount: PathBuf,
}

impl Node {
    fn new(v1: Option<&str>) -> Self {
        let keep = tempfile::tempdir().unwrap();
        let host = HostRoot::recorded(keep.path());
        let mount = v1.map_or(host.cgroup.clone(), |name| host.cgroup.join(name));
        fs::create_dir_all(&mount).unwrap();
        fs::write(mount.join("cgroup.procs"), "1\n").unwrap();
        fs::create_dir_all(host.proc.join("1")).unwrap();
        let node = Self {
            _keep: keep,
            host,
            mount,
        };
        let online = node.host.sys.join("devices/system/cpu");
        fs::create_dir_all(&online).unwrap();
        fs::write(online.join("online"), "0-7\n").unwrap();
        // Other cgroups of a node.
        for other in [
            "system.slice/containerd.service",
            "init.scope",
            "user.slice",
        ] {
            node.group(other, "");
        }
        node
    }

    fn of(sample: &ContainerSample) -> Self {
        Self::new(sample.v1)
    }

    /// A cgroup with these processes.
    fn group(&self, path: &str, procs: &str) -> PathBuf {
        let directory = self.mount.join(path);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("cgroup.procs"), procs).unwrap();
        directory
    }

    fn cpuset(&self, path: &str, cpus: &str) {
        let file = match self.mount == self.host.cgroup {
            true => "cpuset.cpus.effective",
            false => "cpuset.effective_cpus",
        };
        fs::write(self.mount.join(path).join(file), cpus).unwrap();
    }

    fn process(&self, pid: i32, parent: i32, start: u64, cgroup: &str) {
        let directory = self.host.proc.join(pid.to_string());
        fs::create_dir_all(&directory).unwrap();
        let stat = STAT
            .replace("{pid}", &pid.to_string())
            .replace("{parent}", &parent.to_string())
            .replace("{start}", &start.to_string());
        fs::write(directory.join("stat"), stat).unwrap();
        fs::write(directory.join("cgroup"), format!("{cgroup}\n")).unwrap();
        fs::write(directory.join("comm"), "server\n").unwrap();
    }

    fn find(&self, pod: &str, container: &str) -> Result<Container, KubepodsError> {
        Kubepods::find(&self.host)?.container(pod, container)
    }
}

fn join(path: &str, inner: &str) -> String {
    format!("{path}/{inner}").trim_end_matches('/').to_owned()
}

#[test]
fn containers_of_all_samples_are_found_with_their_processes() {
    for sample in &SAMPLES {
        let node = Node::of(sample);
        let directory = node.group(sample.path, "");
        node.group(&join(sample.path, sample.inner), "705\n700\n701\n");
        // The parent of the root process is the runtime's shim, outside the container; an exec
        // starts later.
        for (pid, parent, start) in [(700, 90, 5000), (701, 700, 5001), (705, 90, 9000)] {
            node.process(pid, parent, start, "0::/");
        }
        let found = node.find(sample.pod, sample.container).expect(sample.node);
        assert_eq!(found.cgroup.directory, directory, "{}", sample.node);
        let members = read_members(&node.host, &found).unwrap();
        let expected = Members {
            processes: vec![Pid(700), Pid(701), Pid(705)],
            root: Some(Pid(700)),
            foreign_processes: 1,
        };
        assert_eq!(members, expected, "{}", sample.node);
        // The same ids in other pods and containers do not match.
        let other = sample.container.replace('a', "b");
        assert!(node.find(sample.pod, &other).is_err(), "{}", sample.node);
        let other = format!("f{}", &sample.pod[1..]);
        assert!(
            node.find(&other, sample.container).is_err(),
            "{}",
            sample.node
        );
    }
}

#[test]
fn processes_of_another_pid_namespace_are_found_by_their_cgroup_file() {
    for sample in &SAMPLES {
        let node = Node::of(sample);
        node.group(sample.path, "");
        // v2 lists processes as 0, v1 lists none.
        let listed = match node.mount == node.host.cgroup {
            true => "0\n0\n",
            false => "",
        };
        node.group(&join(sample.path, sample.inner), listed);
        node.process(700, 90, 5000, sample.seen);
        node.process(701, 700, 5001, sample.seen);
        let (other_pod, other) = ("ffffffff-0000-4000-8000-00000000beef", "f".repeat(64));
        node.process(702, 90, 4000, &sample.seen.replace(sample.pod, other_pod));
        let id = sample.container.split_once("://").unwrap().1;
        node.process(703, 90, 4000, &sample.seen.replace(id, &other));
        // A nested container created inside another one.
        let inside = sample
            .seen
            .replacen(id, &format!("{other}/pod{}/{id}", sample.pod), 1);
        node.process(704, 90, 4000, &inside);
        node.process(705, 90, 4000, "0::/system.slice/containerd.service");
        let found = node.find(sample.pod, sample.container).expect(sample.node);
        let members = read_members(&node.host, &found).unwrap();
        let mut expected = vec![Pid(700), Pid(701)];
        if !sample.seen.contains(sample.pod) {
            // The systemd form has no hyphens, so 702 is not replaced by another pod here.
            expected.insert(0, Pid(702));
        }
        assert_eq!(members.processes, expected, "{}", sample.node);
    }
}

const POD: &str = "03f3f104-3215-44f2-9686-d4dd1f05a7ed";
const ID: &str = "09d185410c4e25236cc24717f881589bb0978b24eafd101624e627a4dd8d3439";

#[test]
fn a_symbolic_link_is_no_cgroup_and_leads_nowhere() {
    let node = Node::new(None);
    let real = node.group(&format!("victim/{ID}"), "1\n");
    let pod = node.group(&format!("kubepods/burstable/pod{POD}"), "");
    symlink(&real, pod.join(ID)).unwrap();
    assert!(matches!(
        node.find(POD, ID),
        Err(KubepodsError::NotFound { .. })
    ));
    // Likewise for a parent directory.
    let besteffort = node.mount.join("kubepods/besteffort");
    node.group(&format!("elsewhere/pod{POD}/{ID}"), "1\n");
    symlink(node.mount.join("elsewhere"), besteffort).unwrap();
    assert!(matches!(
        node.find(POD, ID),
        Err(KubepodsError::NotFound { .. })
    ));
    let linked = Node::new(None);
    linked.group(&format!("elsewhere/burstable/pod{POD}/{ID}"), "1\n");
    symlink(
        linked.mount.join("elsewhere"),
        linked.mount.join("kubepods"),
    )
    .unwrap();
    assert!(matches!(
        linked.find(POD, ID),
        Err(KubepodsError::NoKubelet { .. })
    ));
}

#[test]
fn the_highest_kubelet_wins_and_two_claims_on_one_height_are_refused() {
    let node = Node::new(None);
    let evil = format!("kubepods/besteffort/pod{POD}/{ID}");
    node.group(
        &format!("kubepods/burstable/podffff/{}/{evil}", "e".repeat(64)),
        "7\n",
    );
    assert!(matches!(
        node.find(POD, ID),
        Err(KubepodsError::NotFound { .. })
    ));
    let right = node.group(&format!("kubepods/burstable/pod{POD}/{ID}"), "8\n");
    assert_eq!(node.find(POD, ID).unwrap().cgroup.directory, right);
    node.group(&evil, "9\n");
    assert!(matches!(
        node.find(POD, ID),
        Err(KubepodsError::Ambiguous { .. })
    ));
}

#[test]
fn isolation_depends_on_the_cpusets_of_other_containers() {
    let node = Node::new(Some("cpuset"));
    let path = |n: usize| {
        format!(
            "kubepods/burstable/pod{n}{n}{n}/{}",
            n.to_string().repeat(64)
        )
    };
    for n in 1..=4 {
        node.group(&path(n), &format!("{n}0\n{n}1\n"));
    }
    let kubepods = Kubepods::find(&node.host).unwrap();
    assert_eq!(kubepods.containers().unwrap().len(), 4);
    let level = |cpusets: [&str; 4]| {
        for (i, cpus) in cpusets.iter().enumerate() {
            node.cpuset(&path(i + 1), cpus);
        }
        let own = kubepods.container("111", &"1".repeat(64)).unwrap().cgroup;
        let neighbors = Neighbors::read(&node.host, &kubepods).unwrap();
        neighbors.isolation(&own.directory).unwrap()
    };
    assert_eq!(level(["0-7", "0-7", "0-7", "0-7"]), CpuIsolation::None);
    assert_eq!(
        level(["0-3", "0-3", "4-7", "0-3"]),
        CpuIsolation::SharedPool
    );
    assert_eq!(level(["0-3", "4-7", "4-7", "4-5"]), CpuIsolation::Exclusive);
    // Sandboxes and dead containers have all cpus and are ignored.
    node.group(&path(2), "20\n");
    node.process(20, 1, 1, "0::/");
    fs::write(node.host.proc.join("20/comm"), "pause\n").unwrap();
    node.group(&path(3), "");
    assert_eq!(level(["0-3", "0-7", "0-7", "4-5"]), CpuIsolation::Exclusive);
    // In another PID namespace, no container shows processes: all of them count.
    (1..=4).for_each(|n| drop(node.group(&path(n), "")));
    assert_eq!(
        level(["0-3", "4-7", "0-7", "4-5"]),
        CpuIsolation::SharedPool
    );
}

/// Paths similar to the correct one: its components, components of others, and their separators.
fn near() -> impl Strategy<Value = String> {
    let parts = [
        "kubepods",
        "kubepods.slice",
        "burstable",
        "besteffort",
        "kubepods-burstable.slice",
        "..",
        "",
        "system.slice",
        "container",
        "podffff",
        "init.scope",
        "kubelet.slice",
        "kubelet-kubepods.slice",
    ];
    let own = [
        format!("pod{POD}"),
        format!("kubepods-burstable-pod{}.slice", POD.replace('-', "_")),
        format!("kubepods-pod{}.slice", POD.replace('-', "_")),
        ID.to_owned(),
        format!("cri-containerd-{ID}.scope"),
        format!("crio-conmon-{ID}.scope"),
        format!("{}{ID}", &ID[..4]),
        format!("pod{POD}x"),
    ];
    let all: Vec<String> = parts.iter().map(|p| (*p).to_owned()).chain(own).collect();
    prop::collection::vec(prop::sample::select(all), 1..7).prop_map(|parts| parts.join("/"))
}

/// The three positions and two forms of the container's path, stated independently.
fn is_right(path: &str) -> bool {
    let slice = POD.replace('-', "_");
    let ids = [ID.to_owned(), format!("cri-containerd-{ID}.scope")];
    let pods = [
        format!("kubepods/pod{POD}"),
        format!("kubepods/burstable/pod{POD}"),
        format!("kubepods/besteffort/pod{POD}"),
        format!("kubepods.slice/kubepods-pod{slice}.slice"),
        format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice"),
        format!("kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{slice}.slice"),
    ];
    pods.iter()
        .any(|pod| ids.iter().any(|id| format!("{pod}/{id}") == path))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_cgroup_elsewhere_is_never_taken_whatever_its_name(path in near()) {
        let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | "..")).collect();
        let path = parts.join("/");
        prop_assume!(!path.is_empty());
        let node = Node::new(None);
        node.group("kubepods/burstable", "");
        node.group(&path, "7\n");
        if let Ok(found) = node.find(POD, ID) {
            let found = found.cgroup.directory.strip_prefix(&node.mount).unwrap().to_owned();
            let found = found.to_str().unwrap();
            prop_assert!(is_right(found), "{found}");
            prop_assert!(path.starts_with(found));
        }
    }

    #[test]
    fn ids_that_could_leave_a_directory_are_refused(pod in "[-a-f0-9./_ ~\\x00]{0,40}", id in "[a-f0-9./:_-]{0,70}") {
        let node = Node::new(None);
        node.group("kubepods", "");
        match node.find(&pod, &id) {
            Err(KubepodsError::BadId { .. } | KubepodsError::NotFound { .. }) => {}
            other => prop_assert!(false, "{other:?}"),
        }
        let is_plain = |s: &str| !s.contains(['/', '.', '_', ' ', '~', '\0']);
        if let Err(KubepodsError::NotFound { .. }) = node.find(&pod, &id) {
            prop_assert!(is_plain(&pod));
            prop_assert!(is_plain(id.split_once("://").map_or(id.as_str(), |(_, id)| id)));
        }
    }

    #[test]
    fn what_proc_tells_of_other_places_is_never_taken_for_the_container(path in near()) {
        let names = ContainerNames::new(POD, ID).unwrap();
        if names.is_in(&format!("/{path}")) {
            let parts: Vec<&str> = path.split('/').filter(|p| !matches!(*p, "" | "..")).collect();
            let is_pod = |p: &&str| {
                **p == format!("pod{POD}") || p.ends_with(&format!("-pod{}.slice", POD.replace('-', "_")))
            };
            let at = parts.iter().position(is_pod).unwrap();
            let containers = [ID.to_owned(), format!("cri-containerd-{ID}.scope")];
            prop_assert!(containers.iter().any(|own| own == parts[at + 1]), "{}", path);
            prop_assert!(parts.iter().filter(|p| is_pod(p)).count() == 1 && !parts.contains(&"podffff"));
        }
    }
}
