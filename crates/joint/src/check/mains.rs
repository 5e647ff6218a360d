//! The rules on mains in their joint form: mains-per-core, (12) and (12+).

use std::collections::{BTreeMap, BTreeSet};

use super::{Placed, loads};
use crate::JointProblem;
use albacore_mapping::Relaxation;

/// By how much each rule is broken, where it is.
pub(super) fn relaxed(problem: &JointProblem, placed: &[Placed<'_>]) -> Vec<Relaxation> {
    let (full_cpus, full_cores) = full_with_mains(problem, placed);
    [
        ("mains-per-core", crowded_cores(problem, placed)),
        ("12", full_cpus),
        ("12+", full_cores),
    ]
    .into_iter()
    .filter(|&(_, amount)| amount > 0)
    .map(|(rule, amount)| Relaxation { rule, amount })
    .collect()
}

/// Mains on the most crowded core beyond the least number with which all mains can be placed.
fn crowded_cores(problem: &JointProblem, placed: &[Placed<'_>]) -> u32 {
    let mut mains: BTreeMap<u32, u32> = BTreeMap::new();
    for (slot, cpu) in placed.iter().flatten() {
        *mains.entry(cpu.core).or_insert(0) += u32::from(slot.rank.0 == 0);
    }
    let most = mains.into_values().max().unwrap_or(0);
    // bound: `most` is reached by the mappings at hand, so the least number is not above it
    let least = (0..most)
        .find(|&limit| fits(problem, limit))
        .unwrap_or(most);
    most - least
}

/// Can every deployment place its mains, ceil(W/C) on a cpu, with at most `limit` on a core?
fn fits(problem: &JointProblem, limit: u32) -> bool {
    // a flow: deployment -> core, as much as its cpus there can take
    let mut room: Vec<BTreeMap<u32, u32>> = Vec::new();
    let mut held: BTreeMap<u32, u32> = BTreeMap::new();
    let mut flow: Vec<BTreeMap<u32, u32>> = Vec::new();
    for deployment in &problem.deployments {
        let most = u32::from(deployment.workers).div_ceil(deployment.cpuset.len() as u32);
        let mut own = BTreeMap::new();
        for cpu in problem.topology.cpus() {
            if deployment.cpuset.contains(cpu.id) {
                *own.entry(cpu.core).or_insert(0) += most;
            }
        }
        room.push(own);
        flow.push(BTreeMap::new());
    }
    for (deployment, asked) in problem.deployments.iter().enumerate() {
        for _ in 0..asked.workers {
            let mut seen = BTreeSet::new();
            if !push(deployment, limit, &room, (&mut flow, &mut held), &mut seen) {
                return false;
            }
        }
    }
    true
}

type Flow<'a> = (&'a mut Vec<BTreeMap<u32, u32>>, &'a mut BTreeMap<u32, u32>);

/// Places one more main of a deployment, moving others out of the way where it must.
fn push(
    deployment: usize,
    limit: u32,
    room: &[BTreeMap<u32, u32>],
    (flow, held): Flow<'_>,
    seen: &mut BTreeSet<u32>,
) -> bool {
    for (&core, &most) in &room[deployment] {
        let here = flow[deployment].get(&core).copied().unwrap_or(0);
        if here >= most || !seen.insert(core) {
            continue;
        }
        let is_free = held.get(&core).copied().unwrap_or(0) < limit;
        let other = if is_free {
            None
        } else {
            let mut others = 0..flow.len();
            let leaves = others.find(|&other| {
                other != deployment
                    && flow[other].get(&core).is_some_and(|&n| n > 0)
                    && push(other, limit, room, (&mut *flow, &mut *held), seen)
            });
            if leaves.is_none() {
                continue;
            }
            leaves
        };
        *flow[deployment].entry(core).or_insert(0) += 1;
        match other {
            Some(other) => {
                if let Some(count) = flow[other].get_mut(&core) {
                    *count -= 1;
                }
            }
            None => *held.entry(core).or_insert(0) += 1,
        }
        return true;
    }
    false
}

/// (12) and (12+): cpus and cores with the most threads and a main, beyond what the counts force.
fn full_with_mains(problem: &JointProblem, placed: &[Placed<'_>]) -> (u32, u32) {
    let Some(first) = problem.deployments.first() else {
        return (0, 0);
    };
    let cpus = problem.topology.cpus();
    let own = |id| first.cpuset.contains(id);
    let cores: BTreeSet<u32> = cpus.iter().filter(|c| own(c.id)).map(|c| c.core).collect();
    let apart = problem.deployments.iter().any(|d| d.cpuset != first.cpuset);
    let beside = problem.obstacles.iter().any(|obstacle| {
        let core = problem.topology.cpu(obstacle.cpu).map(|cpu| cpu.core);
        obstacle.weight > 0 && core.is_some_and(|core| cores.contains(&core))
    });
    if apart || beside {
        return (0, 0);
    }
    let workers: u32 = problem
        .deployments
        .iter()
        .map(|d| u32::from(d.workers))
        .sum();
    let threads: u32 = placed.iter().map(|own| own.len() as u32).sum();
    let mut main_cpus = BTreeSet::new();
    let mut main_cores = BTreeSet::new();
    for (_, cpu) in placed.iter().flatten().filter(|(s, _)| s.rank.0 == 0) {
        main_cpus.insert(cpu.id);
        main_cores.insert(cpu.core);
    }
    let load = loads(problem, placed);
    let mut core_load: BTreeMap<u32, u32> = BTreeMap::new();
    for cpu in cpus {
        *core_load.entry(cpu.core).or_insert(0) += load[&cpu.id];
    }
    let beyond = |units: u32, full_with_main: &dyn Fn(u32) -> usize| {
        let rest = threads % units;
        if rest == 0 || threads < units || workers > units {
            return 0;
        }
        let allowed = (workers + rest).saturating_sub(units);
        (full_with_main(threads.div_ceil(units)) as u32).saturating_sub(allowed)
    };
    (
        beyond(first.cpuset.len() as u32, &|full| {
            main_cpus.iter().filter(|id| load[id] >= full).count()
        }),
        beyond(cores.len() as u32, &|full| {
            main_cores
                .iter()
                .filter(|core| core_load[core] >= full)
                .count()
        }),
    )
}
