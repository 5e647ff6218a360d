//! Synthetic strings: valid ones, and positions of errors.

use super::{SyntheticError, parse_synthetic};
use crate::{Cpu, Topology};

fn parse(text: &str) -> Topology {
    parse_synthetic(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// One domain number of every cpu, in order of ids.
fn column(machine: &Topology, field: impl Fn(&Cpu) -> u32) -> Vec<u32> {
    machine.cpus().iter().map(field).collect()
}

#[test]
fn the_machine_of_the_contract_has_16_cores_of_2() {
    let machine = parse("pack:1 l3:1 core:16 pu:2");
    assert_eq!((machine.cpus().len(), machine.core_count()), (32, 16));
    assert_eq!(
        column(&machine, |c| c.core),
        (0..32).map(|i| i / 2).collect::<Vec<_>>()
    );
    assert_eq!(column(&machine, |c| c.l2), column(&machine, |c| c.core));
    assert!(
        machine
            .cpus()
            .iter()
            .all(|c| (c.l3, c.numa, c.package) == (0, 0, 0))
    );
}

#[test]
fn every_level_and_spelling_lands_in_its_field() {
    for text in [
        "pack:2 numa:1 l3:2 l2:2 l1:1 core:1 pu:2",
        "Package:2 NUMANode:1 L3Cache:2 L2Cache:2 L1dCache:1 L1iCache:1 Core:1 PU:2",
        "machine:1 socket:2 node:1 die:1 group:1 l4:1 l3u:2 l2:2 core:1 pu:2",
        " pack:2(memory=1GB) [numa(memory=2GB)] l3:2(size=32MB) l2:2\tcore:1 pu:2\n",
        "pack:2[numa] l3:2 l2:2 core:1 pu:2",
    ] {
        let machine = parse(text);
        assert_eq!(
            column(&machine, |c| c.package),
            [[0; 8], [1; 8]].concat(),
            "{text}"
        );
        assert_eq!(
            column(&machine, |c| c.numa),
            [[0; 8], [1; 8]].concat(),
            "{text}"
        );
        assert_eq!(
            column(&machine, |c| c.l3),
            (0..16).map(|i| i / 4).collect::<Vec<_>>()
        );
        assert_eq!(
            column(&machine, |c| c.l2),
            (0..16).map(|i| i / 2).collect::<Vec<_>>()
        );
        assert_eq!(column(&machine, |c| c.core), column(&machine, |c| c.l2));
    }
}

#[test]
fn levels_that_are_not_given_fall_back() {
    let machine = parse("pu:3");
    assert_eq!(column(&machine, |c| c.core), [0, 1, 2]);
    assert_eq!(column(&machine, |c| c.l3), [0, 0, 0]);
    assert_eq!(column(&parse("pack:2 core:2 pu:1"), |c| c.l3), [0, 0, 1, 1]);
    assert_eq!(
        column(&parse("pack:1 numa:2 core:2 pu:1"), |c| c.l3),
        [0, 0, 1, 1]
    );
    assert_eq!(
        column(&parse("numa:2 pack:2 core:1 pu:1"), |c| c.l3),
        [0, 1, 2, 3]
    );
    assert_eq!(column(&parse("l2:2 core:2 pu:1"), |c| c.l2), [0, 0, 1, 1]);
}

#[test]
fn a_list_of_indexes_renumbers_the_cpus_and_their_domains() {
    let machine = parse("pack:2 core:2 pu:2(indexes=4,5,2,3,0,1,6,7)");
    assert_eq!(column(&machine, |c| c.core), [0, 0, 1, 1, 2, 2, 3, 3]);
    assert_eq!(column(&machine, |c| c.package), [0, 0, 1, 1, 1, 1, 0, 0]);
}

#[test]
fn the_error_of_an_unknown_level_lists_exactly_the_accepted_ones() {
    let error = parse_synthetic("l9:1 pu:1").unwrap_err().to_string();
    let (_, names) = error.split_once("write ").unwrap();
    let (names, _) = names.split_once(" (").unwrap();
    let (first, last) = names.split_once(" or ").unwrap();
    let names: Vec<&str> = first.split(", ").chain([last]).collect();
    for name in &names {
        assert!(super::kind_of(name).is_some(), "{name}");
    }
    for accepted in ["machine", "die", "group", "l5", "l4", "l3", "l2", "l1"] {
        assert!(names.contains(&accepted), "{accepted}: {error}");
    }
}

#[test]
fn wrong_strings_are_refused_with_the_position() {
    for (text, position, word) in [
        ("", 1, "innermost"),
        ("pack:1 core:4", 14, "pu:1"),
        ("pack:1 l9:2 pu:1", 8, "\"l9\" is not a level"),
        ("pack:1 llama:2 pu:1", 8, "\"llama\""),
        ("4 2 1", 1, "\"4\" is not a level"),
        ("pack:1 core pu:1", 12, "core:N"),
        ("pack:1 core: pu:1", 13, "not a count"),
        ("pack:1 core:0 pu:1", 13, "not a count"),
        ("pack:1 core:2x pu:1", 13, "\"2x\""),
        ("pack:1 core:-2 pu:1", 13, "not a count"),
        ("pack:1 core:2,pu:1", 14, "expected a space"),
        ("pack:1 pu:2 core:2", 13, "inside a pu"),
        ("pack:1 pack:2 pu:1", 8, "duplicate level package"),
        ("core:9000 pu:1", 1, "more than 8192"),
        ("core:99999999999 pu:99999999999", 1, "more than 8192"),
        ("pack:1 core:2(size=1 pu:1", 14, "never closed"),
        ("pack:1 [l3] core:2 pu:1", 9, "only numa"),
        ("pack:1 [numa core:2 pu:1", 13, "closing ]"),
        ("core:2 pu:2(indexes=2*2:1*2)", 21, "indexes=2*2:1*2"),
        (
            "core:2 pu:2(indexes=0,1)",
            8,
            "names 2 cpus, but there are 4",
        ),
        ("l1:1 core:2 pu:1", 1, "one L1"),
        ("core:2 machine:1 pu:1", 8, "must be the first"),
        ("pack:1 ä:2 pu:1", 8, "\"ä:2\""),
    ] {
        let error = parse_synthetic(text).expect_err(text);
        let SyntheticError::At {
            position: found,
            problem,
        } = &error
        else {
            panic!("{text}: {error}");
        };
        assert_eq!(*found, position, "{text}: {error}");
        assert!(problem.contains(word), "{text}: {error}");
    }
}

#[test]
fn indexes_that_repeat_a_cpu_and_caches_inside_cores_are_refused() {
    for (text, word) in [
        ("core:2 pu:1(indexes=1,1)", "cpu 1 appears twice"),
        ("core:2 l2:2 pu:1", "share a core but not a L2"),
    ] {
        let SyntheticError::Machine(error) = parse_synthetic(text).expect_err(text) else {
            panic!("{text}");
        };
        let error = error.to_string();
        assert!(error.contains(word), "{text}: {error}");
    }
}
