//! Runs a program in microlp, and takes values and bound from microlp's own answer.
//!
//! good_lp hides what a certificate needs: the bound that was proven by the time a program was
//! stopped. Values of our objectives are whole numbers, so microlp is asked for a gap below one
//! clock cycle and its bound is rounded down: with `|objective| <= magnitude`, a relative gap of
//! 0.9 / magnitude is an absolute one below 0.9. microlp computes with floats, so a bound is taken
//! with a millionth to spare.

use good_lp::{
    Constraint, Expression, ProblemVariables, ResolutionError, Solution, SolverModel, Variable,
    WithMipGap, WithTimeLimit, solvers::microlp::microlp,
};

/// Asked of microlp in cycles: below 1, where nothing whole lies between value and bound.
const GAP: f64 = 0.9;

/// What is maximized under which constraints.
pub(crate) struct Program {
    pub(crate) variables: ProblemVariables,
    pub(crate) objective: Expression,
    pub(crate) constraints: Vec<Constraint>,
    /// The objective never exceeds this, nor falls below its negative.
    pub(crate) magnitude: f64,
}

pub(crate) struct Found {
    /// Of the variables that were asked for, in their order.
    pub(crate) values: Vec<f64>,
    /// Nothing whole exceeds this; `None` where nothing was proven.
    pub(crate) bound: Option<i64>,
}

#[derive(Debug)]
pub(crate) enum Failure {
    /// The time was over before there was a solution.
    Time,
    /// In microlp's words.
    Broken(String),
}

/// The largest whole number that a float bound leaves.
fn whole(bound: f64) -> Option<i64> {
    let spare = 1e-6 * bound.abs().max(1.0);
    bound.is_finite().then(|| (bound + spare).floor() as i64)
}

/// Solves `program` for `seconds` at most; the answer has the values of `variables`.
pub(crate) fn run(
    program: Program,
    variables: &[Variable],
    seconds: f64,
) -> Result<Found, Failure> {
    let gap = (GAP / program.magnitude.max(1.0)) as f32;
    let mut model = program.variables.maximise(program.objective).using(microlp);
    for constraint in program.constraints {
        model.add_constraint(constraint);
    }
    let model = model.with_time_limit(seconds).with_mip_gap(gap);
    let solution = match model.map(SolverModel::solve) {
        Ok(Ok(solution)) => solution,
        // good_lp has this variant of microlp only for a time that was over too early
        Ok(Err(ResolutionError::Other(_))) => return Err(Failure::Time),
        Ok(Err(error)) => return Err(Failure::Broken(error.to_string())),
        Err(error) => return Err(Failure::Broken(error.to_string())),
    };
    let values = variables.iter().map(|&v| solution.value(v)).collect();
    let stats = solution.into_inner();
    Ok(Found {
        values,
        bound: stats.stats().best_bound.and_then(whole),
    })
}
