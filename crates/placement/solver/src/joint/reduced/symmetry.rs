//! Interchangeable domains, and the order that the program imposes on them.
//!
//! **Problem.** Two cpus of a core, or two cores of an L3, are alike if the same deployments may
//! use them and they have equal obstacles: without an order, the program would have to exclude each
//! arrangement separately. **Approach.** Symmetry breaking: a domain must carry no less than the
//! next of its alike siblings in the tree: [`LOAD_WEIGHT`] for each thread and one more for each
//! main. **Proof sketch.** All threads on alike siblings can be exchanged as a whole without
//! changing a rule or the value; sorted from the inner level to the outer one, every placement
//! becomes an ordered one. The weight of a cpu does not depend on the order of the workers of a
//! deployment, so both orders can be imposed at once.

use std::collections::BTreeMap;

use super::super::instance::{CORE, Instance};

/// Any number gives a valid order; this one compares loads before mains.
pub(super) const LOAD_WEIGHT: u32 = 8;

/// The usable positions of a domain; those of alike domains correspond by index.
type DomainCpus = Vec<u16>;

struct Sibling {
    /// Equal for siblings that are alike.
    kind: usize,
    cpus: DomainCpus,
}

/// Classes of alike siblings, the inner levels first.
pub(super) fn interchangeable_classes(instance: &Instance) -> Vec<Vec<DomainCpus>> {
    let mut kinds: BTreeMap<(usize, u32, Vec<usize>), usize> = BTreeMap::new();
    let mut kind = |level: usize, obstacles: u32, inner: Vec<usize>| {
        let next = kinds.len();
        *kinds.entry((level, obstacles, inner)).or_insert(next)
    };
    let used = (0u16..).zip(&instance.is_used).filter(|&(_, &used)| used);
    let of_cpu = |(cpu, _): (u16, _)| {
        let at = usize::from(cpu);
        let tenants = 0..instance.tenants.len();
        let users = tenants.filter(|&tenant| instance.tenants[tenant].allows[at]);
        Sibling {
            kind: kind(0, instance.obstacles[at], users.collect()),
            cpus: vec![cpu],
        }
    };
    let mut units: Vec<Sibling> = used.map(of_cpu).collect();
    let mut classes = Vec::new();
    for level in 1..=instance.levels {
        let mut outer: BTreeMap<u16, Vec<Sibling>> = BTreeMap::new();
        for unit in units.drain(..) {
            let of_level = instance.of.get(level).filter(|_| level < instance.levels);
            let domain = of_level.map_or(0, |of| of[usize::from(unit.cpus[0])]);
            outer.entry(domain).or_default().push(unit);
        }
        for (domain, mut inner) in outer {
            inner.sort_by_key(|unit| unit.kind);
            for class in inner.chunk_by(|a, b| a.kind == b.kind) {
                if class.len() > 1 {
                    classes.push(class.iter().map(|unit| unit.cpus.clone()).collect());
                }
            }
            let unused = match level {
                CORE => unusable_load(instance, domain),
                _ => 0,
            };
            units.push(Sibling {
                kind: kind(level, unused, inner.iter().map(|unit| unit.kind).collect()),
                cpus: inner.into_iter().flat_map(|unit| unit.cpus).collect(),
            });
        }
    }
    classes
}

/// Load on cpus of a core that no deployment may use.
fn unusable_load(instance: &Instance, core: u16) -> u32 {
    let cpus = (0..instance.cpus).filter(|&cpu| instance.of[CORE][cpu] == core);
    let unused = cpus.filter(|&cpu| !instance.is_used[cpu]);
    unused.map(|cpu| instance.obstacles[cpu]).sum()
}

/// Weight that each position carries.
pub(super) fn weights(instance: &Instance, places: &[u16]) -> Vec<u32> {
    let mut weights = vec![0; instance.cpus];
    let mut first = 0;
    for tenant in &instance.tenants {
        for (slot, &cpu) in places[first..first + tenant.slots()].iter().enumerate() {
            let is_main = slot.is_multiple_of(tenant.threads);
            weights[usize::from(cpu)] += LOAD_WEIGHT + u32::from(is_main);
        }
        first += tenant.slots();
    }
    weights
}

/// The position of every slot after alike domains are ordered.
pub(super) fn in_canonical_order(instance: &Instance, places: &[u16]) -> Vec<u16> {
    let weights = weights(instance, places);
    // the position from which each position takes its threads
    let mut from: Vec<u16> = (0..instance.cpus as u16).collect();
    for class in interchangeable_classes(instance) {
        let of_unit = |cpus: &DomainCpus| -> Vec<u16> {
            cpus.iter().map(|&cpu| from[usize::from(cpu)]).collect()
        };
        let mut carried: Vec<Vec<u16>> = class.iter().map(of_unit).collect();
        let weight = |from: &Vec<u16>| from.iter().map(|&cpu| weights[usize::from(cpu)]).sum();
        carried.sort_by_key(|from| std::cmp::Reverse::<u32>(weight(from)));
        for (cpu, was) in class
            .into_iter()
            .flatten()
            .zip(carried.into_iter().flatten())
        {
            from[usize::from(cpu)] = was;
        }
    }
    let mut to = vec![0; instance.cpus];
    for (cpu, &was) in (0u16..).zip(&from) {
        to[usize::from(was)] = cpu;
    }
    places.iter().map(|&cpu| to[usize::from(cpu)]).collect()
}
