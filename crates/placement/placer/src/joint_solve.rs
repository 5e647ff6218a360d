//! Subjects that share the machine are one problem: their mains repel each other, and a cpu that
//! one of them fills is not free for another.
//!
//! Members are the subjects that the solver places and whose masks are written. Threads of other
//! subjects count as obstacles where their cpu is known: the cpus of a round robin, and threads
//! whose mask is a single cpu, whether their own program or another one set it. So does, on its
//! core, a cpu outside all cpusets that is the sibling of a container's cpu. A single member
//! without obstacles is no joint problem: it is solved by `subject_solver` alone. A new member
//! moves others only where that gains more than [`JOINT_MOVE_COST`] a thread, or where the cpus
//! would be unevenly loaded; on a machine of several NUMA domains, once one of them is warm, only
//! for the latter.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use albacore_os::Micros;
use albacore_plan::{Enforcement, PlacementMethod};
use albacore_solver::{
    CachedSolution, Deployment, JointProblem, JointSolution, Mapping, Obstacle, Problem, Solution,
    WorkBudget, check_joint, solve_joint,
};
use albacore_topology::{CpuId, CpuSet, Distances, Topology};

use crate::limits::{JOINT_MOVE_COST, NUMA_MOVE_COST, SOLVE_BUDGET};
use crate::solve_rate::SolveRate;
use crate::subject::{PassContext, Subject};
use crate::{PlacerError, SubjectId};

/// What was solved together last.
#[derive(Debug, Default)]
pub(crate) struct JointSolver {
    /// The subjects of the last check.
    subjects: Vec<SubjectId>,
    /// Mappings that had been solved by then: a new round robin is a new obstacle.
    solves: u64,
    /// The last solution; respawns do not invalidate it.
    cached: Option<CachedSolution>,
    rate: SolveRate,
}

/// What is asked, and which subject each deployment is.
#[derive(Debug)]
struct JointInput {
    members: Vec<SubjectId>,
    problem: JointProblem,
}

impl JointSolver {
    /// Brings the mappings of all members up to date.
    ///
    /// # Errors
    /// All together are beyond the solver's limits.
    pub(crate) fn update(
        &mut self,
        subjects: &mut BTreeMap<SubjectId, Subject>,
        context: &mut PassContext<'_>,
    ) -> Result<(), PlacerError> {
        let is_still = self.subjects.iter().eq(subjects.keys())
            && self.solves == context.figures.solves
            && !subjects
                .values()
                .any(|subject| subject.schedule.is_requested());
        if is_still {
            return Ok(());
        }
        self.solves = context.figures.solves;
        let now = context.reader.clock.now()?;
        let input = JointInput::of(subjects, context.machine, now);
        let is_joint = input.members.len() > 1
            || (input.members.len() == 1 && !input.problem.obstacles.is_empty());
        for subject in subjects.values_mut() {
            let is_member = is_joint && input.members.contains(&subject.id());
            let distances = subject.policy().distances.over(context.machine.distances());
            let are_ignored = is_member && distances != input.problem.distances;
            let before = std::mem::replace(&mut subject.are_distances_ignored, are_ignored);
            subject.schedule.request_if(before != are_ignored);
            if is_member {
                subject.solver.join(input.problem.distances);
            } else {
                subject.schedule.request_if(subject.solver.leave());
            }
        }
        self.subjects = subjects.keys().copied().collect();
        if !is_joint {
            self.cached = None;
            return Ok(());
        }
        let cached = self.cached.as_ref();
        if cached.is_some_and(|cached| cached.is_in_force(&input.problem)) {
            return Ok(());
        }
        let start = Instant::now();
        if !self.rate.wait(start).is_zero() {
            // a member without an answer asks again, and then this is checked again
            self.subjects.clear();
            return Ok(());
        }
        let solved = input.solve();
        let took = start.elapsed();
        self.rate.spend(took);
        let solved = solved?;
        for (member, (problem, solution)) in input.members.iter().zip(input.answers(&solved)) {
            if let Some(subject) = subjects.get_mut(member) {
                adopt_if_new(subject, problem, solution, took, context);
            }
        }
        self.cached = Some(CachedSolution::new(input.problem, solved));
        Ok(())
    }
}

fn adopt_if_new(
    subject: &mut Subject,
    problem: Problem,
    solution: Solution,
    took: Duration,
    context: &mut PassContext<'_>,
) {
    if subject.solver.adopt(problem, solution) {
        subject.schedule.request();
        subject.report_planned(took, context);
    }
}

impl JointInput {
    fn of(subjects: &BTreeMap<SubjectId, Subject>, machine: &Topology, now: Micros) -> Self {
        let online = machine.cpuset();
        let (mut members, mut deployments) = (Vec::new(), Vec::new());
        let mut weights: BTreeMap<CpuId, u32> = BTreeMap::new();
        for subject in subjects.values() {
            let cpuset = subject.cpuset.cpus.intersection(&online);
            if !subject.tree.has_root() {
                // it ended and is about to give its masks back
                continue;
            }
            if !subject.is_solved() {
                for cpu in fixed_cpus(subject)
                    .into_iter()
                    .filter(|&cpu| online.contains(cpu))
                {
                    *weights.entry(cpu).or_insert(0) += 1;
                }
            } else if !cpuset.is_empty() {
                members.push(subject.id());
                deployments.push(Deployment {
                    workers: subject.policy().workers,
                    threads: subject.policy().threads,
                    mode: subject.policy().mode,
                    cpuset,
                    current: subject.solver.current(subject.policy()),
                });
            }
        }
        let inside = subjects.values().filter(|s| s.tree.has_root());
        let contained: Vec<&CpuSet> = inside
            .clone()
            .filter(|subject| subject.is_in_cgroup())
            .map(|subject| &subject.cpuset.cpus)
            .collect();
        let known = inside.fold(CpuSet::new(), |all, s| all.union(&s.cpuset.cpus));
        for cpu in noisy_siblings(machine, &contained, &known).iter() {
            *weights.entry(cpu).or_insert(0) += 1;
        }
        let is_warm = |id: &SubjectId| subjects.get(id).is_some_and(|s| s.is_warm(now));
        let leaves_memory = has_numa(machine) && members.iter().any(is_warm);
        let obstacle = |(cpu, weight)| Obstacle { cpu, weight };
        Self {
            problem: JointProblem {
                topology: machine.clone(),
                distances: common_distances(&members, subjects, machine),
                deployments,
                obstacles: weights.into_iter().map(obstacle).collect(),
                move_cost: match leaves_memory {
                    true => NUMA_MOVE_COST,
                    false => JOINT_MOVE_COST,
                },
            },
            members,
        }
    }

    fn solve(&self) -> Result<JointSolution, PlacerError> {
        let problem = &self.problem;
        let joint = solve_joint(problem, &mut WorkBudget::of_time(SOLVE_BUDGET))?;
        check_joint(problem, &joint)
            .map_err(|violations| PlacerError::JointCheck { violations })?;
        Ok(joint)
    }

    /// The answer of each member, with the problem that it answers.
    fn answers(&self, joint: &JointSolution) -> Vec<(Problem, Solution)> {
        let placed = self.problem.deployments.iter().zip(&joint.mappings);
        let answer = |(deployment, mapping): (&Deployment, &Mapping)| {
            // members have a cpu of the machine, so none is left out
            let solution = Solution {
                mapping: mapping.clone(),
                certificate: joint.certificate.clone(),
            };
            Some((self.problem.alone(deployment)?, solution))
        };
        placed.filter_map(answer).collect()
    }
}

/// The distances that all members ask for; the machine's own if they ask for different ones.
fn common_distances(
    members: &[SubjectId],
    subjects: &BTreeMap<SubjectId, Subject>,
    machine: &Topology,
) -> Distances {
    let own = machine.distances();
    let members = members.iter().filter_map(|id| subjects.get(id));
    let mut asked = members.map(|subject| subject.policy().distances.over(own));
    let first = asked.next().unwrap_or(own);
    if asked.all(|other| other == first) {
        first
    } else {
        own
    }
}

/// Whether memory is nearer to some cpus than to others.
fn has_numa(machine: &Topology) -> bool {
    machine.node_count() > 1
}

/// Cpus of no subject that share a core with a cpu of a container: the kubelet gave them to other
/// containers.
fn noisy_siblings(machine: &Topology, contained: &[&CpuSet], known: &CpuSet) -> CpuSet {
    let cpus = machine.cpus().iter();
    let ours = cpus
        .clone()
        .filter(|cpu| contained.iter().any(|cpuset| cpuset.contains(cpu.id)));
    let cores: BTreeSet<u32> = ours.map(|cpu| cpu.core).collect();
    cpus.filter(|cpu| !known.contains(cpu.id) && cores.contains(&cpu.core))
        .map(|cpu| cpu.id)
        .collect()
}

/// The cpus on which threads of a subject are known to sit. Those of a round robin are where they
/// are planned to be, also while a worker is being replaced.
fn fixed_cpus(subject: &Subject) -> Vec<CpuId> {
    if subject.policy().placement == PlacementMethod::RoundRobin
        && subject.policy().enforcement == Enforcement::Enforce
    {
        let solution = subject.solver.solution();
        return solution.map_or_else(Vec::new, |solution| solution.mapping.cpus.clone());
    }
    let processes = subject.tree.iter();
    let threads = processes.flat_map(|process| process.threads.values());
    let single = threads.filter(|known| known.mask.len() == 1);
    single.filter_map(|known| known.mask.first()).collect()
}

#[cfg(test)]
mod tests {
    use albacore_topology::parse_synthetic;

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
        // A core and a half, and another subject's half core.
        let own: CpuSet = [cores[0][0], cores[0][1], cores[1][0]]
            .into_iter()
            .collect();
        let other: CpuSet = [cores[2][0]].into_iter().collect();
        let known = own.union(&other);
        let noisy = noisy_siblings(&machine, &[&own], &known);
        assert_eq!(noisy, [cores[1][1]].into_iter().collect());
        let both = noisy_siblings(&machine, &[&own, &other], &known);
        assert_eq!(both, [cores[1][1], cores[2][1]].into_iter().collect());
        assert!(noisy_siblings(&machine, &[], &known).is_empty());
    }
}
