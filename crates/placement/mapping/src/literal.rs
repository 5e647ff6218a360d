//! The integer program of the source article, as it is written there.
//!
//! **Problem.** Say independently of everything else in this crate what the best value is, and with
//! which relaxation. **Approach.** `Y[w,t,c]` is 1 if rank t of worker w runs on cpu c. Constraints
//! (1), (2), (3), (8) and (9)-(12), and the same for physical cores, stand in `rules` one by one
//! with the numbers of the article; the products of (4) and (6) are linearized in `pairs`. No tree,
//! no counts, no order among workers or ranks, no start: the program knows nothing that
//! [`solve()`](crate::solve) knows. Where the rules contradict each other, each of (8+),
//! mains-per-core, (12), (12+) has a slack; first the slacks alone are made smallest, in this
//! order, then the value is made largest with the slacks fixed. So the relaxation is proven and not
//! taken over from the solver, and the program with the products is never infeasible. **Proof
//! sketch.** The programs are the rules; lexicographic order is one program for each slack that is
//! not 0 in the answer before it (a slack that is 0 cannot be smaller). (2), (3) and (8) never need
//! a slack: `rank_coloring` and `assignment` always find a mapping. **Limits.** At most
//! [`LITERAL_VARIABLES_MAX`] variables. Each of the up to five programs for the slacks takes at
//! most [`RELAX_SHARE`] of the seconds; one that runs out leaves a relaxation that is not proven
//! smallest.

mod pairs;
mod rules;

use good_lp::{Expression, Variable};

use crate::check::report;
use crate::error::validate;
use crate::limits::LITERAL_VARIABLES_MAX;
use crate::method::engine::{ENGINE, Failure, Found, Program, run};
use crate::method::farthest;
use crate::{
    Certificate, CheckReport, Mapping, Method, MethodError, Problem, Proof, ProvenBound, Solution,
};
use rules::{RULES, Rules, Slack};

/// Share of the seconds that each program for the slacks may take; the products get what is left.
const RELAX_SHARE: f64 = 0.1;

/// Solves the program of the article for at most `seconds`.
///
/// # Errors
/// The problem is outside the limits, the program too large, nothing was found in time, or the
/// engine failed.
pub(crate) fn solve_literal(
    problem: &Problem,
    out_of_budget: &mut dyn FnMut() -> bool,
    seconds: f64,
) -> Result<Solution, MethodError> {
    validate(problem)?;
    let (variables, most) = (size(problem), LITERAL_VARIABLES_MAX);
    if variables > most {
        let (method, engine) = (Method::Literal, ENGINE);
        return Err(MethodError::TooLarge {
            method,
            variables,
            most,
            engine,
        });
    }
    let mut left = seconds;
    let slacks = smallest_slacks(problem, out_of_budget, seconds, &mut left)?;
    if out_of_budget() {
        return Err(refusal(Failure::Time, seconds));
    }
    let mut rules = Rules::of(problem, &slacks.map(Slack::Fixed));
    let objective = pairs::objective(problem, &mut rules);
    let subgradient: Vec<Variable> = rules.places.iter().flatten().flatten().copied().collect();
    let program = Program {
        variables: rules.variables,
        objective,
        constraints: rules.constraints,
        magnitude: magnitude(problem),
    };
    let found =
        run(program, &subgradient, &[], left).map_err(|failure| refusal(failure, seconds))?;
    Ok(certified(problem, &found))
}

/// The smallest slacks in their order. What they may take is subtracted from `left`.
fn smallest_slacks(
    problem: &Problem,
    out_of_budget: &mut dyn FnMut() -> bool,
    seconds: f64,
    left: &mut f64,
) -> Result<[u32; RULES], MethodError> {
    let mut slacks = [Slack::Free; RULES];
    let mut least = |slacks: &[Slack; RULES], minimized: &[bool; RULES]| {
        if out_of_budget() {
            return Err(refusal(Failure::Time, seconds));
        }
        *left -= seconds * RELAX_SHARE;
        let rules = Rules::of(problem, slacks);
        let sum: Expression = (rules.slacks.iter().zip(minimized))
            .filter(|&(_, &is_minimized)| is_minimized)
            .map(|(slack, _)| slack.clone())
            .sum();
        let (subgradient, fixed) = rules.free_slacks();
        let program = Program {
            variables: rules.variables,
            objective: -sum,
            constraints: rules.constraints,
            magnitude: f64::from(u32::from(problem.workers) * u32::from(problem.threads)),
        };
        let found = run(program, &subgradient, &[], seconds * RELAX_SHARE)
            .map_err(|failure| refusal(failure, seconds))?;
        let mut values = found.values.iter().map(|value| value.round() as u32);
        Ok(fixed.map(|fixed| fixed.unwrap_or_else(|| values.next().unwrap_or(0))))
    };
    let mut reached = least(&slacks, &[true; RULES])?;
    for rule in 0..RULES {
        if reached[rule] > 0 {
            reached = least(&slacks, &std::array::from_fn(|other| other == rule))?;
        }
        slacks[rule] = Slack::Fixed(reached[rule]);
    }
    Ok(reached)
}

fn refusal(failure: Failure, seconds: f64) -> MethodError {
    let method = Method::Literal;
    match failure {
        Failure::Time => MethodError::NothingFound { method, seconds },
        Failure::Broken(message) => MethodError::Engine {
            method,
            engine: ENGINE,
            message,
        },
    }
}

/// No value is farther from 0 than all pairs at the largest distance.
fn magnitude(problem: &Problem) -> f64 {
    let (workers, threads) = (i64::from(problem.workers), i64::from(problem.threads));
    let pairs = workers * (workers - 1) / 2 + workers * threads * (threads - 1) / 2;
    (pairs * i64::from(problem.distances.beyond)) as f64
}

/// How many variables the program with the products has.
fn size(problem: &Problem) -> usize {
    let (workers, threads) = (usize::from(problem.workers), usize::from(problem.threads));
    let (cpus, cores) = (problem.topology.cpus().len(), problem.topology.core_count());
    workers * threads * cpus
        + 2 * cpus
        + 3 * cores
        + pairs::size(workers, cpus)
        + workers * pairs::size(threads, cpus)
}

/// The mapping that the values are, counted.
fn certified(problem: &Problem, found: &Found) -> Solution {
    let cpus = problem.topology.cpus();
    let place = |values: &[f64]| {
        let largest = (0..values.len()).max_by(|&a, &b| values[a].total_cmp(&values[b]));
        cpus[largest.unwrap_or(0)].id
    };
    let mapping = Mapping {
        threads: problem.threads,
        cpus: found.values.chunks(cpus.len()).map(place).collect(),
    };
    let CheckReport { objective, relaxed } = report(problem, &mapping);
    let bound = found.bound.unwrap_or_else(|| farthest(problem));
    let upper = ProvenBound {
        bound,
        proof: Proof::Search,
    };
    let certificate = Certificate::of(objective, upper, relaxed);
    Solution {
        mapping,
        certificate,
    }
}
