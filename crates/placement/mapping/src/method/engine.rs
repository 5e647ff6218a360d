//! Who solves a program: microlp, or HiGHS in a build with the cargo feature `highs`.
//!
//! **Problem.** Both programs are built with good_lp; its face hides what a certificate needs: the
//! bound that was proven by the time a program was stopped. **Approach.** [`run`] hands a program
//! to the engine of this build and takes values and bound from the engine's own answer. Values of
//! our objectives are whole numbers, so the engine is asked for a gap below one clock cycle and its
//! bound is rounded down. **Proof sketch.** With `|objective| <= magnitude`, a relative gap of 0.9
//! / magnitude is an absolute one below 0.9; a whole number below `bound` is at most its floor.
//! **Limits.** Engines compute with floats: a bound is taken with a millionth to spare.

use good_lp::{Constraint, Expression, ProblemVariables, Variable};

/// Asked of the engine in cycles: below 1, where nothing whole lies between value and bound.
const GAP: f64 = 0.9;

/// What is maximized under which constraints.
pub(crate) struct Program {
    pub(crate) variables: ProblemVariables,
    pub(crate) objective: Expression,
    pub(crate) constraints: Vec<Constraint>,
    /// The objective never exceeds this, nor falls below its negative.
    pub(crate) magnitude: f64,
}

/// What the engine found.
pub(crate) struct Found {
    /// Of the variables that were asked for, in their order.
    pub(crate) values: Vec<f64>,
    /// Of the objective, for these values.
    pub(crate) objective: i64,
    /// Nothing whole exceeds this; `None` where nothing was proven.
    pub(crate) bound: Option<i64>,
}

impl Found {
    pub(crate) fn is_proven(&self) -> bool {
        self.bound.is_some_and(|bound| bound <= self.objective)
    }
}

/// Why there is nothing.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The time was over.
    Time,
    /// In the engine's words.
    Broken(String),
}

/// Who solves programs in this build.
pub(crate) const ENGINE: &str = if cfg!(feature = "highs") {
    "HiGHS"
} else {
    "microlp"
};

/// What to do about a program that is too large for this build.
pub(crate) fn way_out() -> &'static str {
    if cfg!(feature = "highs") {
        "use the exact solver"
    } else {
        "use the exact solver, or HiGHS: build with `cargo build --features albacore-mapping/highs`"
    }
}

/// The largest whole number that a float bound leaves.
fn whole(bound: f64) -> Option<i64> {
    let spare = 1e-6 * bound.abs().max(1.0);
    bound.is_finite().then(|| (bound + spare).floor() as i64)
}

#[cfg(not(feature = "highs"))]
pub(crate) use run_microlp as run;

/// Solves `program` for `seconds` at most, from `start` if the engine accepts it as a solution.
/// Microlp whatever the build: the net of `solve` is the same in all of them.
pub(crate) fn run_microlp(
    program: Program,
    subgradient: &[Variable],
    start: &[(Variable, f64)],
    seconds: f64,
) -> Result<Found, Failure> {
    use good_lp::{
        ResolutionError, Solution, SolverModel, WithInitialSolution, WithMipGap, WithTimeLimit,
        solvers::microlp::microlp,
    };
    let gap = (GAP / program.magnitude.max(1.0)) as f32;
    let mut model = program.variables.maximise(program.objective).using(microlp);
    for constraint in program.constraints {
        model.add_constraint(constraint);
    }
    if !start.is_empty() {
        model = model.with_initial_solution(start.iter().copied());
    }
    let model = model.with_time_limit(seconds).with_mip_gap(gap);
    let solution = match model.map(SolverModel::solve) {
        Ok(Ok(solution)) => solution,
        // good_lp has this variant of microlp only for a time that was over too early
        Ok(Err(ResolutionError::Other(_))) => return Err(Failure::Time),
        Ok(Err(error)) => return Err(Failure::Broken(error.to_string())),
        Err(error) => return Err(Failure::Broken(error.to_string())),
    };
    let values = subgradient.iter().map(|&v| solution.value(v)).collect();
    let solution = solution.into_inner();
    Ok(Found {
        values,
        objective: solution.objective().round() as i64,
        bound: solution.stats().best_bound.and_then(whole),
    })
}

/// Solves `program` for `seconds` at most, from `start` if the engine accepts it as a solution.
#[cfg(feature = "highs")]
pub(crate) fn run(
    program: Program,
    subgradient: &[Variable],
    start: &[(Variable, f64)],
    seconds: f64,
) -> Result<Found, Failure> {
    use good_lp::{SolverModel, solvers::highs::highs};
    /// What HiGHS says where a point keeps all constraints.
    const FEASIBLE: i64 = 2;
    let broken = |error: &dyn std::fmt::Debug| Failure::Broken(format!("{error:?}"));
    let mut places = std::collections::HashMap::new();
    for (place, (variable, _)) in program.variables.iter_variables_with_def().enumerate() {
        places.insert(variable, place);
    }
    let mut columns = vec![0.0; places.len()];
    for (variable, value) in start {
        columns[places[variable]] = *value;
    }
    let mut model = program.variables.maximise(program.objective).using(highs);
    for constraint in program.constraints {
        model.add_constraint(constraint);
    }
    let mut model = model.try_into_inner().map_err(|error| violation(&error))?;
    let gap = GAP / program.magnitude.max(1.0);
    for (name, value) in [
        ("time_limit", seconds),
        ("mip_rel_gap", gap),
        ("mip_abs_gap", GAP),
    ] {
        model
            .try_set_option(name, value)
            .map_err(|error| violation(&error))?;
    }
    if !start.is_empty() {
        model
            .try_set_solution(Some(&columns), None, None, None)
            .map_err(|error| violation(&error))?;
    }
    let solved = model.try_solve().map_err(|error| violation(&error))?;
    let point = solved.int_info_value(c"primal_solution_status");
    if point.map_err(|error| violation(&error))? != FEASIBLE {
        return Err(match format!("{:?}", solved.status()).as_str() {
            "ReachedTimeLimit" => Failure::Time,
            other => Failure::Broken(other.to_owned()),
        });
    }
    let solution = solved.get_solution();
    let values = subgradient
        .iter()
        .map(|variable| solution.columns()[places[variable]])
        .collect();
    let bound = solved.double_info_value(c"mip_dual_bound");
    Ok(Found {
        values,
        objective: solved.objective_value().round() as i64,
        bound: bound.ok().and_then(whole),
    })
}
