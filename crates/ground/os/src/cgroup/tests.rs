//! Cgroups of recorded hosts and of this one.

use std::fs;

use super::*;

/// A host whose process 7 has this `cgroup` file, with cpus 0-7 online and these files below the
/// cgroup mount.
fn host(membership: &str, files: &[(&str, &str)]) -> (tempfile::TempDir, HostRoot) {
    let root = tempfile::tempdir().unwrap();
    let host = HostRoot::recorded(root.path());
    let put = |path: PathBuf, text: &str| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put(host.proc.join("7/cgroup"), membership);
    put(host.sys.join("devices/system/cpu/online"), "0-7\n");
    for (path, text) in files {
        put(host.cgroup.join(path), text);
    }
    (root, host)
}

fn effective(host: &HostRoot) -> (String, PathBuf) {
    let found = find_cgroup(host, Pid(7))
        .unwrap()
        .read_effective_cpuset(host)
        .unwrap();
    (
        found.cpus.to_string(),
        found.source.strip_prefix(&host.cgroup).unwrap().to_owned(),
    )
}

#[test]
fn cpuset_of_a_v2_pod_is_read_from_its_own_effective_file() {
    let path = "kubepods.slice/kubepods-burstable.slice/cri-containerd-5e.scope";
    let file = format!("{path}/cpuset.cpus.effective");
    let (_keep, host) = host(
        &format!("0::/{path}\n"),
        &[(&file, "2-3\n"), ("cpuset.cpus.effective", "0-7\n")],
    );
    assert_eq!(effective(&host), ("2-3".into(), file.into()));
}

#[test]
fn without_the_controller_the_first_ancestor_that_has_it_decides() {
    let (_keep, host) = host(
        "0::/a/b/c\n",
        &[
            ("a/cpuset.cpus.effective", "1,3\n"),
            ("a/b/c/cgroup.procs", ""),
            ("cpuset.cpus.effective", "0-7\n"),
        ],
    );
    assert_eq!(
        effective(&host),
        ("1,3".into(), "a/cpuset.cpus.effective".into())
    );
}

#[test]
fn without_any_cpuset_file_the_online_cpus_hold() {
    let (_keep, host) = host("0::/\n", &[("cgroup.procs", "")]);
    let found = find_cgroup(&host, Pid(7))
        .unwrap()
        .read_effective_cpuset(&host)
        .unwrap();
    assert_eq!(
        (found.cpus.to_string(), found.source.ends_with("cpu/online")),
        ("0-7".into(), true)
    );
}

#[test]
fn the_v1_hierarchy_of_the_controller_wins_over_v2_beside_it() {
    let membership = "9:name=systemd:/x\n3:cpu,cpuset:/docker/5e:ro\n0::/docker/5e\n";
    let (_keep, host) = host(
        membership,
        &[
            ("cpu,cpuset/docker/5e:ro/cpuset.effective_cpus", "4-9\n"),
            ("unified/cgroup.procs", ""),
        ],
    );
    let cgroup = find_cgroup(&host, Pid(7)).unwrap();
    assert_eq!(cgroup.version, CgroupVersion::V1);
    // Cpus 8 and 9 are not online.
    assert_eq!(effective(&host).0, "4-7");
}

#[test]
fn a_cgroup_outside_the_namespace_is_refused_and_not_guessed() {
    let (_keep, host) = host(
        "0::/../../kubepods/x\n",
        &[("cpuset.cpus.effective", "0\n")],
    );
    let error = find_cgroup(&host, Pid(7)).unwrap_err();
    assert!(
        matches!(error, CgroupError::OutsideNamespace { .. }),
        "{error}"
    );
}

#[test]
fn a_cgroup_file_of_nonsense_is_refused() {
    for text in ["", "\n", "0:\n", "1:memory:/x\n", "::/\n"] {
        let (_keep, host) = host(text, &[]);
        assert!(
            matches!(find_cgroup(&host, Pid(7)), Err(CgroupError::None { .. })),
            "{text:?}"
        );
    }
}

#[test]
fn a_cpuset_hierarchy_that_is_not_mounted_is_named() {
    let (_keep, host) = host("3:cpu,cpuset:/docker/5e\n", &[("memory/tasks", "")]);
    let error = find_cgroup(&host, Pid(7)).unwrap_err();
    let mount = host.cgroup.join("cpuset").display().to_string();
    let due = format!("of cgroup v1, which is not mounted at {mount}: mount it there");
    assert!(error.to_string().ends_with(&due), "{error}");
}

#[test]
fn an_empty_effective_cpuset_is_read_as_empty() {
    let (_keep, host) = host("0::/a\n", &[("a/cpuset.cpus.effective", "\n")]);
    assert_eq!(effective(&host).0, "");
}

#[test]
fn the_cpuset_of_this_process_holds_its_mask() {
    let host = HostRoot::live();
    let me = Pid(std::process::id() as i32);
    let cgroup = find_cgroup(&host, me).unwrap();
    let cpuset = cgroup.read_effective_cpuset(&host).unwrap().cpus;
    let mask = crate::read_mask(&host, crate::Tid(me.0)).unwrap();
    assert!(mask.is_subset(&cpuset), "{mask} in {cpuset}");
    assert!(cgroup.ancestors().last().unwrap() == cgroup.mount);
}
