//! Fill level of a thread on its cpu: the quantity that is balanced where cores differ in speed.
//!
//! **Definition.** Let a core have v cpus that any deployment may use, in ascending order of id.
//! The n-th thread on the j-th of them (from 0) has the number (n - 1) v + j + 1 on its core, plus
//! the load of the core's cpus that no deployment may use. Its level is that number divided by the
//! core's capacity. Ties are broken in favor of the faster core, then of the cpu with fewer
//! threads. Where all cores are equally fast, the level is n.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use albacore_topology::{Cpu, CpuId};

use crate::{JointProblem, Problem};

/// A fill level; comparable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FillLevel {
    number: u64,
    capacity: u64,
    load: u32,
}

impl Ord for FillLevel {
    fn cmp(&self, other: &Self) -> Ordering {
        let (own, others) = (self.number * other.capacity, other.number * self.capacity);
        own.cmp(&others)
            .then(other.capacity.cmp(&self.capacity))
            .then(self.load.cmp(&other.load))
    }
}

impl PartialOrd for FillLevel {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Fill levels of the cpus of a machine, by position.
pub(super) struct FillLevels {
    /// Capacity, position in the core, usable cpus of the core, and load of its other cpus; empty
    /// if all are equally fast.
    cpus: Vec<(u64, u64, u64, u64)>,
}

impl FillLevels {
    pub(super) fn of(problem: &JointProblem) -> Self {
        if is_uniform(problem) {
            return Self { cpus: Vec::new() };
        }
        let mut cores: BTreeMap<u32, (Vec<CpuId>, u64)> = BTreeMap::new();
        for cpu in problem.topology.cpus() {
            let (usable, beside) = cores.entry(cpu.core).or_default();
            if is_usable(problem, cpu) {
                usable.push(cpu.id);
            } else {
                let here = problem.obstacles.iter().filter(|o| o.cpu == cpu.id);
                *beside += here.map(|o| u64::from(o.weight)).sum::<u64>();
            }
        }
        let of = |cpu: &Cpu| {
            let (usable, beside) = &cores[&cpu.core];
            let place = usable.iter().position(|&id| id == cpu.id).unwrap_or(0);
            let width = usable.len().max(1) as u64;
            (cpu.capacity.into(), place as u64, width, *beside)
        };
        Self {
            cpus: problem.topology.cpus().iter().map(of).collect(),
        }
    }

    /// The level of the last of `load` threads on a cpu, obstacles included.
    pub(super) fn level(&self, position: usize, load: u32) -> FillLevel {
        let equally_fast = FillLevel {
            number: load.into(),
            capacity: 1,
            load,
        };
        match self.cpus.get(position) {
            Some(&(capacity, place, width, beside)) if load > 0 => FillLevel {
                number: (u64::from(load) - 1) * width + place + 1 + beside,
                capacity,
                load,
            },
            _ => equally_fast,
        }
    }
}

/// Whether any deployment may use a cpu.
fn is_usable(problem: &JointProblem, cpu: &Cpu) -> bool {
    let mut cpusets = problem
        .deployments
        .iter()
        .map(|deployment| &deployment.cpuset);
    cpusets.any(|cpuset| cpuset.contains(cpu.id))
}

/// Whether all cpus that any deployment may use are equally fast.
pub(super) fn is_uniform(problem: &JointProblem) -> bool {
    // fast path: most machines are uniform
    problem.topology.is_uniform() || {
        let slow = slow_cpus(problem);
        let mut cpus = problem.topology.cpus().iter().zip(slow);
        cpus.all(|(cpu, slow)| !slow || !is_usable(problem, cpu))
    }
}

/// Whether each cpu is slower than the fastest that any deployment may use.
pub(super) fn slow_cpus(problem: &JointProblem) -> Vec<bool> {
    let cpus = problem.topology.cpus();
    let capacities = || {
        let used = cpus.iter().filter(|cpu| is_usable(problem, cpu));
        used.map(|cpu| cpu.capacity)
    };
    let fastest = capacities().max().unwrap_or_default();
    let is_slow = |cpu: &Cpu| cpu.capacity < fastest;
    cpus.iter().map(is_slow).collect()
}

/// Fewest and most threads of each cpu by rule (8), in the order of the topology. Where cores
/// differ in speed, the counts that result if each thread takes the cpu on which its level is
/// lowest among those that hold fewer threads than (2) and (3) allow.
pub fn cpu_volumes(problem: &Problem) -> Vec<(u32, u32)> {
    let count = problem.topology.cpus().len();
    let (workers, threads) = (u32::from(problem.workers), u32::from(problem.threads));
    let slots = workers * threads;
    if problem.topology.is_uniform() {
        let share = (slots / count as u32, slots.div_ceil(count as u32));
        return vec![share; count];
    }
    let levels = FillLevels::of(&JointProblem::of_one(problem));
    let most =
        (workers * threads.div_ceil(count as u32)).min(threads * workers.div_ceil(count as u32));
    let at_most = |level: FillLevel| -> Vec<u32> {
        let of = |cpu: usize| {
            let loads = (0..most).take_while(|&held| levels.level(cpu, held + 1) <= level);
            loads.count() as u32
        };
        (0..count).map(of).collect()
    };
    let mut all: Vec<FillLevel> = (0..count)
        .flat_map(|cpu| (1..=most).map(move |load| (cpu, load)))
        .map(|(cpu, load)| levels.level(cpu, load))
        .collect();
    all.sort_unstable();
    // the level of the last thread: lower levels are full, this one possibly in part
    let Some(&last) = all.get((slots - 1) as usize) else {
        return vec![(most, most); count];
    };
    let upper = at_most(last);
    let is_full = upper.iter().sum::<u32>() == slots;
    let on_last = |cpu: usize, held: u32| held > 0 && levels.level(cpu, held) == last;
    let range = |(cpu, &held): (usize, &u32)| match !is_full && on_last(cpu, held) {
        true => (held - 1, held),
        false => (held, held),
    };
    upper.iter().enumerate().map(range).collect()
}
