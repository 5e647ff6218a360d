//! Invariants of every parsed machine: parsers never panic, domains are numbered densely, distances
//! form a tree.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may fail loudly; its helpers too"
)]

use albacore_topology::{
    Cpu, CpuSet, DistanceOverrides, Distances, SysfsFiles, Topology, parse_synthetic, parse_sysfs,
};
use proptest::prelude::*;

/// Asserts the invariants of every machine.
fn assert_lawful(machine: &Topology) {
    let fields: [fn(&Cpu) -> u32; 5] = [|c| c.core, |c| c.l2, |c| c.l3, |c| c.numa, |c| c.package];
    for field in fields {
        let mut next = 0;
        for cpu in machine.cpus() {
            assert!(
                field(cpu) <= next,
                "numbers rise from 0 in order of the lowest cpu"
            );
            next = next.max(field(cpu) + 1);
        }
    }
    let distances = machine.distances();
    let distance = |a: &Cpu, b: &Cpu| Topology::distance(a, b, &distances);
    let some: Vec<&Cpu> = machine
        .cpus()
        .iter()
        .step_by(1 + machine.cpus().len() / 12)
        .collect();
    for a in &some {
        for b in &some {
            assert_eq!(distance(a, b), distance(b, a));
            for c in &some {
                assert!(
                    distance(a, c) <= distance(a, b).max(distance(b, c)),
                    "not a tree"
                );
            }
        }
    }
}

/// A machine with two packages of two cores of two cpus each, with all files.
fn whole() -> SysfsFiles {
    let mut files = SysfsFiles::from([
        ("cpu/online".to_owned(), "0-7\n".to_owned()),
        ("node/online".to_owned(), "0-1\n".to_owned()),
        ("node/node0/cpulist".to_owned(), "0-3\n".to_owned()),
        ("node/node1/cpulist".to_owned(), "4-7\n".to_owned()),
        ("node/node0/distance".to_owned(), "10 21\n".to_owned()),
        ("node/node1/distance".to_owned(), "21 10\n".to_owned()),
        ("cpu_atom/cpus".to_owned(), "6-7\n".to_owned()),
    ]);
    for cpu in 0..8 {
        let (core, package) = (cpu / 2 * 2, cpu / 4 * 4);
        for (file, text) in [
            ("cpu_capacity", "1024".to_owned()),
            ("topology/core_cpus_list", format!("{core}-{}", core + 1)),
            (
                "topology/thread_siblings_list",
                format!("{core}-{}", core + 1),
            ),
            ("topology/core_id", (core / 2).to_string()),
            ("topology/physical_package_id", (package / 4).to_string()),
            ("cache/index0/level", "2".to_owned()),
            ("cache/index0/type", "Unified".to_owned()),
            (
                "cache/index0/shared_cpu_list",
                format!("{core}-{}", core + 1),
            ),
            ("cache/index1/level", "3".to_owned()),
            ("cache/index1/type", "Unified".to_owned()),
            (
                "cache/index1/shared_cpu_list",
                format!("{package}-{}", package + 3),
            ),
        ] {
            files.insert(format!("cpu/cpu{cpu}/{file}"), text + "\n");
        }
    }
    files
}

proptest! {
    #[test]
    fn no_text_makes_the_synthetic_parser_panic(text in any::<String>()) {
        let _ = parse_synthetic(&text);
    }

    #[test]
    fn texts_that_look_like_levels_give_lawful_machines_or_errors(
        text in "((pack|numa|l3|L2|l1|core|die|group|\\[numa\\]|pu)(:[0-9]{1,2})?\
                (\\([a-z=0-9,]{0,12}\\))? ?){0,6}(pu:[1-4])?"
    ) {
        if let Ok(machine) = parse_synthetic(&text) {
            assert_lawful(&machine);
        }
    }

    #[test]
    fn a_whole_synthetic_machine_has_the_product_of_its_counts(
        (package, numa, l3, l2, core, pu) in (1u32..4, 1u32..3, 1u32..4, 1u32..3, 1u32..5, 1u32..4)
    ) {
        let text = format!("pack:{package} numa:{numa} l3:{l3} l2:{l2} core:{core} pu:{pu}");
        let machine = parse_synthetic(&text).unwrap();
        assert_lawful(&machine);
        prop_assert_eq!(machine.core_count() as u32, package * numa * l3 * l2 * core);
        prop_assert_eq!(machine.cpus().len() as u32, package * numa * l3 * l2 * core * pu);
    }

    #[test]
    fn overrides_of_valid_distances_are_valid_and_hold_what_is_given(
        own in prop::array::uniform7(0..400u32),
        given in prop::array::uniform6(prop::option::of(0..400u32)),
    ) {
        let mut own = own;
        own.sort_unstable();
        let [cpu, l1, l2, l3, numa, package, machine] = own;
        let own = Distances { cpu, l1, l2, l3, numa, package, machine };
        let [l1, l2, l3, numa, package, machine] = given;
        let overrides = DistanceOverrides { l1, l2, l3, numa, package, machine };
        let result = overrides.apply_to(own);
        if overrides.validate().is_ok() {
            prop_assert_eq!(result.validate(), Ok(()));
        }
        let levels = [
            (l1, result.l1),
            (l2, result.l2),
            (l3, result.l3),
            (numa, result.numa),
            (package, result.package),
            (machine, result.machine),
        ];
        for (given, result) in levels {
            prop_assert_eq!(given.unwrap_or(result), result);
        }
    }

    #[test]
    fn a_sysfs_with_files_lost_or_changed_gives_a_lawful_machine_or_an_error(
        changes in prop::collection::vec(
            (any::<prop::sample::Index>(), prop_oneof![
                Just(None),
                "[0-9]{1,2}(-[0-9]{1,2})?(,[0-9]{1,2}){0,2}".prop_map(Some),
                "(Data|Instruction|-1|65535| |x)".prop_map(Some),
            ]),
            0..20,
        )
    ) {
        let mut files = whole();
        let paths: Vec<String> = files.keys().cloned().collect();
        for (path, text) in changes {
            let path = path.get(&paths);
            match text {
                Some(text) => files.insert(path.clone(), text),
                None => files.remove(path),
            };
        }
        if let Ok(machine) = parse_sysfs(&files) {
            assert_lawful(&machine);
            prop_assert_eq!(machine.cpuset(), files["cpu/online"].parse::<CpuSet>().unwrap());
        }
    }
}
