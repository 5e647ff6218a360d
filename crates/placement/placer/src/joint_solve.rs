//! Subjects that share the machine form one joint problem: their main threads are placed apart, and
//! a cpu filled by one subject is not free for another.
//!
//! Members are the subjects that are placed by the solver and whose masks are written. Threads of
//! other subjects are obstacles if their cpu is known: the cpus of a round robin, and threads whose
//! mask is a single cpu, whichever program set it. Hot threads of members that belong to no worker
//! and have a single cpu are obstacles as well. A single member without obstacles is solved by
//! `subject_solver` alone. A new member moves threads of others only if that gains more than
//! [`JOINT_MOVE_COST`](crate::limits::JOINT_MOVE_COST) per thread, or if the cpus would otherwise
//! be unevenly loaded; on a machine with several NUMA nodes, once one of the members is warm, only
//! for the latter. Members that are not warm yet move for any gain. The problem is built by
//! `node_problem`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use albacore_os::Micros;
use albacore_plan::{Enforcement, PlacementMethod};
use albacore_solver::{
    CachedSolution, Deployment, JointProblem, JointSolution, Mapping, Problem, Solution,
};
use albacore_topology::{CpuId, CpuSet, Topology};

use crate::node_problem::{NodeProblem, PlaceableServer, is_joint, place_joint};
use crate::solve_rate::SolveRate;
use crate::subject::{PassContext, Subject};
use crate::worker_weights::reorder_workers;
use crate::{PlacerError, SubjectId};

/// State of the last joint solve.
#[derive(Debug, Default)]
pub(crate) struct JointSolver {
    /// The subjects at the last check.
    subjects: Vec<SubjectId>,
    /// Number of mappings solved by then, because a new round robin is a new obstacle.
    solves: u64,
    /// The last solution; respawns do not invalidate it.
    cached: Option<CachedSolution>,
    rate: SolveRate,
}

/// The joint problem, and the subject of each deployment.
#[derive(Debug)]
struct JointInput {
    members: Vec<SubjectId>,
    problem: JointProblem,
    /// Deployments that may be moved at no cost.
    cold_deployments: Vec<usize>,
}

impl JointSolver {
    /// Updates the mappings of all members.
    ///
    /// # Errors
    /// The joint problem exceeds the solver's limits.
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
        let is_joint = is_joint(&input.problem);
        for subject in subjects.values_mut() {
            let is_member = is_joint && input.members.contains(&subject.id());
            let distances = subject
                .policy()
                .distances
                .apply_to(context.machine.distances());
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
        if is_joint {
            self.solve(&input, subjects, context)?;
        } else {
            self.cached = None;
        }
        reorder_workers(subjects, &input.problem.obstacles, context);
        Ok(())
    }

    /// Solves the joint problem, unless its solution is already in force or solving is
    /// rate-limited.
    fn solve(
        &mut self,
        input: &JointInput,
        subjects: &mut BTreeMap<SubjectId, Subject>,
        context: &mut PassContext<'_>,
    ) -> Result<(), PlacerError> {
        let cached = self.cached.as_ref();
        if cached.is_some_and(|cached| cached.is_in_force(&input.problem)) {
            return Ok(());
        }
        let start = Instant::now();
        if !self.rate.wait(start).is_zero() {
            // A member without a solution requests another pass, which checks this again.
            self.subjects.clear();
            return Ok(());
        }
        let solved = place_joint(&input.problem, &input.cold_deployments);
        let took = start.elapsed();
        self.rate.spend(took);
        let solved = solved?;
        for (member, (problem, solution)) in input.members.iter().zip(input.answers(&solved)) {
            if let Some(subject) = subjects.get_mut(member) {
                adopt_if_new(subject, problem, solution, took, context);
            }
        }
        self.cached = Some(CachedSolution::new(input.problem.clone(), solved));
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
        let (mut ids, mut servers, mut obstacle_cpus) = (Vec::new(), Vec::new(), Vec::new());
        // A subject without a root has ended, and its masks are about to be restored.
        let inside = subjects.values().filter(|s| s.tree.has_root());
        for subject in inside.clone() {
            let cpuset = subject.cpuset.cpus.intersection(&online);
            obstacle_cpus.extend(subject.obstacle_cpus());
            if subject.is_solved() && !cpuset.is_empty() {
                ids.push(subject.id());
                servers.push(PlaceableServer {
                    policy: subject.policy().clone(),
                    cpuset,
                    current: subject.solver.current(subject.policy()),
                    is_warm: subject.is_warm(now),
                });
            }
        }
        let contained = inside.clone().filter(|subject| subject.is_in_cgroup());
        let node = NodeProblem {
            machine,
            servers,
            obstacle_cpus,
            containers: contained.map(|s| s.cpuset.cpus.clone()).collect(),
            known: inside.fold(CpuSet::new(), |all, s| all.union(&s.cpuset.cpus)),
        };
        Self {
            problem: node.joint(),
            cold_deployments: node.cold_deployments(),
            members: ids,
        }
    }

    /// The solution of each member, with its own problem.
    fn answers(&self, joint: &JointSolution) -> Vec<(Problem, Solution)> {
        let placed = self.problem.deployments.iter().zip(&joint.mappings);
        let answer = |(deployment, mapping): (&Deployment, &Mapping)| {
            // All members have a cpu of the machine, so none is left out.
            let solution = Solution {
                mapping: mapping.clone(),
                certificate: joint.certificate.clone(),
            };
            Some((self.problem.single_problem(deployment)?, solution))
        };
        placed.filter_map(answer).collect()
    }
}

impl Subject {
    /// The cpus of its threads that are obstacles for other subjects and for its own workers.
    pub(crate) fn obstacle_cpus(&self) -> Vec<CpuId> {
        match self.is_solved() {
            true => self.hot_fixed_cpus().collect(),
            // All threads with a single cpu, hot or not.
            false => self.fixed_cpus(),
        }
    }

    /// The cpus of threads of a subject that is not solved, as far as known. For a round robin,
    /// these are the planned cpus, even while a worker is being replaced.
    fn fixed_cpus(&self) -> Vec<CpuId> {
        if self.policy().placement == PlacementMethod::RoundRobin
            && self.policy().enforcement == Enforcement::Enforce
        {
            let solution = self.solver.solution();
            return solution.map_or_else(Vec::new, |solution| solution.mapping.cpus.clone());
        }
        let processes = self.tree.iter();
        let threads = processes.flat_map(|process| process.threads.values());
        let single = threads.filter(|known| known.mask.len() == 1);
        single.filter_map(|known| known.mask.first()).collect()
    }
}
