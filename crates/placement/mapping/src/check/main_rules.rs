//! The rules on mains in their joint form: mains-per-core, fast-mains, (12) and (12+).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use albacore_topology::CpuSet;

use super::fill_levels::{is_uniform, slow_cpus};
use super::placed::Placed;
use super::several::loads;
use crate::{Deployment, JointProblem, Obstacle, Relaxation};

/// The rules that are broken, and by how much.
pub(super) fn relaxed(problem: &JointProblem, placed: &[Placed<'_>]) -> Vec<Relaxation> {
    let (full_cpus, full_cores) = full_with_mains(problem, placed);
    [
        ("mains-per-core", excess_on_core(problem, placed)),
        ("fast-mains", slow_mains(problem, placed)),
        ("12", full_cpus),
        ("12+", full_cores),
    ]
    .into_iter()
    .filter(|&(_, amount)| amount > 0)
    .map(|(rule, amount)| Relaxation { rule, amount })
    .collect()
}

/// Mains on cores that are slower than the fastest.
pub(super) fn slow_mains(problem: &JointProblem, placed: &[Placed<'_>]) -> u32 {
    let slow = slow_cpus(problem);
    let mains = placed.iter().flat_map(Placed::main_positions);
    mains.filter(|&position| slow[position]).count() as u32
}

/// Mains on the most crowded core beyond the smallest limit with which all mains can be placed.
fn excess_on_core(problem: &JointProblem, placed: &[Placed<'_>]) -> u32 {
    most_on_core(placed) - least_on_core(problem, placed)
}

fn most_on_core(placed: &[Placed<'_>]) -> u32 {
    let mut mains: BTreeMap<u32, u32> = BTreeMap::new();
    for cpu in placed.iter().flat_map(Placed::mains) {
        *mains.entry(cpu.core).or_insert(0) += 1;
    }
    mains.into_values().max().unwrap_or(0)
}

/// The smallest limit on mains per core with which every deployment can place its mains.
pub(super) fn least_on_core(problem: &JointProblem, placed: &[Placed<'_>]) -> u32 {
    let demand = CoreDemand::of(problem);
    // the given mappings reach `most`, and no limit below the average is feasible
    let mut most = most_on_core(placed);
    let mut least = demand.average();
    while least < most {
        let middle = least.midpoint(most);
        if demand.fits(middle) {
            most = middle;
        } else {
            least = middle + 1;
        }
    }
    most
}

/// Mains by kind of deployment (same cpuset, same W). Deployments of one kind are aggregated,
/// because what they can place together they can place in equal shares.
struct CoreDemand {
    cores: usize,
    /// Per kind: its mains, and how many of them each core takes: ceil(W/C) per cpu.
    kinds: Vec<(u32, Vec<u32>)>,
}

impl CoreDemand {
    fn of(problem: &JointProblem) -> Self {
        let cpus = problem.topology.cpus();
        let mut numbers = BTreeMap::new();
        for cpu in cpus {
            let next = numbers.len();
            numbers.entry(cpu.core).or_insert(next);
        }
        let mut kinds: BTreeMap<(&CpuSet, u16), u32> = BTreeMap::new();
        for deployment in &problem.deployments {
            let alike = (&deployment.cpuset, deployment.workers);
            *kinds.entry(alike).or_insert(0) += 1;
        }
        let kind = |((cpuset, workers), count): ((&CpuSet, u16), u32)| {
            let on_cpu = u32::from(workers).div_ceil(cpuset.len() as u32);
            let mut room = vec![0; numbers.len()];
            for cpu in cpus.iter().filter(|cpu| cpuset.contains(cpu.id)) {
                room[numbers[&cpu.core]] += count * on_cpu;
            }
            (count * u32::from(workers), room)
        };
        Self {
            cores: numbers.len(),
            kinds: kinds.into_iter().map(kind).collect(),
        }
    }

    /// Mains for each core that takes any, rounded up.
    fn average(&self) -> u32 {
        let mains: u32 = self.kinds.iter().map(|&(mains, _)| mains).sum();
        let takes = |&core: &usize| self.kinds.iter().any(|(_, room)| room[core] > 0);
        let cores = (0..self.cores).filter(takes).count();
        mains.div_ceil(cores.max(1) as u32)
    }

    /// Whether all mains can be placed with at most `limit` per core: a flow from kinds to cores.
    fn fits(&self, limit: u32) -> bool {
        let mut flow = vec![vec![0; self.cores]; self.kinds.len()];
        let mut held = vec![0; self.cores];
        for (kind, (mains, room)) in self.kinds.iter().enumerate() {
            let mut left = *mains;
            for core in 0..self.cores {
                let more = room[core].min(limit - held[core]).min(left);
                flow[kind][core] = more;
                held[core] += more;
                left -= more;
            }
            // bound: each path places at least one main
            while left > 0 {
                match self.place_more(kind, (limit, left), (&mut flow, &mut held)) {
                    0 => return false,
                    more => left -= more,
                }
            }
        }
        true
    }

    /// Places more mains of a kind on an augmenting path, which may move others; returns how many.
    fn place_more(
        &self,
        kind: usize,
        (limit, left): (u32, u32),
        (flow, held): FlowTables<'_>,
    ) -> u32 {
        let mut to_core: Vec<Option<usize>> = vec![None; self.cores];
        let mut off_core: Vec<Option<usize>> = vec![None; self.kinds.len()];
        let mut seen = vec![false; self.kinds.len()];
        seen[kind] = true;
        let mut queue = VecDeque::from([kind]);
        // bound: each kind is seen once
        while let Some(at) = queue.pop_front() {
            for core in 0..self.cores {
                if to_core[core].is_some() || flow[at][core] >= self.kinds[at].1[core] {
                    continue;
                }
                to_core[core] = Some(at);
                if held[core] < limit {
                    let more = left.min(limit - held[core]);
                    let more = self.augment(core, more, (&to_core, &off_core), flow);
                    held[core] += more;
                    return more;
                }
                for other in 0..self.kinds.len() {
                    if flow[other][core] > 0 && !std::mem::replace(&mut seen[other], true) {
                        off_core[other] = Some(core);
                        queue.push_back(other);
                    }
                }
            }
        }
        0
    }

    /// Augments the path to a core by as much as all its arcs allow; returns how much.
    fn augment(
        &self,
        end: usize,
        most: u32,
        (to_core, off_core): (&[Option<usize>], &[Option<usize>]),
        flow: &mut [Vec<u32>],
    ) -> u32 {
        let (mut more, mut core) = (most, end);
        // bound: a path contains no core twice
        while let Some(kind) = to_core[core] {
            more = more.min(self.kinds[kind].1[core] - flow[kind][core]);
            let Some(from) = off_core[kind] else { break };
            more = more.min(flow[kind][from]);
            core = from;
        }
        core = end;
        while let Some(kind) = to_core[core] {
            flow[kind][core] += more;
            let Some(from) = off_core[kind] else { break };
            flow[kind][from] -= more;
            core = from;
        }
        more
    }
}

type FlowTables<'a> = (&'a mut Vec<Vec<u32>>, &'a mut Vec<u32>);

/// (12) or (12+), for units (cpus or cores) among which all threads are divided: units with `.0`
/// threads are full, and `.1` full units may hold a main.
type FullUnits = Option<(u32, u32)>;

/// Both rules, where they bind: all deployments have the same cpus, which are equally fast, and
/// nothing else runs there.
fn full_rules(problem: &JointProblem) -> (FullUnits, FullUnits) {
    let Some(first) = problem.deployments.first() else {
        return (None, None);
    };
    if !is_undivided(problem) || !is_uniform(problem) {
        return (None, None);
    }
    let cores = cores_of(problem, &first.cpuset);
    let (mut workers, mut threads) = (0, 0);
    for deployment in &problem.deployments {
        workers += u32::from(deployment.workers);
        threads += u32::from(deployment.workers) * u32::from(deployment.threads);
    }
    let rule = |units: u32| {
        let rest = threads % units;
        let binds = rest > 0 && threads >= units && workers <= units;
        let through = (workers + rest).saturating_sub(units);
        binds.then(|| (threads.div_ceil(units), through))
    };
    (rule(first.cpuset.len() as u32), rule(cores.len() as u32))
}

fn cores_of(problem: &JointProblem, cpuset: &CpuSet) -> BTreeSet<u32> {
    let cpus = problem.topology.cpus().iter();
    let own = cpus.filter(|cpu| cpuset.contains(cpu.id));
    own.map(|cpu| cpu.core).collect()
}

/// Whether all deployments have the same cpus and nothing else runs on their cores.
pub(super) fn is_undivided(problem: &JointProblem) -> bool {
    let Some(first) = problem.deployments.first() else {
        return true;
    };
    let cores = cores_of(problem, &first.cpuset);
    let beside = |obstacle: &Obstacle| {
        let core = problem.topology.cpu(obstacle.cpu).map(|cpu| cpu.core);
        obstacle.weight > 0 && core.is_some_and(|core| cores.contains(&core))
    };
    let has_other_cpuset = |other: &Deployment| other.cpuset != first.cpuset;
    !problem.deployments.iter().any(has_other_cpuset) && !problem.obstacles.iter().any(beside)
}

/// (12+), where it binds: threads of a full core, and how many full cores may hold a main.
pub(super) fn full_core_rule(problem: &JointProblem) -> FullUnits {
    full_rules(problem).1
}

/// (12) and (12+): full cpus and cores with a main, beyond what the counts force.
fn full_with_mains(problem: &JointProblem, placed: &[Placed<'_>]) -> (u32, u32) {
    let (of_cpus, of_cores) = full_rules(problem);
    if of_cpus.is_none() && of_cores.is_none() {
        return (0, 0);
    }
    let mut main_cpus = BTreeSet::new();
    let mut main_cores = BTreeSet::new();
    for cpu in placed.iter().flat_map(Placed::mains) {
        main_cpus.insert(cpu.id);
        main_cores.insert(cpu.core);
    }
    let load = loads(problem, placed);
    let mut core_load: BTreeMap<u32, u32> = BTreeMap::new();
    for cpu in problem.topology.cpus() {
        *core_load.entry(cpu.core).or_insert(0) += load[&cpu.id];
    }
    let beyond = |rule: FullUnits, full_mains: &dyn Fn(u32) -> usize| {
        rule.map_or(0, |(full, through)| {
            (full_mains(full) as u32).saturating_sub(through)
        })
    };
    (
        beyond(of_cpus, &|full| {
            main_cpus.iter().filter(|id| load[id] >= full).count()
        }),
        beyond(of_cores, &|full| {
            main_cores
                .iter()
                .filter(|core| core_load[core] >= full)
                .count()
        }),
    )
}
