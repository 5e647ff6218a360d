//! Runs a program in microlp, and reads values and bound from microlp's own solution.
//!
//! good_lp hides the bound that a certificate needs: the one proven when a program was stopped.
//! Values of our objectives are integers, so microlp is run with a gap below one clock cycle and
//! its bound is rounded down: with `|objective| <= magnitude`, a relative gap of 0.9 / magnitude is
//! an absolute one below 0.9. microlp computes with floats, so a relative tolerance of 1e-6 is
//! added to its bound.

use good_lp::{
    Constraint, Expression, ProblemVariables, ResolutionError, Solution, SolverModel, Variable,
    WithMipGap, WithTimeLimit, solvers::microlp::microlp,
};

/// Gap for microlp, in cycles: below 1, so no integer fits between value and bound.
const GAP: f64 = 0.9;

/// A maximization problem with its constraints.
pub(crate) struct Program {
    pub(crate) variables: ProblemVariables,
    pub(crate) objective: Expression,
    pub(crate) constraints: Vec<Constraint>,
    /// Upper bound of the absolute value of the objective.
    pub(crate) magnitude: f64,
}

pub(crate) struct EngineSolution {
    /// Values of the requested variables, in their order.
    pub(crate) values: Vec<f64>,
    /// Proven upper bound of the objective, an integer; `None` if nothing was proven.
    pub(crate) bound: Option<i64>,
}

#[derive(Debug)]
pub(crate) enum Failure {
    /// The time limit was reached before a solution was found.
    Timeout,
    /// Error message of microlp.
    Engine(String),
}

/// The largest integer that satisfies a float bound.
fn floor_bound(bound: f64) -> Option<i64> {
    let spare = 1e-6 * bound.abs().max(1.0);
    bound.is_finite().then(|| (bound + spare).floor() as i64)
}

/// Solves `program` within `seconds`; the result has the values of `variables`.
pub(crate) fn run(
    program: Program,
    variables: &[Variable],
    seconds: f64,
) -> Result<EngineSolution, Failure> {
    let gap = (GAP / program.magnitude.max(1.0)) as f32;
    let mut model = program.variables.maximise(program.objective).using(microlp);
    for constraint in program.constraints {
        model.add_constraint(constraint);
    }
    let model = model.with_time_limit(seconds).with_mip_gap(gap);
    let solution = match model.map(SolverModel::solve) {
        Ok(Ok(solution)) => solution,
        // good_lp maps microlp to this variant only if the time limit was reached without a
        // solution
        Ok(Err(ResolutionError::Other(_))) => return Err(Failure::Timeout),
        Ok(Err(error)) => return Err(Failure::Engine(error.to_string())),
        Err(error) => return Err(Failure::Engine(error.to_string())),
    };
    let values = variables.iter().map(|&v| solution.value(v)).collect();
    let stats = solution.into_inner();
    Ok(EngineSolution {
        values,
        bound: stats.stats().best_bound.and_then(floor_bound),
    })
}
