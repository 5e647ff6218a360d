//! What explanations are made of: counts, sums and alternatives. Distances are clock cycles.

use std::collections::{BTreeMap, BTreeSet};

use albacore_topology::{Cpu, CpuId, Distances, Level};

use crate::{Mapping, Problem, Rule, Slot};

/// Pairs of threads by the nearest thing that both have in common.
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

/// How W x T threads are shared out over cpus, or over cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// How many cpus or cores there are.
    pub units: u32,
    /// Fewest threads of one as the rule wants it: floor(WT / units).
    pub least: u32,
    /// Most threads of one as the rule wants it: ceil(WT / units).
    pub most: u32,
    /// How many units must hold the most: WT mod units, or all of them where that is 0.
    pub at_most: u32,
    /// Fewest and most threads that one holds in this mapping.
    pub held: (u32, u32),
}

/// What the cores of one speed hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpeedShare {
    /// Of [`CAPACITY_MAX`](albacore_topology::CAPACITY_MAX).
    pub capacity: u16,
    pub cores: u32,
    pub cpus: u32,
    pub threads: u32,
    pub mains: u32,
}

impl SpeedShare {
    /// The fastest first; empty where all cores are equally fast.
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

/// Pairs of threads of different workers on one core, and how many of them are busy where the lower
/// half of the workers is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoreSharing {
    pub pairs: u32,
    /// Half of the workers, rounded up: those of the lowest numbers, which dispatchers prefer.
    pub busy_workers: u16,
    /// Pairs of which both threads are of these.
    pub busy_pairs: u32,
}

impl CoreSharing {
    /// `None` where workers share no core.
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

/// Threads of which the objective sums the distances: the mains, or the threads of one worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    pub pairs: PairCounts,
    /// Sum of their distances, clock cycles.
    pub cycles: i64,
    /// The best sum that this group could have if it were alone on the machine and kept the rules,
    /// loosened as far as this mapping loosens them: greatest, for workers in compact least.
    pub alone: i64,
}

/// Two threads that exchange their cpus, or one that goes elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alternative {
    /// The thread that goes.
    pub slot: Slot,
    pub to: CpuId,
    /// The thread that comes in return; `None`: no other thread moves.
    pub partner: Option<Slot>,
    /// What the objective gains; negative: it costs.
    pub gain: i64,
}

/// A rule that keeps the value down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    pub rule: Rule,
    /// What the objective would gain, at the least, if this rule alone were dropped; on top of what
    /// could be gained with it.
    pub gain: i64,
}

/// The explanation of a mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// Its value: clock cycles summed over pairs, higher is better.
    pub objective: i64,
    /// Threads over cpus, rule (8). Where cores differ in speed, `least` and `most` are what is
    /// held, here and in `cores`.
    pub cpus: Share,
    /// Threads over cores, rule (8+).
    pub cores: Share,
    /// Most mains on one core: ceil(W/P).
    pub mains_per_core: u32,
    /// By the speed of cores, the fastest first; empty where all are equally fast.
    pub speeds: Vec<SpeedShare>,
    /// `None` where no two workers share a core.
    pub sharing: Option<CoreSharing>,
    pub mains: Group,
    pub workers: Vec<Group>,
    /// The mains and every worker at the best that each could have alone: nothing that keeps the
    /// rules is above this.
    pub parts: i64,
    /// Rules that keep the value down, the costliest first.
    pub binding: Vec<Binding>,
    /// How many single exchanges and shifts keep every rule and cost nothing.
    pub equal: u64,
    /// The best single exchange or shift that keeps every rule and gains; `None` for a mapping that
    /// no such step improves.
    pub better: Option<Alternative>,
    /// The cheapest single exchange or shift that keeps every rule and costs something.
    pub runner_up: Option<Alternative>,
    /// False if the budget ended before every step and every rule was tried: then `binding`,
    /// `equal`, `better` and `runner_up` are of what was.
    pub complete: bool,
}
