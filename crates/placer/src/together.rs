//! Subjects that share the machine are one problem: their mains repel each other, and what one fills is not there for
//! another.
//!
//! Members are the subjects that the solver places and whose masks are written. What the others run counts as an
//! obstacle where it is known to sit: the cpus of a round robin, and threads whose mask is a single cpu, whether their
//! own program or somebody else put them there. A single member without obstacles is no joint problem: it is solved as if this file did
//! not exist. A newcomer moves others only where that gains more than [`JOINT_MOVE_COST`] a thread, or where the cpus
//! would be unevenly loaded.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use albacore_joint::{Deployment, JointProblem, Obstacle, check_joint, solve_joint};
use albacore_mapping::{Mode, Problem, Solution};
use albacore_plan::{Enforcement, Placement};
use albacore_topology::{CpuId, CpuSet, Distances, Topology};

use crate::limits::{JOINT_MOVE_COST, SOLVE_BUDGET, SOLVE_PAUSE_RATIO};
use crate::subject::{Subject, Surroundings};
use crate::{PlacerError, SubjectId};

/// What was solved together last.
#[derive(Debug, Default)]
pub(crate) struct Together {
    /// The subjects of the last look.
    subjects: Vec<SubjectId>,
    /// Mappings that had been solved by then: a new round robin is a new obstacle.
    solves: u64,
    asked: Option<Question>,
    not_before: Option<Instant>,
}

/// Everything that an answer depends on but the mappings in force.
#[derive(Debug, PartialEq)]
struct Question {
    machine: Topology,
    members: Vec<Member>,
    obstacles: Vec<Obstacle>,
}

#[derive(Debug, PartialEq)]
struct Member {
    subject: SubjectId,
    workers: u16,
    threads: u16,
    mode: Mode,
    cpuset: CpuSet,
}

impl Together {
    /// Brings the mappings of all members up to date.
    ///
    /// # Errors
    /// All together are beyond the solver's limits.
    pub(crate) fn update(
        &mut self,
        subjects: &mut BTreeMap<SubjectId, Subject>,
        around: &mut Surroundings<'_>,
    ) -> Result<(), PlacerError> {
        let is_still = self.subjects.iter().eq(subjects.keys())
            && self.solves == around.figures.solves
            && !subjects.values().any(|subject| subject.is_dirty);
        if is_still {
            return Ok(());
        }
        self.solves = around.figures.solves;
        let question = Question::of(subjects, around.machine);
        let is_joint = question.members.len() > 1
            || (question.members.len() == 1 && !question.obstacles.is_empty());
        for subject in subjects.values_mut() {
            if is_joint && question.members.iter().any(|m| m.subject == subject.id) {
                subject.solved.join();
            } else {
                subject.is_dirty |= subject.solved.leave();
            }
        }
        self.subjects = subjects.keys().copied().collect();
        if !is_joint {
            self.asked = None;
            return Ok(());
        }
        if self.asked.as_ref() == Some(&question) {
            return Ok(());
        }
        let start = Instant::now();
        if self.not_before.is_some_and(|at| start < at) {
            // a member without an answer asks again; so this is looked at again
            self.subjects.clear();
            return Ok(());
        }
        let solved = question.solve(subjects, start);
        let took = start.elapsed();
        self.not_before = Some(start + took * (1 + SOLVE_PAUSE_RATIO));
        for (member, (problem, solution)) in question.members.iter().zip(solved?) {
            if let Some(subject) = subjects.get_mut(&member.subject) {
                tell_if_new(subject, problem, solution, took, around);
            }
        }
        self.asked = Some(question);
        Ok(())
    }
}

fn tell_if_new(
    subject: &mut Subject,
    problem: Problem,
    solution: Solution,
    took: Duration,
    around: &mut Surroundings<'_>,
) {
    if subject.solved.adopt(problem, solution) {
        subject.is_dirty = true;
        subject.tell_planned(took, around);
    }
}

impl Question {
    fn of(subjects: &BTreeMap<SubjectId, Subject>, machine: &Topology) -> Self {
        let online = machine.cpuset();
        let mut members = Vec::new();
        let mut weights: BTreeMap<CpuId, u32> = BTreeMap::new();
        for subject in subjects.values() {
            let cpuset = subject.cpuset.cpus.intersection(&online);
            if !subject.tree.has_root() {
                // it ended and is about to give its masks back
                continue;
            }
            if !subject.is_placed() {
                for cpu in seats(subject)
                    .into_iter()
                    .filter(|&cpu| online.contains(cpu))
                {
                    *weights.entry(cpu).or_insert(0) += 1;
                }
            } else if !cpuset.is_empty() {
                members.push(Member {
                    subject: subject.id,
                    workers: subject.policy.workers,
                    threads: subject.policy.threads,
                    mode: subject.policy.mode,
                    cpuset,
                });
            }
        }
        let obstacle = |(cpu, weight)| Obstacle { cpu, weight };
        Self {
            machine: machine.clone(),
            members,
            obstacles: weights.into_iter().map(obstacle).collect(),
        }
    }

    /// The answer of each member, checked, with the problem that it answers.
    fn solve(
        &self,
        subjects: &BTreeMap<SubjectId, Subject>,
        start: Instant,
    ) -> Result<Vec<(Problem, Solution)>, PlacerError> {
        let deployment = |member: &Member| Deployment {
            workers: member.workers,
            threads: member.threads,
            mode: member.mode,
            cpuset: member.cpuset.clone(),
            current: subjects
                .get(&member.subject)
                .and_then(|subject| subject.solved.solution())
                .map(|solution| solution.mapping.clone()),
        };
        let problem = JointProblem {
            topology: self.machine.clone(),
            distances: Distances::default(),
            deployments: self.members.iter().map(deployment).collect(),
            obstacles: self.obstacles.clone(),
            move_cost: JOINT_MOVE_COST,
        };
        let joint = solve_joint(&problem, &mut || start.elapsed() >= SOLVE_BUDGET)?;
        check_joint(&problem, &joint)
            .map_err(|violations| PlacerError::JointCheck { violations })?;
        let mut answers = Vec::with_capacity(problem.deployments.len());
        for (deployment, mapping) in problem.deployments.into_iter().zip(joint.mappings) {
            // members have a cpu of the machine, so none is left out
            let Ok(topology) = self.machine.restrict(&deployment.cpuset) else {
                continue;
            };
            let own = Problem {
                workers: deployment.workers,
                threads: deployment.threads,
                mode: deployment.mode,
                topology,
                distances: problem.distances,
                current: deployment.current,
            };
            let certificate = joint.certificate.clone();
            answers.push((
                own,
                Solution {
                    mapping,
                    certificate,
                },
            ));
        }
        Ok(answers)
    }
}

/// The cpus on which threads of a subject are known to sit. Those of a round robin are where they are planned to be,
/// also while a worker is being replaced.
fn seats(subject: &Subject) -> Vec<CpuId> {
    if subject.policy.placement == Placement::RoundRobin
        && subject.policy.enforcement == Enforcement::Enforce
    {
        let solution = subject.solved.solution();
        return solution.map_or_else(Vec::new, |solution| solution.mapping.cpus.clone());
    }
    let processes = subject.tree.iter();
    let threads = processes.flat_map(|process| process.threads.values());
    let single = threads.filter(|known| known.mask.len() == 1);
    single.filter_map(|known| known.mask.first()).collect()
}
