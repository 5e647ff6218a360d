//! The article's integer program, equations (3) to (10), with good_lp. It shares no code with the
//! search.

use good_lp::{
    Expression, ProblemVariables, ResolutionError, Solution as _, SolverModel as _, Variable,
    constraint, default_solver, variable,
};

use crate::limits::PROGRAM_BINARIES_MAX;
use crate::problem::Problem;

/// Returns an optimal partition; `None` if there is none, if the program is too large for the
/// solver (see [`PROGRAM_BINARIES_MAX`]), or if the solver fails.
pub fn solve_program(problem: &Problem) -> Option<Vec<usize>> {
    if problem.models.len() * problem.clusters > PROGRAM_BINARIES_MAX {
        return None;
    }
    let mut variables = ProblemVariables::new();
    let x: Vec<Vec<Variable>> = problem
        .models
        .iter()
        .map(|_| {
            (0..problem.clusters)
                .map(|_| variables.add(variable().binary()))
                .collect()
        })
        .collect();
    let rate_off = variables.add(variable().min(0.0));
    let memory_off = variables.add(variable().min(0.0));
    let running: Vec<Variable> = (0..problem.clusters)
        .map(|_| variables.add(variable().min(0.0)))
        .collect();
    let (rate, memory) = problem.means();
    let mut model = variables
        .maximise(-1.0 * rate_off - problem.weight * memory_off)
        .using(default_solver);
    for row in &x {
        let places: Expression = row.iter().sum();
        model = model.with(constraint!(places == 1));
    }
    for cluster in 0..problem.clusters {
        let sum = |of: &dyn Fn(usize) -> f64| -> Expression {
            x.iter()
                .enumerate()
                .map(|(i, row)| of(i) * row[cluster])
                .sum()
        };
        let rates = sum(&|i| problem.models[i].rate / rate);
        let memories = sum(&|i| problem.models[i].memory / memory);
        model = model
            .with(constraint!(rates.clone() - 1.0 <= rate_off))
            .with(constraint!(1.0 - rates.clone() <= rate_off))
            .with(constraint!(memories.clone() - 1.0 <= memory_off))
            .with(constraint!(1.0 - memories.clone() <= memory_off));
        if problem.limits.rate.is_finite() {
            model = model.with(constraint!(rates <= problem.limits.rate / rate));
        }
        if problem.limits.memory.is_finite() {
            for (i, row) in x.iter().enumerate() {
                let own = problem.models[i].running_memory / memory;
                model = model.with(constraint!(own * row[cluster] <= running[cluster]));
            }
            let limit = problem.limits.memory / memory;
            model = model.with(constraint!(memories + running[cluster] <= limit));
        }
    }
    if let Some(current) = problem.current.as_ref().filter(|c| c.cost_max.is_finite()) {
        // |x - x'| is 1 - x where x' is 1, and x where it is 0.
        let changes = x.iter().zip(&current.clusters).zip(&problem.models);
        let changes = changes.flat_map(|((row, before), model)| {
            row.iter().enumerate().map(move |(cluster, &x)| {
                let was_here = *before == Some(cluster);
                let change: Expression = if was_here { 1.0 - x } else { x.into() };
                model.change_cost * change
            })
        });
        let cost: Expression = changes.sum();
        model = model.with(constraint!(cost <= current.cost_max));
    }
    let solution: Result<_, ResolutionError> = model.solve();
    let solution = solution.ok()?;
    let place = |row: &Vec<Variable>| row.iter().position(|&x| solution.value(x) > 0.5);
    x.iter().map(place).collect()
}
