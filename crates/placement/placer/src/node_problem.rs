//! The joint placement problem of all subjects of a machine, as a value: solved by the placer for
//! its subjects, and by other programs to predict the placer's result.
//!
//! A single server without obstacles is not a joint problem and is solved by [`place_single`]. Cpus
//! outside of all cpusets that are SMT siblings of a container's cpus count as obstacles on their
//! cores.

use std::collections::{BTreeMap, BTreeSet};

use albacore_plan::{PlacementMethod, SubjectPolicy};
use albacore_solver::{
    Certificate, Deployment, JointProblem, JointSolution, Mapping, Obstacle, Problem, ProblemError,
    Solution, WorkBudget, check_joint, improve, relaxed_by, round_robin, solve, solve_joint,
};
use albacore_topology::{CpuId, CpuSet, Distances, Topology};

use crate::PlacerError;
use crate::limits::{IMPROVEMENT_BUDGET, JOINT_MOVE_COST, NUMA_MOVE_COST, SOLVE_BUDGET};
use crate::move_hysteresis::apply_move_hysteresis;

/// A server that is placed by the solver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlaceableServer {
    /// `threads` is limited to the number that its CPU quota lets run.
    pub policy: SubjectPolicy,
    /// The cpus that it may use.
    pub cpuset: CpuSet,
    /// The mapping in force, or the one found at startup.
    pub current: Option<Mapping>,
    /// True if it has had time to touch its memory; before, its moves are free.
    pub is_warm: bool,
}

/// Inputs of the joint problem.
#[derive(Clone, Debug)]
pub struct NodeProblem<'a> {
    pub machine: &'a Topology,
    /// In the order in which they were added; each has a cpu of the machine.
    pub servers: Vec<PlaceableServer>,
    /// The cpus of other subjects' threads with a single cpu, once per thread.
    pub obstacle_cpus: Vec<CpuId>,
    /// The cpusets of all subjects that are containers.
    pub containers: Vec<CpuSet>,
    /// The union of the cpusets of all subjects.
    pub known: CpuSet,
}

impl NodeProblem<'_> {
    /// Indexes of the deployments of the joint problem that are running and may be moved at no
    /// cost.
    pub fn cold_deployments(&self) -> Vec<usize> {
        let runs_cold = |server: &PlaceableServer| server.current.is_some() && !server.is_warm;
        let servers = self.servers.iter().enumerate();
        let cold = servers.filter(|(_, server)| runs_cold(server));
        cold.map(|(index, _)| index).collect()
    }

    pub fn joint(&self) -> JointProblem {
        let online = self.machine.cpuset();
        let mut weights: BTreeMap<CpuId, u32> = BTreeMap::new();
        let noisy = noisy_siblings(self.machine, &self.containers, &self.known);
        let fixed = self.obstacle_cpus.iter().copied();
        for cpu in fixed
            .filter(|&cpu| online.contains(cpu))
            .chain(noisy.iter())
        {
            *weights.entry(cpu).or_insert(0) += 1;
        }
        let deployment = |server: &PlaceableServer| Deployment {
            workers: server.policy.workers,
            threads: server.policy.threads,
            mode: server.policy.mode,
            cpuset: server.cpuset.intersection(&online),
            current: server.current.clone(),
        };
        let obstacle = |(cpu, weight)| Obstacle { cpu, weight };
        let is_warm = self.servers.iter().any(|server| server.is_warm);
        let leaves_memory = self.machine.node_count() > 1 && is_warm;
        JointProblem {
            topology: self.machine.clone(),
            distances: common_distances(&self.servers, self.machine),
            deployments: self.servers.iter().map(deployment).collect(),
            obstacles: weights.into_iter().map(obstacle).collect(),
            move_cost: match leaves_memory {
                true => NUMA_MOVE_COST,
                false => JOINT_MOVE_COST,
            },
        }
    }
}

/// True if the servers are placed together; false for a single one that is solved by
/// [`place_single`].
pub fn is_joint(problem: &JointProblem) -> bool {
    let servers = problem.deployments.len();
    servers > 1 || (servers == 1 && !problem.obstacles.is_empty())
}

/// The placer's solution of a joint problem.
///
/// The cold deployments are also solved as if they were not running yet. That solution is
/// used only if it is better, so that they are not moved without a gain; its move counts exclude
/// them.
///
/// # Errors
/// The joint problem exceeds the solver's limits, or the solution does not pass its check.
pub fn place_joint(
    problem: &JointProblem,
    cold_deployments: &[usize],
) -> Result<JointSolution, PlacerError> {
    let from_current = solve_checked(problem)?;
    if cold_deployments.is_empty() {
        return Ok(from_current);
    }
    let mut anew = problem.clone();
    for &index in cold_deployments {
        anew.deployments[index].current = None;
    }
    let found = solve_checked(&anew)?;
    let is_better = is_within(&found.certificate, &from_current.certificate)
        && net_objective(&anew, &found) > net_objective(&anew, &from_current);
    Ok(if is_better { found } else { from_current })
}

fn solve_checked(problem: &JointProblem) -> Result<JointSolution, PlacerError> {
    let joint = solve_joint(problem, &mut WorkBudget::of_time(SOLVE_BUDGET))?;
    check_joint(problem, &joint).map_err(|violations| PlacerError::JointCheck { violations })?;
    Ok(joint)
}

/// True if `found` relaxes no rule further than `other`.
fn is_within(found: &Certificate, other: &Certificate) -> bool {
    let mut relaxed = found.relaxed.iter();
    relaxed.all(|relaxed| relaxed.amount <= relaxed_by(&other.relaxed, relaxed.rule))
}

/// Objective minus the cost of the moves counted by `problem`.
fn net_objective(problem: &JointProblem, solution: &JointSolution) -> i64 {
    let placed = problem.deployments.iter().zip(&solution.mappings);
    let moved = placed.filter_map(|(deployment, mapping)| {
        let before = deployment.current.as_ref()?.cpus.iter();
        Some(before.zip(&mapping.cpus).filter(|(a, b)| a != b).count())
    });
    let moved = moved.sum::<usize>() as i64;
    solution.certificate.objective - i64::from(problem.move_cost) * moved
}

/// The placer's first solution for a subject with exclusive cpus; `is_warm` if it has had time to
/// touch its memory.
///
/// # Errors
/// The problem exceeds the solver's limits.
pub fn place_single(
    method: PlacementMethod,
    problem: &Problem,
    is_warm: bool,
) -> Result<Solution, ProblemError> {
    match method {
        PlacementMethod::RoundRobin => round_robin(problem),
        PlacementMethod::Tuna | PlacementMethod::None => {
            let found = solve(problem, &mut WorkBudget::of_time(SOLVE_BUDGET))?;
            Ok(apply_move_hysteresis(problem, found, is_warm))
        }
    }
}

/// Runs the placer's longer search for a first solution that is not proven optimal.
///
/// # Errors
/// As [`place_single`].
pub fn improve_single(
    problem: &Problem,
    solution: Solution,
    is_warm: bool,
) -> Result<Solution, ProblemError> {
    let from = Problem {
        current: Some(solution.mapping),
        ..problem.clone()
    };
    let found = improve(&from, &mut WorkBudget::of_time(IMPROVEMENT_BUDGET))?;
    Ok(apply_move_hysteresis(&from, found, is_warm))
}

/// Number of threads per worker that a CPU quota lets run concurrently. Further threads share their
/// worker's cpus, so that the worker is not throttled as a whole in the middle of a batch.
pub fn threads_within_quota(workers: u16, threads: u16, millicpus: Option<u32>) -> u16 {
    let Some(millicpus) = millicpus else {
        return threads;
    };
    let each = millicpus / 1_000 / u32::from(workers.max(1));
    // infallible: at most `threads`.
    each.clamp(1, u32::from(threads.max(1))) as u16
}

/// The distances requested by all servers; the machine's own if they differ.
fn common_distances(servers: &[PlaceableServer], machine: &Topology) -> Distances {
    let own = machine.distances();
    let mut requested = servers
        .iter()
        .map(|server| server.policy.distances.apply_to(own));
    let first = requested.next().unwrap_or(own);
    if requested.all(|other| other == first) {
        first
    } else {
        own
    }
}

/// Cpus of no subject that share a core with a cpu of a container: the kubelet assigned them to
/// other containers.
fn noisy_siblings(machine: &Topology, contained: &[CpuSet], known: &CpuSet) -> CpuSet {
    let cpus = machine.cpus().iter();
    let ours = cpus
        .clone()
        .filter(|cpu| contained.iter().any(|cpuset| cpuset.contains(cpu.id)));
    let cores: BTreeSet<u32> = ours.map(|cpu| cpu.core).collect();
    cpus.filter(|cpu| !known.contains(cpu.id) && cores.contains(&cpu.core))
        .map(|cpu| cpu.id)
        .collect()
}

#[cfg(test)]
mod tests {
    use albacore_plan::{Enforcement, MainThread};
    use albacore_solver::Mode;
    use albacore_topology::{DistanceOverrides, parse_synthetic};

    use super::*;

    #[test]
    fn siblings_outside_of_a_container_are_noisy_unless_they_are_ours() {
        let machine = parse_synthetic("pack:1 l3:1 core:4 pu:2").unwrap();
        let pairs: BTreeMap<u32, Vec<CpuId>> =
            machine
                .cpus()
                .iter()
                .fold(BTreeMap::new(), |mut pairs, cpu| {
                    pairs.entry(cpu.core).or_default().push(cpu.id);
                    pairs
                });
        let cores: Vec<&Vec<CpuId>> = pairs.values().collect();
        // A core and a half, and half a core of another subject.
        let own: CpuSet = [cores[0][0], cores[0][1], cores[1][0]]
            .into_iter()
            .collect();
        let other: CpuSet = [cores[2][0]].into_iter().collect();
        let known = own.union(&other);
        let noisy = noisy_siblings(&machine, std::slice::from_ref(&own), &known);
        assert_eq!(noisy, [cores[1][1]].into_iter().collect());
        let both = noisy_siblings(&machine, &[own, other], &known);
        assert_eq!(both, [cores[1][1], cores[2][1]].into_iter().collect());
        assert!(noisy_siblings(&machine, &[], &known).is_empty());
    }

    /// The cpus of a scattered worker, running on cpus of the first package, after a server with
    /// one thread was added to the second package.
    fn after_a_newcomer(running: &[u16], is_warm: bool) -> Vec<u16> {
        let machine = parse_synthetic("pack:2 l3:1 core:4 pu:1").unwrap();
        let server = |cpuset: CpuSet, current: &[u16], is_warm| PlaceableServer {
            policy: SubjectPolicy {
                workers: 1,
                threads: current.len().max(1) as u16,
                mode: Mode::Scatter,
                placement: PlacementMethod::Tuna,
                enforcement: Enforcement::Enforce,
                main_thread: MainThread::Pinned,
                distances: DistanceOverrides::default(),
                is_pool_size_known: true,
            },
            cpuset,
            current: (!current.is_empty()).then(|| Mapping {
                threads: current.len() as u16,
                cpus: current.iter().copied().map(CpuId).collect(),
            }),
            is_warm,
        };
        let node = NodeProblem {
            servers: vec![
                server(machine.cpuset(), running, is_warm),
                server([CpuId(4)].into_iter().collect(), &[], false),
            ],
            obstacle_cpus: Vec::new(),
            containers: Vec::new(),
            known: machine.cpuset(),
            machine: &machine,
        };
        let solved = place_joint(&node.joint(), &node.cold_deployments()).unwrap();
        solved.mappings[0].cpus.iter().map(|cpu| cpu.0).collect()
    }

    #[test]
    fn a_server_that_just_started_moves_for_any_gain_but_not_for_none() {
        // A thread in the other package gains 150 cycles, less than the cost of its move once it is
        // warm.
        assert_eq!(after_a_newcomer(&[0, 1], true), [0, 1]);
        let young = after_a_newcomer(&[0, 1], false);
        let in_first = young.iter().filter(|&&cpu| cpu < 4).count();
        assert_eq!(in_first, 1, "{young:?}");
        // A fresh placement would be on cpu 0, which is no better.
        assert_eq!(after_a_newcomer(&[1], false), [1]);
    }

    #[test]
    fn a_quota_leaves_each_worker_at_least_one_thread() {
        let within = |millicpus| threads_within_quota(2, 4, millicpus);
        assert_eq!(
            [None, Some(100), Some(5_900), Some(99_000)].map(within),
            [4, 1, 2, 4]
        );
    }
}
