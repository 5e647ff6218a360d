//! The answer that stands: a problem, what was answered, and whether it answers what is asked now.
//!
//! **Problem.** A worker is respawned and everything is asked again, although nothing that an
//! answer depends on has changed; where no proof ended the search, it would take its whole budget
//! again. **Approach.** A memory of one. It answers the problem it was given for, and the same
//! problem with that answer in force: then nobody moves and the certificate stays. **Proof
//! sketch.** A certificate speaks of objective, bound and relaxed rules; none of them depends on
//! what is in force. With every mapping in force as answered, moves and gain are 0 by their
//! definitions, so what passed the checker once passes again. **Limits.** Any other change, however
//! small, is a new question. An answer that was not proven best stays what it is: whoever wants
//! another try asks [`solve_joint`](crate::solve_joint). **Cost.** One comparison of both problems.

use crate::{Deployment, JointProblem, JointSolution};

/// A problem and its answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    problem: JointProblem,
    solution: JointSolution,
}

/// How mappings in force compare with what was answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Force {
    /// As when it was asked.
    AsAsked,
    AsAnswered,
}

impl Standing {
    /// A problem with its answer; that it is one, the caller has checked.
    pub fn new(problem: JointProblem, solution: JointSolution) -> Self {
        Self { problem, solution }
    }

    /// The answer to `problem`, if it is the one that was answered, or that with the answer in
    /// force.
    pub fn answer(&self, problem: &JointProblem) -> Option<JointSolution> {
        if self.asks_the_same(problem, Force::AsAnswered) {
            return Some(JointSolution {
                gained: 0,
                moved: 0,
                moved_least: 0,
                ..self.solution.clone()
            });
        }
        let same = self.asks_the_same(problem, Force::AsAsked);
        same.then(|| self.solution.clone())
    }

    /// Whether `problem` is the one that was answered with the answer in force: nothing is to be
    /// done.
    pub fn is_in_force(&self, problem: &JointProblem) -> bool {
        self.asks_the_same(problem, Force::AsAnswered)
    }

    fn asks_the_same(&self, problem: &JointProblem, force: Force) -> bool {
        let JointProblem {
            topology,
            distances,
            deployments,
            obstacles,
            move_cost,
        } = &self.problem;
        let mut pairs = deployments.iter().zip(&problem.deployments);
        deployments.len() == problem.deployments.len()
            && *move_cost == problem.move_cost
            && *distances == problem.distances
            && *obstacles == problem.obstacles
            && pairs.all(|(a, b)| is_alike(a, b))
            && self.is_at(problem, force)
            && *topology == problem.topology
    }

    fn is_at(&self, problem: &JointProblem, force: Force) -> bool {
        let in_force = problem.deployments.iter().map(|d| d.current.as_ref());
        let asked = self.problem.deployments.iter();
        match force {
            Force::AsAsked => in_force.eq(asked.map(|d| d.current.as_ref())),
            Force::AsAnswered => in_force.eq(self.solution.mappings.iter().map(Some)),
        }
    }
}

/// Whether two deployments ask the same, whatever is in force.
fn is_alike(a: &Deployment, b: &Deployment) -> bool {
    let Deployment {
        workers,
        threads,
        mode,
        cpuset,
        current: _,
    } = a;
    (*workers, *threads, *mode) == (b.workers, b.threads, b.mode) && *cpuset == b.cpuset
}
