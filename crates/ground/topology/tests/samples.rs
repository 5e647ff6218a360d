//! Saved samples of `/sys/devices/system` (tests/data/sysfs) and the expected machines.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may fail loudly; its helpers too"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use albacore_topology::{
    CAPACITY_MAX, Cpu, CpuSet, Distances, SysfsError, SysfsFiles, Topology, TopologyError,
    parse_sysfs, sysfs_paths,
};

fn sample_dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../tests/data/sysfs")
        .join(name)
}

/// All files of the sample, by relative path.
fn sample(name: &str) -> SysfsFiles {
    fn walk(root: &Path, dir: &Path, files: &mut SysfsFiles) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(root, &path, files);
            } else {
                let relative = path
                    .strip_prefix(root)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned();
                files.insert(relative, fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut files = BTreeMap::new();
    walk(&sample_dir(name), &sample_dir(name), &mut files);
    files
}

fn machine(name: &str) -> Topology {
    parse_sysfs(&sample(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The sets of cpus with equal domain number as cpu lists, in order of the numbers.
fn groups(machine: &Topology, field: impl Fn(&Cpu) -> u32) -> String {
    let mut groups: BTreeMap<u32, CpuSet> = BTreeMap::new();
    for cpu in machine.cpus() {
        groups.entry(field(cpu)).or_default().insert(cpu.id);
    }
    let dense: Vec<u32> = (0..groups.len() as u32).collect();
    assert_eq!(
        groups.keys().copied().collect::<Vec<_>>(),
        dense,
        "numbers are dense from 0"
    );
    groups
        .values()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(" | ")
}

fn slow(machine: &Topology) -> String {
    let slow = machine
        .cpus()
        .iter()
        .filter(|cpu| cpu.capacity < CAPACITY_MAX);
    slow.map(|cpu| cpu.id).collect::<CpuSet>().to_string()
}

fn distance(machine: &Topology, a: usize, b: usize) -> u32 {
    Topology::distance(
        &machine.cpus()[a],
        &machine.cpus()[b],
        &Distances::default(),
    )
}

#[test]
fn a_server_of_two_packages_has_its_siblings_eight_ids_apart() {
    let m = machine("server_2_packages_smt");
    assert_eq!(
        groups(&m, |c| c.core),
        "0,8 | 1,9 | 2,10 | 3,11 | 4,12 | 5,13 | 6,14 | 7,15"
    );
    assert_eq!(groups(&m, |c| c.l2), groups(&m, |c| c.core));
    for field in [|c: &Cpu| c.l3, |c: &Cpu| c.numa, |c: &Cpu| c.package] {
        assert_eq!(groups(&m, field), "0-3,8-11 | 4-7,12-15");
    }
    assert_eq!(
        (distance(&m, 0, 8), distance(&m, 0, 1), distance(&m, 0, 4)),
        (4, 50, 200)
    );
    assert_eq!(slow(&m), "");
}

#[test]
fn a_hybrid_laptop_has_shared_l2_clusters_and_cores_outside_the_l3() {
    let m = machine("laptop_hybrid");
    assert_eq!(
        groups(&m, |c| c.core),
        "0-1 | 2-3 | 4-5 | 6-7 | 8 | 9 | 10 | 11 | 12 | 13"
    );
    assert_eq!(groups(&m, |c| c.l2), "0-1 | 2-3 | 4-5 | 6-7 | 8-11 | 12-13");
    assert_eq!(groups(&m, |c| c.l3), "0-11 | 12-13");
    assert_eq!(slow(&m), "8-13");
    assert_eq!(
        (distance(&m, 8, 9), distance(&m, 7, 8), distance(&m, 11, 12)),
        (10, 50, 100)
    );
}

#[test]
fn a_vm_without_caches_falls_back_to_cores_and_numa_domains() {
    let m = machine("vm_without_caches");
    assert_eq!(groups(&m, |c| c.l2), "0-1 | 2-3");
    assert_eq!(groups(&m, |c| c.l3), "0-3");
}

#[test]
fn offline_cpus_and_holes_in_the_ids_are_no_cpus() {
    let m = machine("server_offline_holes");
    assert_eq!(m.cpuset().to_string(), "0,2,4,8,10-11");
    assert_eq!(groups(&m, |c| c.core), "0 | 2 | 4 | 8 | 10-11");
    assert_eq!(
        groups(&m, |c| c.numa),
        "0,2,4 | 8,10-11",
        "nodes 0 and 3; node 1 has no cpu"
    );
    assert_eq!(groups(&m, |c| c.package), "0,2,4 | 8,10-11");
}

#[test]
fn an_amd_server_has_more_l3_than_numa_domains() {
    let m = machine("server_amd_nps2");
    assert_eq!(
        groups(&m, |c| c.l3),
        "0-1,8-9 | 2-3,10-11 | 4-5,12-13 | 6-7,14-15"
    );
    assert_eq!(groups(&m, |c| c.numa), "0-3,8-11 | 4-7,12-15");
    assert_eq!(groups(&m, |c| c.package), "0-15");
}

#[test]
fn an_arm_machine_has_classes_of_capacity_and_its_cores_by_the_old_file() {
    let m = machine("arm_three_capacities");
    assert_eq!(slow(&m), "0-3", "871 of 1024 is not slow, 286 is");
    assert_eq!(m.core_count(), 8);
}

#[test]
fn core_ids_that_repeat_in_every_package_are_different_cores() {
    let m = machine("ids_only");
    assert_eq!(groups(&m, |c| c.core), "0-1 | 2-3 | 4-5 | 6-7");
    assert_eq!(
        groups(&m, |c| c.l3),
        "0-3 | 4-7",
        "no cache, no numa: the package"
    );
    assert_eq!(
        groups(&m, |c| c.numa),
        "0-3 | 4-7",
        "a node lies in one package"
    );
}

#[test]
fn caches_that_contradict_the_cores_grow_until_they_nest() {
    let m = machine("vm_contradicting_caches");
    assert_eq!(groups(&m, |c| c.core), "0-1 | 2-3");
    assert_eq!(groups(&m, |c| c.l2), "0-1 | 2-3");
    assert_eq!(groups(&m, |c| c.l3), "0-1 | 2-3");
}

#[test]
fn a_copy_of_a_firecracker_vm_has_two_cores_under_one_l3() {
    let m = machine("vm_firecracker_2");
    assert_eq!(groups(&m, |c| c.core), "0 | 1");
    assert_eq!(groups(&m, |c| c.l2), "0 | 1");
    assert_eq!(groups(&m, |c| c.l3), "0-1");
}

/// Two packages with two NUMA nodes of two cores each; one L3 per package.
fn sub_numa_clusters() -> SysfsFiles {
    let mut files = SysfsFiles::from([
        ("cpu/online".to_owned(), "0-7\n".to_owned()),
        ("node/online".to_owned(), "0-4\n".to_owned()),
        ("node/node4/cpulist".to_owned(), "\n".to_owned()),
    ]);
    for node in 0..4 {
        let package = node / 2;
        let row = |to: usize| match to {
            4 => 17,
            _ if to == node => 10,
            _ if to / 2 == package => 12,
            _ => 32,
        };
        let row: Vec<String> = (0..5).map(|to| row(to).to_string()).collect();
        files.insert(format!("node/node{node}/distance"), row.join(" ") + "\n");
        files.insert(
            format!("node/node{node}/cpulist"),
            format!("{}-{}\n", 2 * node, 2 * node + 1),
        );
    }
    for cpu in 0..8 {
        let first = cpu / 4 * 4;
        for (file, text) in [
            ("topology/physical_package_id", (cpu / 4).to_string()),
            ("cache/index3/level", "3".to_owned()),
            (
                "cache/index3/shared_cpu_list",
                format!("{first}-{}", first + 3),
            ),
        ] {
            files.insert(format!("cpu/cpu{cpu}/{file}"), text + "\n");
        }
    }
    files
}

#[test]
fn an_l3_over_several_nodes_is_cut_at_the_nodes() {
    let m = parse_sysfs(&sub_numa_clusters()).unwrap();
    assert_eq!(groups(&m, |c| c.l3), "0-1 | 2-3 | 4-5 | 6-7");
    assert_eq!(groups(&m, |c| c.numa), groups(&m, |c| c.l3));
    assert_eq!(groups(&m, |c| c.package), "0-3 | 4-7");
}

#[test]
fn distances_of_nodes_scale_those_of_the_machine() {
    let m = parse_sysfs(&sub_numa_clusters()).unwrap();
    let expected = Distances {
        package: 120,
        machine: 320,
        ..Distances::default()
    };
    assert_eq!((m.distances(), m.node_count()), (expected, 4));
    let part = m.restrict(&"0-3".parse().unwrap()).unwrap();
    assert_eq!(part.distances(), expected, "a container keeps them");
    let mut without = sub_numa_clusters();
    without.remove("node/node2/distance");
    let m = parse_sysfs(&without).unwrap();
    assert!(!m.has_node_distances());
    assert_eq!(m.distances(), Distances::default());
}

#[test]
fn rows_of_distances_are_positive_numbers_of_the_nodes_that_are_online() {
    let with = |text: &str| {
        let mut files = sub_numa_clusters();
        files.insert("node/node1/distance".to_owned(), text.to_owned());
        parse_sysfs(&files)
    };
    for text in ["10 12 0 32 17", "10 -12 32 32 17", "10 12 x 32 17"] {
        let error = with(text).unwrap_err().to_string();
        assert!(error.contains("node/node1/distance"), "{error}");
    }
    for text in ["10 12 32 32", "10 12 32 32 17 17", ""] {
        assert!(!with(text).unwrap().has_node_distances(), "{text}");
    }
}

#[test]
fn clusters_share_an_l2_and_dies_an_l3_where_no_cache_is_shown() {
    let mut files = SysfsFiles::from([("cpu/online".to_owned(), "0-7".to_owned())]);
    for cpu in 0..8 {
        let cluster = cpu / 2 * 2;
        for (file, text) in [
            ("physical_package_id", "0".to_owned()),
            ("die_id", (cpu / 4).to_string()),
            ("cluster_cpus_list", format!("{cluster}-{}", cluster + 1)),
        ] {
            files.insert(format!("cpu/cpu{cpu}/topology/{file}"), text);
        }
    }
    let m = parse_sysfs(&files).unwrap();
    assert_eq!(groups(&m, |c| c.l2), "0-1 | 2-3 | 4-5 | 6-7");
    assert_eq!(groups(&m, |c| c.l3), "0-3 | 4-7");
    assert_eq!(groups(&m, |c| c.numa), "0-7");
}

#[test]
fn the_listed_paths_are_all_that_is_looked_at() {
    for entry in fs::read_dir(sample_dir("")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let all = sample(&name);
        let set = |path: &str| {
            all.get(path)
                .map_or("", |t| t.as_str())
                .parse::<CpuSet>()
                .unwrap()
        };
        let mut listed = SysfsFiles::new();
        for path in sysfs_paths(&set("cpu/online"), &set("node/online")) {
            if let Some(text) = all.get(&path) {
                listed.insert(path, text.clone());
            }
        }
        assert_eq!(parse_sysfs(&listed), parse_sysfs(&all), "{name}");
    }
}

#[test]
fn without_topology_files_every_cpu_is_a_core() {
    let m = parse_sysfs(&SysfsFiles::from([("cpu/online".into(), "0-1,5\n".into())])).unwrap();
    assert_eq!(groups(&m, |c| c.core), "0 | 1 | 5");
    assert_eq!(groups(&m, |c| c.l3), "0-1,5");
}

#[test]
fn a_container_sees_its_cpuset_only() {
    let m = machine("server_2_packages_smt");
    let half = m.restrict(&"0-1,8,99".parse().unwrap()).unwrap();
    assert_eq!(
        (half.cpuset().to_string(), half.core_count()),
        ("0-1,8".into(), 2)
    );
    assert_eq!(
        m.restrict(&"16-31".parse().unwrap()),
        Err(TopologyError::NoCpus)
    );
}

/// An error and its source, in one line.
fn with_source(error: &dyn std::error::Error) -> String {
    let source = error.source().map(ToString::to_string).unwrap_or_default();
    format!("{error}: {source}")
}

#[test]
fn wrong_files_are_named() {
    let broken = |path: &str, text: &str| {
        let mut files = sample("server_2_packages_smt");
        files.insert(path.to_owned(), text.to_owned());
        with_source(&parse_sysfs(&files).unwrap_err())
    };
    for (path, text, word) in [
        ("cpu/online", "0-x", "not a cpu"),
        ("cpu/online", "\n", "no online cpu"),
        (
            "cpu/cpu3/topology/core_cpus_list",
            "",
            "does not contain cpu 3",
        ),
        (
            "cpu/cpu3/cache/index1/shared_cpu_list",
            "0-2",
            "does not contain cpu 3",
        ),
        ("cpu/cpu3/cache/index0/level", "two", "not a number"),
        ("cpu/cpu3/topology/physical_package_id", "", "not a number"),
        ("node/node1/cpulist", "9-4", "backwards"),
        ("cpu_atom/cpus", "99999", "largest cpu id is 8191"),
    ] {
        let error = broken(path, text);
        assert!(
            error.contains(path) && error.contains(word),
            "{path} {text:?}: {error}"
        );
    }
    assert_eq!(parse_sysfs(&SysfsFiles::new()), Err(SysfsError::NoOnline));
}
