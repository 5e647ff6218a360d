//! A single deployment that is alone on the machine: a problem of one deployment.

use super::instance::{Instance, NO_CPU};
use super::move_bound::displaced;
use super::solve::{gained, moved};
use crate::{
    Certificate, JointError, JointProblem, JointSolution, Problem, ProvenBound, Relaxation,
    Solution, WorkBudget, check, relaxed_by, solve,
};

/// Returns the answer of [`solve`], unless it gains less than its moves cost.
pub(super) fn solve_single(
    problem: &JointProblem,
    instance: &Instance,
    alone: &Problem,
    budget: &mut WorkBudget,
) -> Result<JointSolution, JointError> {
    let of_first = |error| JointError::Deployment {
        deployment: 0,
        error,
    };
    let mut solution = solve(alone, budget).map_err(of_first)?;
    if let Some(unmoved) = keep_current(alone, &solution, problem.move_cost) {
        solution = unmoved;
    }
    let positions: Vec<u16> = solution
        .mapping
        .cpus
        .iter()
        .map(|id| {
            let position = problem
                .topology
                .cpus()
                .binary_search_by_key(id, |cpu| cpu.id);
            position.map_or(NO_CPU, |position| position as u16)
        })
        .collect();
    Ok(JointSolution {
        mappings: vec![solution.mapping],
        certificate: solution.certificate,
        gained: gained(instance, &positions),
        moved: moved(instance, &positions),
        moved_least: displaced(instance),
    })
}

/// Returns the mapping in force if it keeps the rules as well as the solution does and the solution
/// gains no more than its moves cost.
fn keep_current(problem: &Problem, solution: &Solution, move_cost: u32) -> Option<Solution> {
    let current = problem.current.as_ref().filter(|_| move_cost > 0)?;
    let report = check(problem, current).ok()?;
    let found = &solution.certificate;
    let keeps = |now: &Relaxation| now.amount <= relaxed_by(&found.relaxed, now.rule);
    let pairs = current.cpus.iter().zip(&solution.mapping.cpus);
    let moved = pairs.filter(|(before, after)| before != after).count() as i64;
    let gain = found.objective - report.objective;
    let stays = report.relaxed.iter().all(keeps) && gain <= moved * i64::from(move_cost);
    stays.then(|| Solution {
        mapping: current.clone(),
        certificate: Certificate::of(
            report.objective,
            ProvenBound {
                bound: found.bound,
                proof: found.proof,
            },
            report.relaxed,
        ),
    })
}
