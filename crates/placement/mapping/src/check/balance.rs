//! Checks whether the loads of cpus, and then those of cores, are as even as the cpusets and rules
//! (2) and (3) allow.
//!
//! A thread of deployment d can move from cpu a to cpu b if both are in d's cpuset and b holds
//! fewer than min(W ceil(T/C), T ceil(W/C)) threads of d: workers and ranks can then be relabeled
//! so that (2) and (3) hold. Such moves are links of a graph; its paths are called chains. A chain
//! from a to b improves the balance of cpus if the loads of a and b differ by 2 or more (where
//! cores differ in speed: if a thread has a lower fill level on b than on a, see `fill_levels`). A
//! chain between loads that differ by 1 keeps that balance and links the two cores; a chain of such
//! links between cores whose loads differ by 2 or more improves the balance of cores. Where cores
//! differ in speed, fill levels keep the cores even.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use albacore_topology::CpuId;

use super::fill_levels::{FillLevels, is_uniform};
use super::placed::Placed;
use super::several::loads;
use crate::JointProblem;
use crate::JointViolation;

/// Returns the first violation of (8) that is found, or else of (8+).
pub(super) fn unbalanced(problem: &JointProblem, placed: &[Placed<'_>]) -> Option<JointViolation> {
    let levels = FillLevels::of(problem);
    if is_even(problem, placed, &levels) {
        return None;
    }
    let graph = MoveGraph::of(problem, placed);
    let reached: Vec<Vec<usize>> = (0..graph.load.len()).map(|cpu| graph.from(cpu)).collect();
    let ids: Vec<CpuId> = problem.topology.cpus().iter().map(|cpu| cpu.id).collect();
    for (from, ends) in reached.iter().enumerate() {
        let held = levels.level(from, graph.load[from]);
        let better = |&&to: &&usize| levels.level(to, graph.load[to] + 1) < held;
        if let Some(&to) = ends.iter().find(better) {
            let (from, to) = (ids[from], ids[to]);
            return Some(JointViolation::Unbalanced {
                rule: "8",
                from,
                to,
            });
        }
    }
    if !is_uniform(problem) {
        return None;
    }
    unbalanced_cores(problem, &graph.load, &reached).map(|(from, to)| JointViolation::Unbalanced {
        rule: "8+",
        from: ids[from],
        to: ids[to],
    })
}

/// Sufficient condition for balance, tested before any search for chains: no thread has a lower
/// fill level on another cpu that any deployment may use, and the loads of no two cores differ by
/// 2.
fn is_even(problem: &JointProblem, placed: &[Placed<'_>], levels: &FillLevels) -> bool {
    let load = loads(problem, placed);
    let mut of_cores: BTreeMap<u32, u32> = BTreeMap::new();
    let (mut held, mut with_one_more, mut cores) = (Vec::new(), Vec::new(), Vec::new());
    for cpu in problem.topology.cpus() {
        *of_cores.entry(cpu.core).or_insert(0) += load[&cpu.id];
    }
    for (position, cpu) in problem.topology.cpus().iter().enumerate() {
        if problem
            .deployments
            .iter()
            .any(|d| d.cpuset.contains(cpu.id))
        {
            held.push(levels.level(position, load[&cpu.id]));
            with_one_more.push(levels.level(position, load[&cpu.id] + 1));
            cores.push(of_cores[&cpu.core]);
        }
    }
    let even_cores = cores.iter().max() <= cores.iter().min().map(|l| l + 1).as_ref();
    held.iter().max() <= with_one_more.iter().min() && (even_cores || !is_uniform(problem))
}

/// Graph of the possible moves of threads between cpus, by position in the topology's list of cpus.
struct MoveGraph {
    load: Vec<u32>,
    /// Deployments with a thread on each cpu.
    deployments_on_cpu: Vec<Vec<usize>>,
    /// Cpus that can take one more thread of each deployment.
    cpus_with_room: Vec<Vec<usize>>,
}

impl MoveGraph {
    fn of(problem: &JointProblem, placed: &[Placed<'_>]) -> Self {
        let cpus = problem.topology.cpus();
        let load: Vec<u32> = loads(problem, placed).into_values().collect();
        let mut on = vec![Vec::new(); cpus.len()];
        let mut open = Vec::new();
        for (index, (deployment, own)) in problem.deployments.iter().zip(placed).enumerate() {
            let count = deployment.cpuset.len() as u32;
            let (workers, threads) = (u32::from(deployment.workers), u32::from(deployment.threads));
            let most = (workers * threads.div_ceil(count)).min(threads * workers.div_ceil(count));
            let mut held: BTreeMap<CpuId, u32> = BTreeMap::new();
            for cpu in own.cpus() {
                *held.entry(cpu.id).or_insert(0) += 1;
            }
            let mut takes = Vec::new();
            for (position, cpu) in cpus.iter().enumerate() {
                let here = held.get(&cpu.id).copied().unwrap_or(0);
                if here > 0 {
                    on[position].push(index);
                }
                if deployment.cpuset.contains(cpu.id) && here < most {
                    takes.push(position);
                }
            }
            open.push(takes);
        }
        Self {
            load,
            deployments_on_cpu: on,
            cpus_with_room: open,
        }
    }

    /// The ends of all chains that start at a cpu.
    fn from(&self, start: usize) -> Vec<usize> {
        let mut seen = vec![false; self.load.len()];
        seen[start] = true;
        let mut used = vec![false; self.cpus_with_room.len()];
        let mut ends = Vec::new();
        let mut waiting = VecDeque::from([start]);
        while let Some(cpu) = waiting.pop_front() {
            for &deployment in &self.deployments_on_cpu[cpu] {
                if std::mem::replace(&mut used[deployment], true) {
                    continue;
                }
                for &next in &self.cpus_with_room[deployment] {
                    if !std::mem::replace(&mut seen[next], true) {
                        ends.push(next);
                        waiting.push_back(next);
                    }
                }
            }
        }
        ends
    }
}

/// Returns the cpus at the ends of a chain of links between cores that improves the balance of
/// cores.
fn unbalanced_cores(
    problem: &JointProblem,
    load: &[u32],
    reached: &[Vec<usize>],
) -> Option<(usize, usize)> {
    let cpus = problem.topology.cpus();
    let mut members: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (position, cpu) in cpus.iter().enumerate() {
        members.entry(cpu.core).or_default().push(position);
    }
    let total = |core: u32| members[&core].iter().map(|&cpu| load[cpu]).sum::<u32>();
    for (&first, start) in &members {
        let mut seen = BTreeSet::from([first]);
        let mut waiting = VecDeque::from([first]);
        while let Some(core) = waiting.pop_front() {
            for &from in &members[&core] {
                for &to in &reached[from] {
                    if load[from] != load[to] + 1 || !seen.insert(cpus[to].core) {
                        continue;
                    }
                    if total(first) >= total(cpus[to].core) + 2 {
                        return Some((start[0], to));
                    }
                    waiting.push_back(cpus[to].core);
                }
            }
        }
    }
    None
}
