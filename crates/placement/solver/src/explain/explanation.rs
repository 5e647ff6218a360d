//! Parts of explanations: counts, sums and alternatives. Distances are clock cycles.

use std::collections::{BTreeMap, BTreeSet};

use albacore_topology::{Cpu, CpuId, Distances, Level};

use crate::{Mapping, Problem, Rule, Slot};

/// Pairs of threads by the innermost level that their cpus share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PairCounts([u32; Level::ALL.len()]);

impl PairCounts {
    pub(crate) fn of(cpus: &[&Cpu]) -> Self {
        let mut counts = Self::default();
        for (i, a) in cpus.iter().enumerate() {
            for b in &cpus[i + 1..] {
                counts.0[Level::of(a, b) as usize] += 1;
            }
        }
        counts
    }

    pub const fn at(&self, level: Level) -> u32 {
        self.0[level as usize]
    }

    /// Sum of the distances, clock cycles.
    pub fn cycles(&self, distances: &Distances) -> i64 {
        let of = |level| i64::from(self.at(level)) * i64::from(distances.at(level));
        Level::ALL.into_iter().map(of).sum()
    }
}

/// Distribution of W x T threads over cpus, or over cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Volume {
    /// Number of cpus or cores.
    pub units: u32,
    /// Fewest threads per unit by the rule: floor(WT / units).
    pub least: u32,
    /// Most threads per unit by the rule: ceil(WT / units).
    pub most: u32,
    /// Number of units that must hold the most: WT mod units, or all of them if that is 0.
    pub at_most: u32,
    /// Fewest and most threads per unit in this mapping.
    pub held: (u32, u32),
}

/// Threads on the cores of one speed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpeedClass {
    /// In units where [`CAPACITY_MAX`](albacore_topology::CAPACITY_MAX) is a full core.
    pub capacity: u16,
    pub cores: u32,
    pub cpus: u32,
    pub threads: u32,
    pub mains: u32,
}

impl SpeedClass {
    /// The fastest first; empty if all cores are equally fast.
    pub(crate) fn of(problem: &Problem, mapping: &Mapping) -> Vec<Self> {
        let cpus = problem.topology.cpus();
        let mut capacities: Vec<u16> = cpus.iter().map(|cpu| cpu.capacity).collect();
        capacities.sort_unstable_by(|a, b| b.cmp(a));
        capacities.dedup();
        if capacities.len() < 2 {
            return Vec::new();
        }
        let on = |slots: &mut dyn Iterator<Item = (Slot, CpuId)>, capacity: u16| {
            let cpus = slots.filter_map(|(_, id)| problem.topology.cpu(id));
            cpus.filter(|cpu| cpu.capacity == capacity).count() as u32
        };
        let of = |capacity: u16| {
            let own = || cpus.iter().filter(|cpu| cpu.capacity == capacity);
            let cores: BTreeSet<u32> = own().map(|cpu| cpu.core).collect();
            let mut mains = mapping.iter().filter(|(slot, _)| slot.rank.0 == 0);
            Self {
                capacity,
                cores: cores.len() as u32,
                cpus: own().count() as u32,
                threads: on(&mut mapping.iter(), capacity),
                mains: on(&mut mains, capacity),
            }
        };
        capacities.into_iter().map(of).collect()
    }
}

/// Pairs of threads of different workers on one core, and how many of these pairs are busy while
/// the lower half of the workers is busy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoreSharing {
    pub pairs: u32,
    /// Half of the workers, rounded up: those with the lowest numbers, which dispatchers prefer.
    pub busy_workers: u16,
    /// Pairs whose threads both belong to busy workers.
    pub busy_pairs: u32,
}

impl CoreSharing {
    /// `None` if no workers share a core.
    pub(crate) fn of(problem: &Problem, mapping: &Mapping) -> Option<Self> {
        let busy_workers = problem.workers.div_ceil(2);
        let mut on: BTreeMap<u32, Vec<u16>> = BTreeMap::new();
        for (slot, id) in mapping.iter() {
            let core = problem.topology.cpu(id)?.core;
            on.entry(core).or_default().push(slot.worker.0);
        }
        let (mut pairs, mut busy_pairs) = (0, 0);
        for workers in on.values() {
            for (i, &a) in workers.iter().enumerate() {
                for &b in workers[i + 1..].iter().filter(|&&b| b != a) {
                    pairs += 1;
                    busy_pairs += u32::from(a.max(b) < busy_workers);
                }
            }
        }
        (pairs > 0).then_some(Self {
            pairs,
            busy_workers,
            busy_pairs,
        })
    }
}

/// Threads whose distances the objective sums: the mains, or the threads of one worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    pub pairs: PairCounts,
    /// Sum of their distances, clock cycles.
    pub cycles: i64,
    /// The best sum that this group could reach alone on the machine under the rules, relaxed as
    /// far as this mapping relaxes them: the greatest, or the least for workers in compact mode.
    pub alone: i64,
}

/// An exchange of the cpus of two threads, or a shift of one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alternative {
    /// The thread that moves.
    pub slot: Slot,
    pub to: CpuId,
    /// The thread that moves in return; `None` if no other thread moves.
    pub partner: Option<Slot>,
    /// Gain of the objective; negative if the change costs.
    pub gain: i64,
}

/// A rule that limits the objective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BindingConstraint {
    pub rule: Rule,
    /// Lower bound on the gain of the objective if this rule alone were dropped, beyond any gain
    /// that is possible with it.
    pub gain: i64,
}

/// The explanation of a mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// Clock cycles summed over pairs, higher is better.
    pub objective: i64,
    /// Threads over cpus, rule (8). Where cores differ in speed, `least` and `most` are the fewest
    /// and most threads held, here and in `cores`.
    pub cpus: Volume,
    /// Threads over cores, rule (8+).
    pub cores: Volume,
    /// Most mains on one core: ceil(W/P).
    pub mains_per_core: u32,
    /// By the speed of cores, the fastest first; empty if all are equally fast.
    pub speeds: Vec<SpeedClass>,
    /// `None` if no two workers share a core.
    pub sharing: Option<CoreSharing>,
    pub mains: Group,
    pub workers: Vec<Group>,
    /// Sum of the best values that the mains and every worker could reach alone: an upper bound of
    /// every mapping that keeps the rules.
    pub parts: i64,
    /// Rules that limit the objective, the costliest first.
    pub binding: Vec<BindingConstraint>,
    /// Number of single exchanges and shifts that keep every rule and cost nothing.
    pub equal: u64,
    /// The best single exchange or shift that keeps every rule and gains; `None` if there is none.
    pub better: Option<Alternative>,
    /// The cheapest single exchange or shift that keeps every rule and costs something.
    pub runner_up: Option<Alternative>,
    /// False if the budget ended before every change and every rule was tried: `binding`, `equal`,
    /// `better` and `runner_up` then cover only what was tried.
    pub complete: bool,
}
