//! The tree of distances, level by level: cpu, core, L2, L3.

use albacore_topology::{Cpu, Distances};

/// Levels that can bring two threads closer than `beyond`: cpu, core, L2, L3.
pub(crate) const LEVELS: usize = 4;
/// Index of the cpu level.
pub(crate) const CPU: usize = 0;
/// Index of the core level.
pub(crate) const CORE: usize = 1;

/// Closeness of a pair that shares a domain of each level, on top of that of the levels above it;
/// never negative for valid distances.
pub(crate) fn gains(distances: &Distances) -> [i64; LEVELS] {
    let &Distances {
        cpu,
        l1,
        l2,
        l3,
        beyond,
    } = distances;
    let step = |outer: u32, inner: u32| i64::from(outer) - i64::from(inner);
    [step(l1, cpu), step(l2, l1), step(l3, l2), step(beyond, l3)]
}

/// The number that a topology gives to the domain of a cpu, by level.
pub(crate) fn domain_keys(cpu: &Cpu) -> [u32; LEVELS] {
    [u32::from(cpu.id.0), cpu.core, cpu.l2, cpu.l3]
}

/// The domain of every cpu at a level, numbered densely in order of their first cpus, and how many
/// there are.
pub(crate) fn number_domains(cpus: &[Cpu], level: usize) -> (Vec<u16>, usize) {
    let mut numbers = std::collections::BTreeMap::new();
    let number = |cpu: &Cpu| {
        let next = numbers.len() as u16;
        *numbers.entry(domain_keys(cpu)[level]).or_insert(next)
    };
    let of = cpus.iter().map(number).collect();
    (of, numbers.len())
}

/// x(x-1)/2.
pub(crate) fn pairs(x: u32) -> i64 {
    i64::from(x) * (i64::from(x) - 1) / 2
}
