//! Random and regular machines for the tests of this crate and of crates that depend on it.
#![allow(dead_code, unreachable_pub, clippy::expect_used)] // each test binary uses a part of it

use albacore_solver::{Mode, Problem};
use albacore_topology::{CAPACITY_MAX, Cpu, CpuId, CpuSet, Distances, Topology};
use proptest::prelude::*;

/// Packages x L3 per package x L2 per L3 x cores per L2 x cpus per core.
#[derive(Clone, Copy, Debug)]
pub struct Shape(pub [u16; 5]);

impl Shape {
    /// All cpus of the machine; ids number the first cpus of all cores, then the second ones, as in
    /// Linux.
    pub fn cpus(self) -> Vec<Cpu> {
        let [packages, l3s, l2s, cores, width] = self.0.map(u32::from);
        let all = packages * l3s * l2s * cores;
        let cpu = |id: u32| {
            let core = id % all;
            let (l2, l3) = (core / cores, core / cores / l2s);
            let package = l3 / l3s;
            let capacity = CAPACITY_MAX;
            Cpu {
                id: CpuId(id as u16),
                core,
                l2,
                l3,
                numa: package,
                package,
                capacity,
            }
        };
        (0..all * width).map(cpu).collect()
    }

    pub fn topology(self) -> Topology {
        Topology::new(self.cpus()).expect("regular machines are nested")
    }
}

/// The machine of the source article: one socket, one L3, 16 cores x 2 cpus.
pub const ARTICLE: Shape = Shape([1, 1, 16, 1, 2]);

/// A problem without a mapping in force.
pub fn problem(topology: Topology, (workers, threads, mode): (u16, u16, Mode)) -> Problem {
    Problem {
        workers,
        threads,
        mode,
        topology,
        distances: Distances::default(),
        current: None,
    }
}

pub fn modes() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Scatter), Just(Mode::Compact)]
}

/// The machine with `l3s` L3 caches per NUMA node; a package has at least one node.
pub fn with_nodes(cpus: Vec<Cpu>, l3s: u32) -> Vec<Cpu> {
    let first = |package: u32| {
        let own = cpus.iter().filter(|cpu| cpu.package == package);
        own.map(|cpu| cpu.l3).min().unwrap_or(0)
    };
    let node = |cpu: &Cpu| (cpu.package << 8) + (cpu.l3 - first(cpu.package)) / l3s;
    let with_node = |cpu: &Cpu| Cpu {
        numa: node(cpu),
        ..*cpu
    };
    cpus.iter().map(with_node).collect()
}

/// Machines of one to six levels with at most `cpus` cpus; each cpu is kept in the cpuset with a
/// random probability (so: whole machines, holes, half cores).
pub fn topologies(cpus: u16) -> impl Strategy<Value = Topology> {
    let shape = (
        1..=2u16,
        1..=3u16,
        1..=3u16,
        1..=4u16,
        prop_oneof![Just(1u16), Just(2), Just(4)],
    );
    let of_machine = (
        1..=3u32,
        prop_oneof![Just(100u32), 40..=95u32],
        any::<u64>(),
    );
    (shape, of_machine)
        .prop_map(|((a, b, c, d, e), of_machine)| (Shape([a, b, c, d, e]), of_machine))
        .prop_filter("small enough", move |(shape, ..)| {
            shape.0.iter().product::<u16>() <= cpus
        })
        .prop_map(|(shape, (l3s, percent, seed))| {
            let whole = Topology::new(with_nodes(shape.cpus(), l3s));
            punched(&whole.expect("nodes are nested"), percent, seed)
        })
}

/// The topology with each cpu kept with a probability of `percent`, but never empty.
fn punched(topology: &Topology, percent: u32, seed: u64) -> Topology {
    let mut state = seed | 1;
    let mut kept: CpuSet = topology
        .cpus()
        .iter()
        .filter(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 33) % 100 < u64::from(percent)
        })
        .map(|cpu| cpu.id)
        .collect();
    if kept.is_empty() {
        kept.insert(topology.cpus()[0].id);
    }
    topology.restrict(&kept).expect("not empty")
}

/// The machine with cores of two speeds: core i, in the order of their numbers, is slow if bit i of
/// `slow` is set.
pub fn at_two_speeds(topology: &Topology, slow: u64, capacity: u16) -> Topology {
    let mut cores: Vec<u32> = topology.cpus().iter().map(|cpu| cpu.core).collect();
    cores.sort_unstable();
    cores.dedup();
    let of = |cpu: &Cpu| {
        let core = cores.partition_point(|&core| core < cpu.core);
        let is_slow = slow >> (core % 64) & 1 == 1;
        Cpu {
            capacity: if is_slow { capacity } else { CAPACITY_MAX },
            ..*cpu
        }
    };
    Topology::new(topology.cpus().iter().map(of).collect()).expect("the same tree")
}

/// Capacities of slow cores: a third, half (so that levels tie), and as in hybrid processors.
pub fn capacities() -> impl Strategy<Value = u16> {
    prop_oneof![Just(341u16), Just(512), Just(630)]
}

/// Whether all cores have the same number of usable cpus.
pub fn has_equal_cores(topology: &Topology) -> bool {
    let mut counts = std::collections::BTreeMap::new();
    for cpu in topology.cpus() {
        *counts.entry(cpu.core).or_insert(0) += 1;
    }
    let first = counts.values().next().copied();
    counts.values().all(|&count| Some(count) == first)
}

/// The same machine with other ids of cpus, cores and caches.
pub fn renamed(topology: &Topology, seed: u64) -> Topology {
    let mut cpus = topology.cpus().to_vec();
    let mut state = seed | 1;
    for i in (1..cpus.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        cpus.swap(i, (state >> 33) as usize % (i + 1));
    }
    let renamed = cpus.iter().enumerate().map(|(i, cpu)| Cpu {
        id: CpuId(3 * i as u16 + 1),
        core: 1_000 - cpu.core,
        l2: 1_000 - cpu.l2,
        l3: 1_000 - cpu.l3,
        numa: 1_000 - cpu.numa,
        package: 1_000 - cpu.package,
        ..*cpu
    });
    Topology::new(renamed.collect()).expect("still nested")
}
