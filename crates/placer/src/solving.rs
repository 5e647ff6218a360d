//! Solves a subject's problem when it changed, within a time budget.

use std::time::{Duration, Instant};

use albacore_mapping::{Mapping, Problem, ProblemError, Solution, round_robin, solve};
use albacore_plan::{Observation, Placement, Policy, problem};

use crate::limits::{SOLVE_BUDGET, SOLVE_PAUSE_RATIO};

/// The mapping in force, and the problem that it answers.
#[derive(Debug, Default)]
pub(crate) struct Solved {
    answer: Option<(Placement, Problem, Solution)>,
    not_before: Option<Instant>,
}

/// What became of a wish for a mapping.
pub(crate) enum Solving {
    /// Nothing is to be solved: the kernel places, or there is no cpu.
    Nothing,
    /// The mapping in force still answers the problem.
    Current,
    /// There is a new mapping, found in this time.
    Fresh(Duration),
    /// The problem changed, but the last solve was a moment ago: ask again then.
    Later(Duration),
}

impl Solved {
    /// The problem and the mapping in force.
    pub(crate) fn pair(&self) -> Option<(&Problem, &Mapping)> {
        self.answer
            .as_ref()
            .map(|(_, problem, solution)| (problem, &solution.mapping))
    }

    /// The answer in force.
    pub(crate) fn solution(&self) -> Option<&Solution> {
        self.answer.as_ref().map(|(_, _, solution)| solution)
    }

    /// Brings the mapping up to date with what is asked.
    pub(crate) fn update(
        &mut self,
        policy: &Policy,
        observation: &Observation,
    ) -> Result<Solving, ProblemError> {
        let current = self
            .answer
            .as_ref()
            .map(|(_, _, solution)| &solution.mapping);
        let Some(wanted) = problem(policy, observation, current) else {
            // An empty cpuset is a moment: the mapping is the start for the next one.
            if policy.placement == Placement::None {
                self.answer = None;
            }
            return Ok(Solving::Nothing);
        };
        if let Some((placement, problem, _)) = &self.answer
            && *placement == policy.placement
            && is_same(problem, &wanted)
        {
            return Ok(Solving::Current);
        }
        let start = Instant::now();
        if let Some(wait) = self
            .not_before
            .and_then(|at| at.checked_duration_since(start))
            && !wait.is_zero()
        {
            return Ok(Solving::Later(wait));
        }
        let solution = match policy.placement {
            Placement::RoundRobin => round_robin(&wanted)?,
            Placement::Tuna | Placement::None => {
                solve(&wanted, &mut || start.elapsed() >= SOLVE_BUDGET)?
            }
        };
        let took = start.elapsed();
        self.not_before = Some(start + took * (1 + SOLVE_PAUSE_RATIO));
        self.answer = Some((policy.placement, wanted, solution));
        Ok(Solving::Fresh(took))
    }
}

/// True if two problems ask the same; the mapping they start from is no part of the question.
fn is_same(a: &Problem, b: &Problem) -> bool {
    let Problem {
        workers,
        threads,
        mode,
        topology,
        distances,
        current: _,
    } = a;
    (*workers, *threads, *mode) == (b.workers, b.threads, b.mode)
        && *topology == b.topology
        && *distances == b.distances
}
