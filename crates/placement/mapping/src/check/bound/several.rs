//! The bound for several deployments, recomputed from the problem and from the loads that all
//! balanced placements have in common.
//!
//! **Problem.** A certificate must be verifiable without trusting the solver. **Approach.** The
//! mains of all deployments (`mains`) and the pairs within workers are bounded separately.
//! *Scatter*: one worker alone on its cpuset, each thread placed greedily where it is farthest from
//! those before. *Compact*: level by level, a worker fills the domains with the largest capacities,
//! each no larger than rule (3) and the largest load allow; where (12+) keeps its main off full
//! cores, the capacity of the domain with the main is smaller. On cpus and on cores, the loads
//! limit the number of pairs.
//! **Proof sketch.** All balanced placements have the same loads up to permutation, so the largest
//! load limits every worker; x(x-1)/2 is convex, so whole domains have most pairs; distances form a
//! tree, so greedy placement maximizes distances; a sum of bounds bounds the sum. **Limits.**
//! Mappings that relax a rule further than admitted are not covered.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Mode, Relaxation, relaxed_by};
use albacore_topology::{Cpu, CpuSet};

use super::speeds::Speeds;
use super::{DomainKey, TreeLevel, farthest, fill, levels, mains, pairs};
use crate::check::fill_levels::is_uniform;
use crate::check::main_rules;
use crate::check::placed::Placed;
use crate::check::several::loads;
use crate::{Deployment, JointProblem};

/// Upper bound of the objective of all placements that relax no rule beyond `admitted`.
pub(in crate::check) fn counted(
    problem: &JointProblem,
    placed: &[Placed<'_>],
    admitted: &[Relaxation],
) -> i64 {
    let amount = |rule: &str| relaxed_by(admitted, rule);
    let on_core = main_rules::least_on_core(problem, placed) + amount("mains-per-core");
    let slow_mains = i64::from(amount("fast-mains"));
    let mut sum = mains::max_distance(problem, placed, on_core, slow_mains);
    let mut known: BTreeMap<(&CpuSet, u16), i64> = BTreeMap::new();
    let (mut scattered, mut farthest) = (0, 0);
    for deployment in &problem.deployments {
        let workers = i64::from(deployment.workers);
        let all = workers * i64::from(problem.distances.machine) * pairs(deployment.threads.into());
        match deployment.mode {
            Mode::Scatter => {
                let alike = (&deployment.cpuset, deployment.threads);
                let alone = known.entry(alike);
                scattered += workers * *alone.or_insert_with(|| spread(problem, deployment));
                farthest += all;
            }
            Mode::Compact => sum -= all,
        }
    }
    let rules = main_rules::full_core_rule(problem).map(|(full, through)| {
        let beside = i64::from(through + amount("12+")) * i64::from(on_core);
        (i64::from(full), beside)
    });
    let packing = Packing::of(problem, placed, rules);
    let by_speed = !is_uniform(problem) && main_rules::is_undivided(problem);
    let speeds = by_speed.then(|| Speeds::of(problem, &packing.loads[0]));
    for (at, TreeLevel { gain, key }) in levels(&problem.distances).into_iter().enumerate() {
        let most = packing.most(at, key);
        let of_speeds = speeds
            .as_ref()
            .and_then(|speeds| speeds.most(at, key, slow_mains));
        sum += gain * of_speeds.map_or(most, |of_speeds| of_speeds.min(most));
        farthest -= speeds
            .as_ref()
            .map_or(0, |speeds| gain * speeds.fewest(at, key));
    }
    sum + scattered.min(farthest)
}

/// The cpus of a deployment.
fn own<'a>(problem: &'a JointProblem, deployment: &Deployment) -> Vec<&'a Cpu> {
    let cpus = problem.topology.cpus().iter();
    cpus.filter(|cpu| deployment.cpuset.contains(cpu.id))
        .collect()
}

/// Most threads of one worker on a cpu by rule (3).
fn of_worker(deployment: &Deployment, cpus: usize) -> i64 {
    (i64::from(deployment.threads) + cpus as i64 - 1) / cpus as i64
}

/// Greatest sum of distances within one worker that is alone.
fn spread(problem: &JointProblem, deployment: &Deployment) -> i64 {
    let cpus = own(problem, deployment);
    let limits = (of_worker(deployment, cpus.len()), i64::MAX);
    farthest(&cpus, &problem.distances, deployment.threads.into(), limits)
}

/// Bounds the pairs of compact workers that share domains.
struct Packing<'a> {
    problem: &'a JointProblem,
    /// Loads of cpus, and of cores if they are the same in every balanced placement: not where
    /// cores differ in speed and some are open to only part of the deployments.
    loads: Vec<Vec<i64>>,
    /// (12+), where it binds: load of a full core, and how many mains may be on full cores.
    rules: Option<(i64, i64)>,
}

/// Capacity of a domain for one worker, and its reduction if the worker's main is in the domain and
/// must not be on a full core.
type DomainCapacity = (i64, i64);

impl<'a> Packing<'a> {
    fn of(problem: &'a JointProblem, placed: &[Placed<'_>], rules: Option<(i64, i64)>) -> Self {
        let of_cpus = loads(problem, placed);
        let mut of_cores: BTreeMap<u32, i64> = BTreeMap::new();
        for cpu in problem.topology.cpus() {
            *of_cores.entry(cpu.core).or_insert(0) += i64::from(of_cpus[&cpu.id]);
        }
        let of_cpus = of_cpus.into_values().map(i64::from);
        let mut all = vec![of_cpus.collect()];
        if is_uniform(problem) || main_rules::is_undivided(problem) {
            all.push(of_cores.into_values().collect());
        }
        Self {
            problem,
            loads: all,
            rules,
        }
    }

    fn compact(&self) -> impl Iterator<Item = &'a Deployment> {
        let all = self.problem.deployments.iter();
        all.filter(|deployment| deployment.mode == Mode::Compact)
    }

    /// Upper bound on the pairs within domains of a level.
    fn most(&self, level: usize, key: DomainKey) -> i64 {
        let alone = self.bound_alone(level, key);
        match self.loads.get(level) {
            Some(loads) => alone.min(self.bound_together(loads, key)),
            None => alone,
        }
    }

    /// The bound if each worker were alone.
    fn bound_alone(&self, level: usize, key: DomainKey) -> i64 {
        let (mut sum, mut gap, mut workers) = (0, 0, 0);
        let mut known: BTreeMap<(&CpuSet, u16), (i64, i64)> = BTreeMap::new();
        for deployment in self.compact() {
            let alike = (&deployment.cpuset, deployment.threads);
            let (free, bound) = *known.entry(alike).or_insert_with(|| {
                let capacities = self.capacities(deployment, level, key);
                most_pairs(&capacities, deployment.threads.into())
            });
            let count = i64::from(deployment.workers);
            sum += count * bound;
            gap = (free - bound).max(gap);
            workers += count;
        }
        let beside = self.rules.map_or(0, |(_, beside)| beside);
        sum + gap * workers.min(beside)
    }

    /// The capacities of the domains of a level, the largest first.
    fn capacities(
        &self,
        deployment: &Deployment,
        level: usize,
        key: DomainKey,
    ) -> Vec<DomainCapacity> {
        let cpus = own(self.problem, deployment);
        let of_worker = of_worker(deployment, cpus.len());
        let mut capacities: BTreeMap<u32, DomainCapacity> = BTreeMap::new();
        if level == 0 {
            return vec![(of_worker, 0); cpus.len()];
        }
        let mut cores: BTreeMap<u32, (u32, i64)> = BTreeMap::new();
        for cpu in cpus {
            cores.entry(cpu.core).or_insert((key(cpu), 0)).1 += of_worker;
        }
        let most = self
            .loads
            .get(1)
            .and_then(|loads| loads.iter().copied().max());
        let most = most.unwrap_or(i64::MAX);
        for (domain, takes) in cores.into_values() {
            let takes = takes.min(most);
            let below = self.rules.map_or(takes, |(full, _)| takes.min(full - 1));
            let capacity = capacities.entry(domain).or_insert((0, i64::MAX));
            *capacity = (capacity.0 + takes, capacity.1.min(takes - below));
        }
        let mut capacities: Vec<DomainCapacity> = capacities.into_values().collect();
        capacities.sort_unstable_by(|a, b| b.cmp(a));
        capacities
    }

    /// The bound that the loads of cpus or cores imply for all workers together.
    fn bound_together(&self, loads: &[i64], key: DomainKey) -> i64 {
        let mut cap = 1;
        for deployment in self.compact() {
            let cpus = own(self.problem, deployment);
            let of_worker = of_worker(deployment, cpus.len());
            let mut units: BTreeMap<u32, i64> = BTreeMap::new();
            for cpu in cpus {
                *units.entry(key(cpu)).or_insert(0) += of_worker;
            }
            let most = units.into_values().max().unwrap_or(0);
            cap = cap.max(most.min(deployment.threads.into()));
        }
        let of = |&load: &i64| load / cap * pairs(cap) + pairs(load % cap);
        loads.iter().map(of).sum()
    }
}

/// Most pairs of one worker within domains: unrestricted, and with its main on a core that is not
/// full.
fn most_pairs(capacities: &[DomainCapacity], threads: i64) -> (i64, i64) {
    let sizes = |without: usize| {
        let capacities = capacities.iter().enumerate();
        capacities.filter_map(move |(at, &(size, _))| (at != without).then_some(size))
    };
    let free = fill(sizes(usize::MAX), threads);
    if capacities.first().is_none_or(|&(_, less)| less == 0) {
        return (free, free);
    }
    let mut bound = 0;
    let kinds: BTreeSet<DomainCapacity> = capacities.iter().copied().collect();
    for kind in kinds {
        let at = capacities
            .iter()
            .position(|&capacity| capacity == kind)
            .unwrap_or(0);
        for with_main in 1..=(kind.0 - kind.1).min(threads) {
            bound = bound.max(pairs(with_main) + fill(sizes(at), threads - with_main));
        }
    }
    (free, bound.min(free))
}
