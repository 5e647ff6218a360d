//! A machine as nested boxes: package, NUMA domain (if it is smaller than the package), L3, L2 (if
//! several cores share one), core, CPUs. Both texts and pictures are drawn from this tree.

use std::collections::BTreeMap;

use albacore_topology::{CAPACITY_MAX, Cpu, Topology};

/// A box or a core.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DomainOrCore<'a> {
    /// A domain that contains smaller parts.
    Domain(Domain<'a>),
    Core(Core<'a>),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Domain<'a> {
    /// Its label, such as `package 0 · L3 0`.
    pub(super) label: String,
    /// The domains or cores inside it, ordered by their lowest CPU.
    pub(super) parts: Vec<DomainOrCore<'a>>,
}

/// A physical core and its CPUs, ordered by id.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Core<'a> {
    /// Number of the core in the machine.
    pub(super) number: u32,
    pub(super) capacity: u16,
    pub(super) cpus: Vec<&'a Cpu>,
}

type NestingLevel = (&'static str, fn(&Cpu) -> u32);

/// The outermost boxes of a machine.
pub(super) fn nest(machine: &Topology) -> Vec<DomainOrCore<'_>> {
    let cpus: Vec<&Cpu> = machine.cpus().iter().collect();
    let mut levels: Vec<NestingLevel> = vec![("package", |c| c.package)];
    if is_inside(&cpus, |c| c.numa, |c| c.package) && is_inside(&cpus, |c| c.l3, |c| c.numa) {
        levels.push(("numa", |c| c.numa));
    }
    levels.push(("L3", |c| c.l3));
    levels.push(("L2", |c| c.l2));
    divide(&cpus, &levels)
}

/// Whether each inner domain is inside one outer domain.
fn is_inside(cpus: &[&Cpu], inner: fn(&Cpu) -> u32, outer: fn(&Cpu) -> u32) -> bool {
    let mut outer_of = BTreeMap::new();
    cpus.iter()
        .all(|c| *outer_of.entry(inner(c)).or_insert(outer(c)) == outer(c))
}

fn divide<'a>(cpus: &[&'a Cpu], levels: &[NestingLevel]) -> Vec<DomainOrCore<'a>> {
    let Some((&(name, field), finer)) = levels.split_first() else {
        let cores = groups(cpus, |c| c.core).into_iter();
        return cores.map(|(number, cpus)| core(number, cpus)).collect();
    };
    let divided = groups(cpus, field).into_iter().map(|(number, cpus)| {
        let mut label = format!("{name} {number}");
        let mut parts = divide(&cpus, finer);
        match parts.pop() {
            // A cache of a single core needs no box: nearly every core has its own L2.
            Some(DomainOrCore::Core(core)) if parts.is_empty() && name == "L2" => {
                DomainOrCore::Core(core)
            }
            // A box that contains only one box is merged with it, with both names.
            Some(DomainOrCore::Domain(only)) if parts.is_empty() => {
                label = format!("{label} · {}", only.label);
                DomainOrCore::Domain(Domain {
                    label,
                    parts: only.parts,
                })
            }
            last => {
                parts.extend(last);
                DomainOrCore::Domain(Domain { label, parts })
            }
        }
    });
    divided.collect()
}

fn core(number: u32, cpus: Vec<&Cpu>) -> DomainOrCore<'_> {
    let capacity = cpus.first().map_or(CAPACITY_MAX, |cpu| cpu.capacity);
    DomainOrCore::Core(Core {
        number,
        capacity,
        cpus,
    })
}

fn groups<'a>(cpus: &[&'a Cpu], field: fn(&Cpu) -> u32) -> BTreeMap<u32, Vec<&'a Cpu>> {
    let mut groups: BTreeMap<u32, Vec<&Cpu>> = BTreeMap::new();
    for &cpu in cpus {
        groups.entry(field(cpu)).or_default().push(cpu);
    }
    groups
}

fn count(cpus: &[&Cpu], field: fn(&Cpu) -> u32) -> usize {
    groups(cpus, field).len()
}

/// The machine in one line: `32 cpus · 16 cores · 1 L3 · 1 numa domain · 1 package`.
pub(super) fn summary(machine: &Topology) -> String {
    let cpus: Vec<&Cpu> = machine.cpus().iter().collect();
    let plural =
        |n: usize, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
    let cores = machine.core_count();
    let slow: Vec<&Cpu> = cpus
        .iter()
        .copied()
        .filter(|c| c.capacity < CAPACITY_MAX)
        .collect();
    let slow = count(&slow, |c| c.core);
    let mut parts = vec![
        plural(cpus.len(), "cpu", "cpus"),
        plural(cores, "core", "cores"),
    ];
    if slow > 0 && slow < cores {
        parts[1] = format!("{cores} cores ({} fast, {slow} slow)", cores - slow);
    }
    let levels: [NestingLevel; 2] = [("L2", |c| c.l2), ("L3", |c| c.l3)];
    for (name, field) in levels {
        let domains = count(&cpus, field);
        if name == "L3" || domains != cores {
            parts.push(format!("{domains} {name}"));
        }
    }
    parts.push(plural(
        count(&cpus, |c| c.numa),
        "numa domain",
        "numa domains",
    ));
    parts.push(plural(count(&cpus, |c| c.package), "package", "packages"));
    parts.join(" · ")
}

#[cfg(test)]
mod tests {
    use super::{DomainOrCore, nest, summary};
    use albacore_topology::parse_synthetic;

    fn outline(parts: &[DomainOrCore<'_>]) -> String {
        let one = |part: &DomainOrCore<'_>| match part {
            DomainOrCore::Domain(domain) => format!("{}({})", domain.label, outline(&domain.parts)),
            DomainOrCore::Core(core) => core.number.to_string(),
        };
        parts.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn boxes_that_hold_one_box_are_joined_and_private_l2_is_left_out() {
        for (spec, wanted) in [
            ("pack:1 l3:1 core:2 pu:2", "package 0 · numa 0 · L3 0(0 1)"),
            (
                "pack:2 l3:2 core:1 pu:1",
                "package 0 · numa 0(L3 0(0) L3 1(1)) package 1 · numa 1(L3 2(2) L3 3(3))",
            ),
            (
                "l3:1 l2:2 core:2 pu:1",
                "package 0 · numa 0 · L3 0(L2 0(0 1) L2 1(2 3))",
            ),
            (
                "pack:1 numa:2 core:1 pu:1",
                "package 0(numa 0 · L3 0(0) numa 1 · L3 1(1))",
            ),
        ] {
            assert_eq!(
                outline(&nest(&parse_synthetic(spec).unwrap())),
                wanted,
                "{spec}"
            );
        }
    }

    #[test]
    fn the_summary_names_what_differs_from_the_cores() {
        let machine = parse_synthetic("pack:2 l3:2 core:4 pu:2").unwrap();
        assert_eq!(
            summary(&machine),
            "32 cpus · 16 cores · 4 L3 · 2 numa domains · 2 packages"
        );
    }
}
