//! Bounds that follow from counts alone, recomputed from the problem so that the checker can
//! confirm them.
//!
//! The bounds for one and for several deployments use distances pair by pair or level by level,
//! without the solver's tree order and tables.

mod mains;
mod one;
mod several;
mod speeds;

use albacore_topology::{Cpu, Distances, Topology};

pub use one::counting_bound;
pub(super) use several::counted;

/// Returns the number of a cpu's domain on one level.
type DomainKey = fn(&Cpu) -> u32;

/// A level of the topology tree.
struct TreeLevel {
    /// Reduction of a pair's distance if both threads share a domain of this level.
    gain: i64,
    key: DomainKey,
}

/// Cpus, cores, L2, L3, NUMA nodes and packages.
fn levels(d: &Distances) -> [TreeLevel; 6] {
    let gain = |outer: u32, inner: u32| i64::from(outer) - i64::from(inner);
    let keys: [(i64, DomainKey); 6] = [
        (gain(d.l1, d.cpu), |cpu| u32::from(cpu.id.0)),
        (gain(d.l2, d.l1), |cpu| cpu.core),
        (gain(d.l3, d.l2), |cpu| cpu.l2),
        (gain(d.numa, d.l3), |cpu| cpu.l3),
        (gain(d.package, d.numa), |cpu| cpu.numa),
        (gain(d.machine, d.package), |cpu| cpu.package),
    ];
    keys.map(|(gain, key)| TreeLevel { gain, key })
}

/// x(x-1)/2.
fn pairs(x: i64) -> i64 {
    x * (x - 1) / 2
}

/// Number of pairs within domains of these sizes that are filled one after the other.
fn fill(sizes: impl Iterator<Item = i64>, mut threads: i64) -> i64 {
    let mut sum = 0;
    for size in sizes {
        let here = size.min(threads);
        threads -= here;
        sum += pairs(here);
    }
    sum
}

/// Greatest sum of distances of `items` items with limits per cpu and per core: greedily, each item
/// is placed where it is farthest from those before.
fn farthest(
    cpus: &[&Cpu],
    distances: &Distances,
    items: i64,
    (on_cpu, on_core): (i64, i64),
) -> i64 {
    let mut numbers = std::collections::BTreeMap::new();
    let number = |cpu: &&Cpu| {
        let next = numbers.len();
        *numbers.entry(cpu.core).or_insert(next)
    };
    let core_of: Vec<usize> = cpus.iter().map(number).collect();
    let (mut held, mut cores) = (vec![0; cpus.len()], vec![0; cpus.len()]);
    let mut far = vec![0i64; cpus.len()];
    let mut sum = 0;
    for _ in 0..items {
        let open = |&at: &usize| held[at] < on_cpu && cores[core_of[at]] < on_core;
        let Some(best) = (0..cpus.len()).filter(open).max_by_key(|&at| far[at]) else {
            break;
        };
        sum += far[best];
        held[best] += 1;
        cores[core_of[best]] += 1;
        for (far, cpu) in far.iter_mut().zip(cpus) {
            *far += i64::from(Topology::distance(cpu, cpus[best], distances));
        }
    }
    sum
}
