//! Runs both methods, and computes a bound and the gap.

use crate::check::{Measure, check};
use crate::problem::{Problem, ProblemError};
use crate::program::solve_program;
use crate::search::search;

/// Method that found a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Construction and local search.
    Search,
    /// The integer program, solved to optimality.
    Program,
}

/// A partition with its measures and bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// The sub-cluster of each model.
    pub assignment: Vec<usize>,
    /// Computed by the checker.
    pub measure: Measure,
    /// Lower bound of the objective.
    pub bound: f64,
    pub method: Method,
}

impl Solution {
    /// Upper bound of the distance from the objective to the optimum.
    #[must_use]
    pub fn gap(&self) -> f64 {
        (self.measure.objective - self.bound).max(0.0)
    }
}

/// The better result of both methods.
///
/// # Errors
/// The problem is invalid, or no partition within its limits was found.
pub fn solve(
    problem: &Problem,
    has_budget: &mut dyn FnMut() -> bool,
) -> Result<Solution, ProblemError> {
    problem.validate()?;
    let assignment = search(problem, has_budget);
    let searched = check(problem, &assignment).map(|measure| Solution {
        assignment,
        measure,
        bound: bound(problem),
        method: Method::Search,
    });
    let programmed = solve_program(problem).and_then(|assignment| {
        let measure = check(problem, &assignment).ok()?;
        // Solved to optimality: its own objective is the bound.
        Some(Solution {
            bound: measure.objective,
            method: Method::Program,
            assignment,
            measure,
        })
    });
    match (searched, programmed) {
        (Ok(searched), Some(programmed)) => {
            let bound = programmed.bound.min(searched.measure.objective);
            let is_as_good = searched.measure.objective <= programmed.measure.objective;
            let better = if is_as_good { searched } else { programmed };
            Ok(Solution { bound, ..better })
        }
        (Ok(searched), None) => Ok(searched),
        (Err(_), Some(programmed)) => Ok(programmed),
        (Err(broken), None) => Err(ProblemError::Impossible(format!(
            "no partition within the limits was found; the best one breaks a limit: {broken}"
        ))),
    }
}

/// Lower bound from single models: a model larger than the mean exceeds it in any sub-cluster, and
/// if there are fewer models than sub-clusters, one is empty.
fn bound(problem: &Problem) -> f64 {
    let (rate, memory) = problem.means();
    let largest = |of: &dyn Fn(usize) -> f64| {
        let largest = (0..problem.models.len()).map(of).fold(0.0, f64::max);
        let is_sparse = problem.models.len() < problem.clusters && largest > 0.0;
        let empty = if is_sparse { 1.0 } else { 0.0 };
        (largest - 1.0).max(empty)
    };
    largest(&|i| problem.models[i].rate / rate)
        + problem.weight * largest(&|i| problem.models[i].memory / memory)
}
