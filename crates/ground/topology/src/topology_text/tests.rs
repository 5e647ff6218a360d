//! Round trips, sizes and rejections of topology texts.

use proptest::prelude::*;

use super::*;
use crate::domains::DisjointSets;
use crate::{CpuId, parse_synthetic};

/// A machine with cpus numbered as Linux does on x86: first the first SMT sibling of each core.
fn smt_last(synthetic: &str) -> Topology {
    let machine = parse_synthetic(synthetic).unwrap();
    let cores = machine.core_count() as u16;
    let (mut seen, mut cpus) = (std::collections::BTreeMap::new(), Vec::new());
    for cpu in machine.cpus() {
        let sibling = seen.entry(cpu.core).or_insert(0_u16);
        let id = CpuId(*sibling * cores + cpu.core as u16);
        *sibling += 1;
        cpus.push(Cpu { id, ..*cpu });
    }
    Topology::new(cpus).unwrap()
}

/// The same machine with permuted cpus and renumbered domains.
fn shuffled(machine: &Topology, seed: u64) -> Topology {
    let count = machine.cpus().len();
    let (mut order, mut state) = ((0..count).collect::<Vec<_>>(), seed | 1);
    for at in (1..count).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        order.swap(at, (state >> 33) as usize % (at + 1));
    }
    let moved = |domain: fn(&Cpu) -> u32| {
        let keys = order.iter().map(|&at| domain(&machine.cpus()[at]));
        DisjointSets::by_key(keys).numbers()
    };
    let (core, l2) = (moved(|c| c.core), moved(|c| c.l2));
    let (l3, numa, package) = (moved(|c| c.l3), moved(|c| c.numa), moved(|c| c.package));
    let cpu = |at: usize| Cpu {
        id: CpuId(at as u16),
        core: core[at],
        l2: l2[at],
        l3: l3[at],
        numa: numa[at],
        package: package[at],
        capacity: machine.cpus()[order[at]].capacity,
    };
    Topology::new((0..count).map(cpu).collect()).unwrap()
}

fn round_trip(machine: &Topology) -> usize {
    let text = topology_text(machine);
    let read = parse_topology_text(&text).unwrap();
    assert_eq!(read, *machine, "{text}");
    assert_eq!(read.hash64(), machine.hash64());
    text.len()
}

#[test]
fn regular_machines_are_short() {
    let epyc = smt_last("pack:2 [numa] l3:8 core:8 pu:2");
    let text = topology_text(&epyc);
    assert_eq!(text, "cpus=0-255 core=0-127x2 l3=0-15*8x2 numa=0-1*64x2");
    let node = parse_synthetic("pack:1 l3:2 core:8 pu:2").unwrap();
    assert_eq!(
        topology_text(&node),
        "cpus=0-31 core=0-15*2 l3=0-1*16 numa=0*32"
    );
    let distances = Distances::default();
    let known = epyc.clone().with_distances(distances);
    assert!(topology_text(&known).ends_with(" distances=1,4,10,50,100,200,200"));
    for machine in [&epyc, &node, &known] {
        assert!(round_trip(machine) < 100);
    }
    round_trip(&parse_synthetic("core:2 pu:1").unwrap());
}

#[test]
fn an_irregular_machine_is_exact_and_a_large_one_may_be_too_long() {
    let regular = smt_last("pack:2 [numa] l3:2 core:8 pu:2");
    let irregular = shuffled(&regular, 7);
    let bytes = round_trip(&irregular);
    assert!((300..TOPOLOGY_TEXT_BYTES_MAX).contains(&bytes), "{bytes}");
    let large = shuffled(&smt_last("pack:2 [numa] l3:8 core:8 pu:2"), 7);
    let text = topology_text(&large);
    let bytes = text.len();
    assert!(bytes > TOPOLOGY_TEXT_BYTES_MAX);
    let error = parse_topology_text(&text).unwrap_err();
    assert_eq!(error, TopologyTextError::TooLong { bytes });
}

#[test]
fn errors_name_the_invalid_part_of_a_text() {
    for (text, words) in [
        ("", &["\"\"", "NAME=VALUE"][..]),
        ("cpus", &["\"cpus\"", "NAME=VALUE"]),
        ("core=0-3", &["no field cpus"]),
        ("cpus=", &["no online cpu"]),
        ("cpus=3-1", &["cpus=3-1", "backwards"]),
        ("cpus=0-3 l4=0*4", &["\"l4\"", "newer version"]),
        ("cpus=0-3 l3=0*4 l3=0*4", &["l3 twice"]),
        ("cpus=0-3 l3=a", &["l3=a", "\"a\""]),
        ("cpus=0-3 l3=0*5", &["l3 has 5 numbers", "4 cpus"]),
        (
            "cpus=0-3 capacity=1024*3,1025",
            &["capacity 1025 is out of range"],
        ),
        ("cpus=0-3 capacity=0*4", &["capacity 0 is out of range"]),
        (
            "cpus=0-3 numa=0-1x2 l3=0*4",
            &["share a L3 but not a NUMA node"],
        ),
        ("cpus=0-1 distances=1,2", &["distances=1,2", "7 numbers"]),
        ("cpus=0-1 distances=9,8,7,6,5,4,3", &["distances", "nearer"]),
        ("cpus=0-8191 core=0*9000", &["core", "more than 8192"]),
    ] {
        let error = parse_topology_text(text).unwrap_err();
        let mut sentence = error.to_string();
        if let Some(source) = std::error::Error::source(&error) {
            sentence += &format!(": {source}");
        }
        for word in words {
            assert!(
                sentence.contains(word),
                "{text}: {word:?} is not in {sentence}"
            );
        }
    }
}

/// Machines with arbitrary nesting, numbering and gaps in the ids.
fn machines() -> impl Strategy<Value = Topology> {
    let cpu = (
        0..6_u32,
        0..2_u32,
        0..2_u32,
        0..2_u32,
        any::<bool>(),
        1..3_u16,
    );
    let cpus = proptest::collection::vec(cpu, 1..24);
    let distances = proptest::option::of(1..9_u32);
    (cpus, distances, any::<bool>()).prop_map(|(cpus, distances, is_dense)| {
        // The domain of an outer level is part of the key of all inner ones, so they are nested.
        let mut id = 0;
        let number = |depth: usize| {
            let keys = cpus.iter().map(move |&(core, l3, numa, package, _, _)| {
                let all = [package, numa, l3, core / 2, core];
                all[..depth].to_vec()
            });
            let numbers = DisjointSets::by_key(keys).numbers();
            let factor = if is_dense { 1 } else { 1_000_003 };
            numbers
                .into_iter()
                .map(move |n| n * factor)
                .collect::<Vec<u32>>()
        };
        let levels: Vec<Vec<u32>> = (1..=5).map(number).collect();
        let cpu = |(at, &(.., is_slow, step)): (usize, &(u32, u32, u32, u32, bool, u16))| {
            id += step;
            Cpu {
                id: CpuId(id),
                core: levels[4][at],
                l2: levels[3][at],
                l3: levels[2][at],
                numa: levels[1][at],
                package: levels[0][at],
                capacity: if is_slow { 630 } else { CAPACITY_MAX },
            }
        };
        let machine = Topology::new(cpus.iter().enumerate().map(cpu).collect()).unwrap();
        match distances {
            None => machine,
            Some(factor) => machine.with_distances(Distances {
                machine: 200 * factor,
                ..Distances::default()
            }),
        }
    })
}

proptest! {
    #[test]
    fn every_machine_round_trips(machine in machines()) {
        let text = topology_text(&machine);
        prop_assert_eq!(parse_topology_text(&text), Ok(machine), "{}", text);
    }

    #[test]
    fn no_text_panics(text in "(cpus|core|l3|capacity|distances)?[ =0-9x*/,-]{0,40}") {
        if let Ok(machine) = parse_topology_text(&text) {
            prop_assert_eq!(parse_topology_text(&topology_text(&machine)), Ok(machine));
        }
    }
}
