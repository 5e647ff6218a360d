//! The tree of distances, level by level: cpu, core, L2, L3, NUMA node, package.

use albacore_topology::{Cpu, Distances, Level};

/// Levels that can bring two threads closer than `machine`: cpu, core, L2, L3, NUMA node, package.
pub(crate) const LEVELS: usize = Level::ALL.len() - 1;
/// Index of the cpu level.
pub(crate) const CPU: usize = 0;
/// Index of the core level.
pub(crate) const CORE: usize = 1;
/// Index of the L3 level.
pub(crate) const L3: usize = 3;
/// Index of the level of NUMA nodes.
pub(crate) const NUMA: usize = 4;
/// Index of the package level.
pub(crate) const PACKAGE: usize = 5;

/// Closeness of a pair that shares a domain of each level, in addition to that of the outer levels;
/// never negative for valid distances.
fn gains(distances: &Distances) -> [i64; LEVELS] {
    let cycles = Level::ALL.map(|level| i64::from(distances.at(level)));
    std::array::from_fn(|level| cycles[level + 1] - cycles[level])
}

/// The distinct levels. Beyond L3, a level with as many domains as the next inner one has the same
/// domains: it is left out and its gain is added to the inner one. On the machine of the article
/// four levels remain.
pub(crate) struct DistinctLevels {
    /// Number of distinct levels; further levels contain the whole machine and have no gain.
    pub(crate) count: usize,
    /// Original index of each level.
    pub(crate) source: [usize; LEVELS],
    pub(crate) gain: [i64; LEVELS],
}

impl DistinctLevels {
    /// The distinct levels, given the number of domains of each level.
    pub(crate) fn of(domains: &[usize; LEVELS], distances: &Distances) -> Self {
        let gains = gains(distances);
        let mut distinct = Self {
            count: 0,
            source: [0; LEVELS],
            gain: [0; LEVELS],
        };
        for level in 0..LEVELS {
            if level > L3 && domains[level] == domains[level - 1] {
                distinct.gain[distinct.count - 1] += gains[level];
            } else {
                distinct.source[distinct.count] = level;
                distinct.gain[distinct.count] = gains[level];
                distinct.count += 1;
            }
        }
        distinct
    }
}

/// The topology's number for the domain of a cpu, by level.
pub(crate) fn domain_keys(cpu: &Cpu) -> [u32; LEVELS] {
    [
        u32::from(cpu.id.0),
        cpu.core,
        cpu.l2,
        cpu.l3,
        cpu.numa,
        cpu.package,
    ]
}

/// The domain of every cpu at a level, numbered densely in order of their first cpus, and the
/// number of domains.
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
