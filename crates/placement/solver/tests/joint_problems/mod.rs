//! Random joint problems for the tests of this crate.
#![allow(dead_code, unreachable_pub, clippy::expect_used)] // each test binary uses a part of it

use std::collections::BTreeMap;

use albacore_solver::{Deployment, JointProblem, Mapping, Obstacle};
use albacore_topology::{CpuId, CpuSet, Distances, Topology};
use proptest::prelude::*;

use crate::machines::{at_two_speeds, capacities, modes, topologies};

/// Limits on the size of random problems.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub cpus: u16,
    pub deployments: usize,
    pub workers: u16,
    pub threads: u16,
    /// Maximum number of placements, if that is bounded.
    pub placements: f64,
}

impl Sizes {
    /// Sizes that brute force can enumerate twice.
    pub const TINY: Self = Self {
        cpus: 12,
        deployments: 3,
        workers: 3,
        threads: 3,
        placements: 3_000.0,
    };
    /// Sizes on which the laws are tested.
    pub const SMALL: Self = Self {
        cpus: 32,
        deployments: 5,
        workers: 6,
        threads: 6,
        placements: f64::INFINITY,
    };
}

/// A deployment before its machine is known.
type Draft = (u16, u16, albacore_solver::Mode, u64, u32, Option<u64>);

fn drafts(sizes: Sizes) -> impl Strategy<Value = Vec<Draft>> {
    let percent = prop_oneof![Just(100u32), 20..=90u32];
    let current = prop_oneof![Just(None), any::<u64>().prop_map(Some)];
    let draft = (
        1..=sizes.workers,
        1..=sizes.threads,
        modes(),
        any::<u64>(),
        percent,
        current,
    );
    proptest::collection::vec(draft, 1..=sizes.deployments)
}

/// Joint problems on all kinds of machines: disjoint, nested and overlapping cpusets, obstacles,
/// some deployments with a random mapping in force.
pub fn joint_problems(sizes: Sizes) -> impl Strategy<Value = JointProblem> {
    let obstacles = proptest::collection::vec((any::<u16>(), 0..4u32), 0..3);
    let cost = prop_oneof![Just(0u32), 1..400u32];
    (topologies(sizes.cpus), drafts(sizes), obstacles, cost)
        .prop_map(|(topology, drafts, obstacles, move_cost)| {
            let ids: Vec<CpuId> = topology.cpus().iter().map(|cpu| cpu.id).collect();
            let deployments = drafts.iter().map(|draft| deployment(&ids, draft)).collect();
            let obstacle = |&(at, weight): &(u16, u32)| Obstacle {
                cpu: ids[usize::from(at) % ids.len()],
                weight,
            };
            JointProblem {
                obstacles: obstacles.iter().map(obstacle).collect(),
                distances: Distances::default(),
                topology,
                deployments,
                move_cost,
            }
        })
        .prop_filter("few placements", move |problem| {
            let ways =
                |d: &Deployment| (d.cpuset.len() as f64).powi((d.workers * d.threads).into());
            problem.deployments.iter().map(ways).product::<f64>() <= sizes.placements
        })
}

/// The same on machines with cores of one speed or of two.
pub fn joint_problems_at_any_speed(sizes: Sizes) -> impl Strategy<Value = JointProblem> {
    prop_oneof![joint_problems(sizes), joint_problems_at_two_speeds(sizes)]
}

/// The same on machines whose cores have two speeds.
pub fn joint_problems_at_two_speeds(sizes: Sizes) -> impl Strategy<Value = JointProblem> {
    let speeds = (any::<u64>(), capacities());
    (joint_problems(sizes), speeds).prop_map(|(problem, (slow, capacity))| JointProblem {
        topology: at_two_speeds(&problem.topology, slow, capacity),
        ..problem
    })
}

fn deployment(ids: &[CpuId], draft: &Draft) -> Deployment {
    let &(workers, threads, mode, seed, percent, current) = draft;
    let mut random = Random(seed | 1);
    let mut cpuset: CpuSet = ids
        .iter()
        .copied()
        .filter(|_| random.below(100) < percent as usize)
        .collect();
    if cpuset.is_empty() {
        cpuset.insert(ids[random.below(ids.len())]);
    }
    let current = current.map(|seed| {
        let mut random = Random(seed | 1);
        let slots = usize::from(workers * threads);
        Mapping {
            threads,
            // sometimes on a cpu that it may no longer use
            cpus: (0..slots).map(|_| ids[random.below(ids.len())]).collect(),
        }
    });
    Deployment {
        workers,
        threads,
        mode,
        cpuset,
        current,
    }
}

/// Whether a deployment is alone on the machine and its cores are equally fast: then the rules for
/// one apply.
pub fn is_alone(problem: &JointProblem) -> bool {
    let own = problem.topology.restrict(&problem.deployments[0].cpuset);
    problem.deployments.len() == 1
        && problem.obstacles.iter().all(|o| o.weight == 0)
        && own.expect("cpus of the machine").is_uniform()
}

/// xorshift64.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % below.max(1)
    }
}

/// A fill level: a thread's number in its core divided by capacity, then how slow it is, then its
/// number on the cpu; scaled to integers.
type TestLevel = (u64, u64, u64);

/// Loads of cpus in descending order, then those of cores; where cores differ in speed, the fill
/// levels of threads in descending order.
pub fn loads_from_the_largest(
    problem: &JointProblem,
    mappings: &[Mapping],
) -> (Vec<TestLevel>, Vec<u32>) {
    let core = |id: CpuId| problem.topology.cpu(id).expect("a cpu of the machine").core;
    let mut cpus: BTreeMap<CpuId, u32> = problem
        .topology
        .cpus()
        .iter()
        .map(|cpu| (cpu.id, 0))
        .collect();
    for obstacle in &problem.obstacles {
        *cpus.get_mut(&obstacle.cpu).expect("a cpu of the machine") += obstacle.weight;
    }
    for cpu in mappings.iter().flat_map(|mapping| &mapping.cpus) {
        *cpus.get_mut(cpu).expect("a cpu of the machine") += 1;
    }
    let mut cores: BTreeMap<u32, u32> = BTreeMap::new();
    for (&id, load) in &cpus {
        *cores.entry(core(id)).or_insert(0) += load;
    }
    let from_the_largest = |loads: &mut Vec<u32>| loads.sort_unstable_by(|a, b| b.cmp(a));
    let is_used = |id: CpuId| problem.deployments.iter().any(|d| d.cpuset.contains(id));
    let used = || problem.topology.cpus().iter().filter(|cpu| is_used(cpu.id));
    let speeds: std::collections::BTreeSet<u16> = used().map(|cpu| cpu.capacity).collect();
    if speeds.len() < 2 {
        let levels = cpus.values().map(|&load| (load.into(), 0, 0));
        let mut levels: Vec<TestLevel> = levels.collect();
        levels.sort_unstable_by(|a, b| b.cmp(a));
        let mut cores: Vec<u32> = cores.into_values().collect();
        from_the_largest(&mut cores);
        return (levels, cores);
    }
    // a multiple of all capacities that tests use
    let whole = 1024 * 341 * 315;
    let level = |cpu: &albacore_topology::Cpu| {
        let load = u64::from(cpus[&cpu.id]);
        if load == 0 {
            return (0, 0, 0);
        }
        let mates = || used().filter(|mate| mate.core == cpu.core);
        let idle = problem
            .topology
            .cpus()
            .iter()
            .filter(|mate| mate.core == cpu.core);
        let beside: u32 = idle
            .filter(|mate| !is_used(mate.id))
            .map(|mate| cpus[&mate.id])
            .sum();
        let place = mates().filter(|mate| mate.id < cpu.id).count() as u64;
        let number = (load - 1) * (mates().count().max(1) as u64) + place + 1 + u64::from(beside);
        let capacity = u64::from(cpu.capacity);
        assert_eq!(whole % capacity, 0, "a capacity that tests use");
        (number * whole / capacity, 1024 - capacity, load)
    };
    let mut levels: Vec<TestLevel> = problem.topology.cpus().iter().map(level).collect();
    levels.sort_unstable_by(|a, b| b.cmp(a));
    (levels, Vec::new())
}

/// Deployments of these sizes, each on the whole machine.
pub fn same_cpuset(
    topology: &Topology,
    sizes: &[(u16, u16, albacore_solver::Mode)],
) -> JointProblem {
    let deployment = |&(workers, threads, mode): &(u16, u16, albacore_solver::Mode)| Deployment {
        workers,
        threads,
        mode,
        cpuset: topology.cpuset(),
        current: None,
    };
    JointProblem {
        topology: topology.clone(),
        distances: Distances::default(),
        deployments: sizes.iter().map(deployment).collect(),
        obstacles: Vec::new(),
        move_cost: 0,
    }
}
