//! Rule (1) (every thread is on one cpu of its cpuset) and the objective of placed threads.

use std::collections::BTreeMap;

use albacore_topology::{Cpu, CpuSet, Distances, Topology};

use crate::{Mapping, MappingViolation, Mode};

/// The threads of a deployment on their cpus, ordered by worker and rank.
pub(super) struct Placed<'a> {
    machine: &'a [Cpu],
    /// T, at least 1.
    threads: usize,
    /// Index of the cpu of each thread in `machine`.
    pub(super) at: Vec<usize>,
}

impl<'a> Placed<'a> {
    /// Checks rule (1) for a deployment of `size` = (W, T). Its cpus are those of `topology`,
    /// restricted to `cpuset` if there is one.
    pub(super) fn of(
        topology: &'a Topology,
        cpuset: Option<&CpuSet>,
        size: (u16, u16),
        mapping: &Mapping,
    ) -> Result<Self, Vec<MappingViolation>> {
        let (workers, threads) = size;
        if mapping.threads != threads {
            let (mapping, problem) = (mapping.threads, threads);
            return Err(vec![MappingViolation::OtherThreads { mapping, problem }]);
        }
        let expected = usize::from(workers) * usize::from(threads);
        if mapping.cpus.len() != expected {
            let placed = mapping.cpus.len();
            return Err(vec![MappingViolation::OtherCount {
                placed,
                requested: expected,
            }]);
        }
        let machine = topology.cpus();
        let mut at = Vec::with_capacity(expected);
        let mut violations = Vec::new();
        for (slot, cpu) in mapping.iter() {
            let index = machine.binary_search_by_key(&cpu, |known| known.id);
            match index
                .ok()
                .filter(|_| cpuset.is_none_or(|own| own.contains(cpu)))
            {
                Some(index) => at.push(index),
                None => violations.push(MappingViolation::OutsideCpuset { slot, cpu }),
            }
        }
        let placed = Self {
            machine,
            threads: usize::from(threads).max(1),
            at,
        };
        if violations.is_empty() {
            Ok(placed)
        } else {
            Err(violations)
        }
    }

    /// The threads of a mapping that is known to keep rule (1).
    pub(super) fn known(topology: &'a Topology, mapping: &Mapping) -> Self {
        let machine = topology.cpus();
        let known = |id| machine.binary_search_by_key(&id, |cpu: &Cpu| cpu.id).ok();
        Self {
            machine,
            threads: usize::from(mapping.threads).max(1),
            at: mapping.cpus.iter().copied().filter_map(known).collect(),
        }
    }

    /// The cpu of every thread.
    pub(super) fn cpus(&self) -> impl Iterator<Item = &'a Cpu> + '_ {
        self.at.iter().map(|&at| &self.machine[at])
    }

    /// The cpu of every main.
    pub(super) fn mains(&self) -> impl Iterator<Item = &'a Cpu> + '_ {
        self.cpus().step_by(self.threads)
    }

    /// The index of the cpu of every main.
    pub(super) fn main_positions(&self) -> impl Iterator<Item = usize> + '_ {
        self.at.iter().copied().step_by(self.threads)
    }

    /// Worker, rank and cpu of every thread.
    pub(super) fn slots(&self) -> impl Iterator<Item = (usize, usize, &'a Cpu)> + '_ {
        let of = |(slot, cpu)| (slot / self.threads, slot % self.threads, cpu);
        self.cpus().enumerate().map(of)
    }

    /// The indices of the cpus of each worker.
    pub(super) fn workers(&self) -> std::slice::Chunks<'_, usize> {
        self.at.chunks(self.threads)
    }

    /// The indices of the cpus of the threads of a rank.
    pub(super) fn of_rank(&self, rank: usize) -> impl Iterator<Item = &usize> + Clone {
        self.at.iter().skip(rank).step_by(self.threads)
    }

    /// T.
    pub(super) fn threads(&self) -> usize {
        self.threads
    }
}

/// The objective of the given deployments, pair by pair.
pub(super) fn value<'a>(
    distances: &Distances,
    deployments: impl Iterator<Item = (Mode, &'a Placed<'a>)>,
) -> i64 {
    let mut mains: BTreeMap<u16, (&Cpu, i64)> = BTreeMap::new();
    let mut sum = 0;
    for (mode, placed) in deployments {
        for cpu in placed.mains() {
            mains.entry(cpu.id.0).or_insert((cpu, 0)).1 += 1;
        }
        let mut pairs = Pairs::default();
        for worker in placed.workers() {
            pairs.count(placed.machine, worker);
        }
        let within = pairs.distances(distances);
        sum += match mode {
            Mode::Scatter => within,
            Mode::Compact => -within,
        };
    }
    // many mains share a cpu: iterate over pairs of cpus instead of pairs of threads
    let distance = |a, b| i64::from(Topology::distance(a, b, distances));
    let held: Vec<(&Cpu, i64)> = mains.into_values().collect();
    for (i, &(a, of_a)) in held.iter().enumerate() {
        sum += of_a * (of_a - 1) / 2 * distance(a, a);
        for &(b, of_b) in &held[i + 1..] {
            sum += of_a * of_b * distance(a, b);
        }
    }
    sum
}

/// Pairs of threads by the domains that their cpus share. Domains are nested: a
/// [`Topology`](albacore_topology::Topology) with other domains is rejected.
#[derive(Default)]
struct Pairs {
    all: i64,
    same_cpu: i64,
    same_core: i64,
    same_l2: i64,
    same_l3: i64,
    same_numa: i64,
    same_package: i64,
}

impl Pairs {
    /// Counts every pair of a group.
    fn count(&mut self, machine: &[Cpu], group: &[usize]) {
        let n = group.len() as i64;
        self.all += n * (n - 1) / 2;
        let alike = |number: fn(&Cpu) -> u32| {
            // contiguous numbers, so that the comparisons are vectorized
            let numbers: Vec<u32> = group.iter().map(|&at| number(&machine[at])).collect();
            let later = |(at, &a): (usize, &u32)| {
                let same = numbers[at + 1..].iter().map(|&b| u32::from(a == b));
                i64::from(same.sum::<u32>())
            };
            numbers.iter().enumerate().map(later).sum::<i64>()
        };
        self.same_cpu += alike(|cpu| cpu.id.0.into());
        self.same_core += alike(|cpu| cpu.core);
        self.same_l2 += alike(|cpu| cpu.l2);
        self.same_l3 += alike(|cpu| cpu.l3);
        self.same_numa += alike(|cpu| cpu.numa);
        self.same_package += alike(|cpu| cpu.package);
    }

    /// Sum of the distances: that of each pair is given by the innermost domain that it shares.
    fn distances(&self, distances: &Distances) -> i64 {
        let Self {
            all,
            same_cpu,
            same_core,
            same_l2,
            same_l3,
            same_numa,
            same_package,
        } = *self;
        i64::from(distances.cpu) * same_cpu
            + i64::from(distances.l1) * (same_core - same_cpu)
            + i64::from(distances.l2) * (same_l2 - same_core)
            + i64::from(distances.l3) * (same_l3 - same_l2)
            + i64::from(distances.numa) * (same_numa - same_l3)
            + i64::from(distances.package) * (same_package - same_numa)
            + i64::from(distances.machine) * (all - same_package)
    }
}
