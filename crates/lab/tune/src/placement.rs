//! Placement of candidates by the solver: which of their threads share a core, and whether two
//! modes yield the same mapping.

use std::collections::{BTreeMap, BTreeSet};

use albacore_api::PlacementMode;
use albacore_solver::{Problem, Solution, WorkBudget, solve};
use albacore_topology::{CpuId, Topology};

use crate::configuration::Configuration;
use crate::cpus::{Cpus, SMT_YIELD};

/// Work budget of the solver per placement, in steps of about a microsecond.
const SOLVE_STEPS: u64 = 2_000;

/// Placements by size and mode, each solved once.
#[derive(Debug, Default)]
pub(crate) struct Placements(BTreeMap<(u16, u16, bool), Placement>);

/// The mapping of a size in a mode.
#[derive(Clone, Debug)]
struct Placement {
    /// The cpu of each thread; empty if the solver rejects the size.
    cpus: Vec<CpuId>,
    speed: f64,
}

impl Placements {
    /// Mean speed of a configuration's threads: 1 if each has its own core, 0 if the size cannot be
    /// placed.
    pub(crate) fn speed(&mut self, cpus: &Cpus, of: &Configuration) -> f64 {
        self.solved(cpus, of).speed
    }

    /// Whether both place every thread on the same cpu.
    pub(crate) fn are_equal(
        &mut self,
        cpus: &Cpus,
        one: &Configuration,
        other: &Configuration,
    ) -> bool {
        let first = self.solved(cpus, one).cpus.clone();
        self.solved(cpus, other).cpus == first
    }

    fn solved(&mut self, cpus: &Cpus, of: &Configuration) -> &Placement {
        let key = (of.workers, of.threads, of.mode == PlacementMode::Compact);
        let known = self.0.entry(key);
        known.or_insert_with(|| place(&cpus.topology, of))
    }
}

fn place(topology: &Topology, of: &Configuration) -> Placement {
    let problem = Problem {
        workers: of.workers,
        threads: of.threads,
        mode: match of.mode {
            PlacementMode::Compact => albacore_solver::Mode::Compact,
            PlacementMode::Scatter => albacore_solver::Mode::Scatter,
        },
        topology: topology.clone(),
        distances: topology.distances(),
        current: None,
    };
    match solve(&problem, &mut WorkBudget::of_steps(SOLVE_STEPS)) {
        Ok(solution) => Placement {
            speed: speed(topology, &solution),
            cpus: solution.mapping.cpus,
        },
        Err(_) => Placement {
            cpus: Vec::new(),
            speed: 0.0,
        },
    }
}

/// Models only cores with several busy cpus. Time sharing of more threads than cpus is part of the
/// demand for cpus.
fn speed(topology: &Topology, solution: &Solution) -> f64 {
    let used: BTreeSet<CpuId> = solution.mapping.cpus.iter().copied().collect();
    let mut cores: BTreeMap<u32, usize> = BTreeMap::new();
    for cpu in topology.cpus().iter().filter(|cpu| used.contains(&cpu.id)) {
        *cores.entry(cpu.core).or_default() += 1;
    }
    let work = |&busy: &usize| if busy > 1 { SMT_YIELD } else { 1.0 };
    cores.values().map(work).sum::<f64>() / used.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::tests_base;

    #[test]
    fn threads_on_one_core_are_slower_and_modes_may_be_equal() {
        let sized = |workers, threads, mode| Configuration {
            workers,
            threads,
            mode,
            ..tests_base()
        };
        let cpus = Cpus::of_tests(4, 2);
        let mut placements = Placements::default();
        let alone = sized(1, 4, PlacementMode::Scatter);
        assert_eq!(placements.speed(&cpus, &alone), 1.0);
        let spread = sized(2, 4, PlacementMode::Scatter);
        let packed = sized(2, 4, PlacementMode::Compact);
        assert_eq!(placements.speed(&cpus, &spread), SMT_YIELD / 2.0);
        assert!(!placements.are_equal(&cpus, &spread, &packed));
        let two = Cpus::of_tests(2, 1);
        let mut placements = Placements::default();
        let (spread, packed) = (
            sized(1, 2, PlacementMode::Scatter),
            sized(1, 2, PlacementMode::Compact),
        );
        assert!(placements.are_equal(&two, &spread, &packed));
    }
}
