//! Which pairs of cpus are measured: all, where that takes seconds.

use std::collections::BTreeMap;

use albacore_topology::{Cpu, Level, Topology};

use crate::limits::{MEASURED_PAIRS_MAX, SAMPLED_PAIRS};

/// Which pairs of a machine are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Coverage {
    All,
    /// Those of the first cpus of cores, and the first two cpus of each core.
    OneCpuOfEachCore,
    /// Some of these for each level, evenly spaced.
    SampleOfEachLevel,
}

/// The pairs to measure, with the largest coverage that is within [`MEASURED_PAIRS_MAX`].
pub(super) fn choose_pairs(machine: &Topology) -> (Coverage, Vec<(&Cpu, &Cpu)>) {
    let all = machine.cpus().len();
    if all * (all - 1) / 2 <= MEASURED_PAIRS_MAX {
        return (Coverage::All, pairs(machine, |_| true).collect());
    }
    let mut seen = BTreeMap::new();
    let places: BTreeMap<_, u32> = machine
        .cpus()
        .iter()
        .map(|cpu| {
            let place = seen.entry(cpu.core).or_insert(0);
            *place += 1;
            (cpu.id, *place)
        })
        .collect();
    let is_kept = |(a, b): (&Cpu, &Cpu)| match (places.get(&a.id), places.get(&b.id)) {
        (Some(1), Some(1)) => true,
        (Some(1), Some(2)) => a.core == b.core,
        _ => false,
    };
    let mut counts = [0usize; Level::ALL.len()];
    for (a, b) in pairs(machine, is_kept) {
        counts[Level::of(a, b) as usize] += 1;
    }
    if counts.iter().sum::<usize>() <= MEASURED_PAIRS_MAX {
        return (
            Coverage::OneCpuOfEachCore,
            pairs(machine, is_kept).collect(),
        );
    }
    let mut passed = [0usize; Level::ALL.len()];
    let sample = pairs(machine, is_kept).filter(|&(a, b)| {
        let level = Level::of(a, b) as usize;
        let step = counts[level].div_ceil(SAMPLED_PAIRS);
        passed[level] += 1;
        (passed[level] - 1).is_multiple_of(step)
    });
    (Coverage::SampleOfEachLevel, sample.collect())
}

fn pairs<'a>(
    machine: &'a Topology,
    is_kept: impl Fn((&Cpu, &Cpu)) -> bool,
) -> impl Iterator<Item = (&'a Cpu, &'a Cpu)> {
    let cpus = machine.cpus();
    let pairs = cpus.iter().enumerate();
    let pairs = pairs.flat_map(|(i, a)| cpus[i + 1..].iter().map(move |b| (a, b)));
    pairs.filter(move |&pair| is_kept(pair))
}

#[cfg(test)]
mod tests {
    use albacore_topology::parse_synthetic;

    use super::*;

    fn counts(spec: &str) -> (Coverage, BTreeMap<&'static str, usize>) {
        let machine = parse_synthetic(spec).unwrap();
        let (coverage, pairs) = choose_pairs(&machine);
        let mut counts = BTreeMap::new();
        for (a, b) in pairs {
            *counts.entry(Level::of(a, b).name()).or_insert(0) += 1;
        }
        (coverage, counts)
    }

    #[test]
    fn small_machines_are_measured_whole_and_large_ones_at_every_level() {
        assert_eq!(counts("pu:1"), (Coverage::All, [].into()));
        let small = [("l1", 32), ("l3", 32 * 31 * 2)].into();
        assert_eq!(counts("l3:1 core:32 pu:2"), (Coverage::All, small));
        let cores = [("l1", 64), ("l3", 64 * 63 / 2)].into();
        assert_eq!(
            counts("l3:1 core:64 pu:4"),
            (Coverage::OneCpuOfEachCore, cores)
        );
        let (coverage, sample) = counts("pack:2 numa:2 l3:4 l2:8 core:4 pu:2");
        assert_eq!(coverage, Coverage::SampleOfEachLevel);
        let levels: Vec<&str> = sample.keys().copied().collect();
        assert_eq!(levels, ["l1", "l2", "l3", "machine", "numa", "package"]);
        for (level, count) in sample {
            let range = SAMPLED_PAIRS / 2..=SAMPLED_PAIRS;
            assert!(range.contains(&count), "{level}: {count}");
        }
    }
}
