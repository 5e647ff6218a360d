//! Selects the pairs of CPUs to measure: all pairs, if that takes only seconds.

use std::collections::BTreeMap;

use albacore_topology::{Cpu, Level, Topology};

use crate::limits::{MEASURED_PAIRS_MAX, SAMPLED_PAIRS};

/// The set of measured pairs of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Coverage {
    All,
    /// Pairs of the first CPUs of cores, and the first two CPUs of each core.
    OneCpuOfEachCore,
    /// A sample of these pairs for each level, evenly spaced.
    SampleOfEachLevel,
}

/// A CPU and its rank (starting at 1) among the selected CPUs of its core.
type Ranked<'a> = (u32, &'a Cpu);

/// The pairs to measure, with the largest coverage within [`MEASURED_PAIRS_MAX`].
pub(super) fn choose_pairs(machine: &Topology) -> (Coverage, Vec<(&Cpu, &Cpu)>) {
    let cpus = machine.cpus();
    if cpus.len() * (cpus.len() - 1) / 2 <= MEASURED_PAIRS_MAX {
        let all: Vec<Ranked<'_>> = cpus.iter().map(|cpu| (1, cpu)).collect();
        return (Coverage::All, pairs(&all).collect());
    }
    let mut in_core = BTreeMap::new();
    let ranked = cpus.iter().map(|cpu| {
        let rank = in_core.entry(cpu.core).or_insert(0);
        *rank += 1;
        (*rank, cpu)
    });
    let ranked: Vec<Ranked<'_>> = ranked.filter(|&(rank, _)| rank <= 2).collect();
    let mut counts = [0usize; Level::ALL.len()];
    for (a, b) in pairs(&ranked) {
        counts[Level::of(a, b) as usize] += 1;
    }
    if counts.iter().sum::<usize>() <= MEASURED_PAIRS_MAX {
        return (Coverage::OneCpuOfEachCore, pairs(&ranked).collect());
    }
    let mut passed = [0usize; Level::ALL.len()];
    let sample = pairs(&ranked).filter(|&(a, b)| {
        let level = Level::of(a, b) as usize;
        let step = counts[level].div_ceil(SAMPLED_PAIRS);
        passed[level] += 1;
        (passed[level] - 1).is_multiple_of(step)
    });
    (Coverage::SampleOfEachLevel, sample.collect())
}

/// Pairs of first CPUs, and of the first and second CPU of each core.
fn pairs<'a>(cpus: &[Ranked<'a>]) -> impl Iterator<Item = (&'a Cpu, &'a Cpu)> {
    let firsts = cpus.iter().enumerate().filter(|(_, (rank, _))| *rank == 1);
    firsts.flat_map(|(i, &(_, a))| {
        let others = cpus[i + 1..].iter();
        let others = others.filter(move |(rank, b)| *rank == 1 || a.core == b.core);
        others.map(move |&(_, b)| (a, b))
    })
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
        let (coverage, sample) = counts("pack:8 l3:16 core:32 pu:2");
        assert_eq!(coverage, Coverage::SampleOfEachLevel);
        assert_eq!(sample.len(), 4);
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
