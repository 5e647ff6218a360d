//! A cache of one problem with its solution.
//!
//! **Problem.** When a worker is respawned, the problem is posed again although nothing that its
//! answer depends on has changed; a search that did not end with a proof would take its whole
//! budget again. **Approach.** The cached solution answers the cached problem, and the same problem
//! with that solution in force: then no thread moves and the certificate stays valid. **Proof
//! sketch.** A certificate states objective, bound and relaxed rules; none of them depends on the
//! mappings in force. If the solution is in force, moves and gain are 0 by definition, so a
//! solution that passed the checker once passes again. **Limits.** Any other change is a new
//! problem. An answer that was not proven optimal is not improved: for another attempt call
//! [`solve_joint`](crate::solve_joint). **Cost.** One comparison of both problems.

use crate::{Deployment, JointProblem, JointSolution};

/// A problem and its solution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CachedSolution {
    problem: JointProblem,
    solution: JointSolution,
}

/// Mappings in force that are expected in a problem.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CurrentMappings {
    /// The same as in the cached problem.
    SameAsProblem,
    SameAsSolution,
}

impl CachedSolution {
    /// Caches a problem with its solution, which the caller has checked.
    pub fn new(problem: JointProblem, solution: JointSolution) -> Self {
        Self { problem, solution }
    }

    /// Returns the solution of `problem` if it is the cached problem, with the same mappings in
    /// force or with the solution in force.
    pub fn get(&self, problem: &JointProblem) -> Option<JointSolution> {
        if self.is_same_problem(problem, CurrentMappings::SameAsSolution) {
            return Some(JointSolution {
                gained: 0,
                moved: 0,
                moved_least: 0,
                ..self.solution.clone()
            });
        }
        let same = self.is_same_problem(problem, CurrentMappings::SameAsProblem);
        same.then(|| self.solution.clone())
    }

    /// Whether `problem` is the cached one with its solution in force: nothing has to be done.
    pub fn is_in_force(&self, problem: &JointProblem) -> bool {
        self.is_same_problem(problem, CurrentMappings::SameAsSolution)
    }

    fn is_same_problem(&self, problem: &JointProblem, force: CurrentMappings) -> bool {
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
            && pairs.all(|(a, b)| is_same_deployment(a, b))
            && self.has_current(problem, force)
            && *topology == problem.topology
    }

    fn has_current(&self, problem: &JointProblem, force: CurrentMappings) -> bool {
        let in_force = problem.deployments.iter().map(|d| d.current.as_ref());
        let requested = self.problem.deployments.iter();
        match force {
            CurrentMappings::SameAsProblem => in_force.eq(requested.map(|d| d.current.as_ref())),
            CurrentMappings::SameAsSolution => in_force.eq(self.solution.mappings.iter().map(Some)),
        }
    }
}

/// Whether two deployments are equal, except for their mappings in force.
fn is_same_deployment(a: &Deployment, b: &Deployment) -> bool {
    let Deployment {
        workers,
        threads,
        mode,
        cpuset,
        current: _,
    } = a;
    (*workers, *threads, *mode) == (b.workers, b.threads, b.mode) && *cpuset == b.cpuset
}
