//! The integer program of the source article, transcribed literally.
//!
//! **Problem.** Determine the best value, and the relaxation that it needs, independently of the
//! solver.
//!
//! **Approach.** `Y[w,t,c]` is 1 if rank t of worker w runs on cpu c. Constraints (1), (2), (3),
//! (8) and (9)-(12), and their counterparts for physical cores, are in `rules`, one function each,
//! with the numbers of the article; the products of (4) and (6) are linearized in `pairs`. There
//! are no trees, no counts, no ordering of workers or ranks, and no start solution. Because the
//! rules may contradict each other, each of (8+), mains-per-core, (12), (12+) has a slack variable;
//! first the slacks are minimized in this lexicographic order, then the value is maximized with the
//! slacks fixed. So the relaxation is proven, not copied from the solver, and the program with the
//! products is never infeasible.
//!
//! **Proof sketch.** The programs are the rules; the lexicographic order takes one program for each
//! slack that is not 0 in the solution before it (a slack of 0 is minimal). (2), (3) and (8) never
//! need a slack: the module doc of the solver's `rank_coloring` proves that a mapping exists.
//! `optimal` means that branch and bound completed, or that value and proven bound differ by less
//! than one clock cycle.
//!
//! **Limits.** At most [`VARIABLES_MAX`] variables. Each of the up to five programs for the slacks
//! takes at most [`RELAX_SHARE`] of the seconds; if one reaches its limit, the relaxation is not
//! proven minimal. A mapping in force is ignored.

mod pairs;
mod rules;

use albacore_solver::{
    Certificate, Mapping, MappingViolation, Mode, Problem, ProblemError, Proof, ProvenBound,
    Solution, check, validate,
};
use good_lp::{Expression, Variable};

use crate::engine::{EngineSolution, Failure, Program, run};
use rules::{RULES, Rules, Slack};

/// Longest time limit of the program: a day, far beyond any practical wait.
pub const SECONDS_MAX: f64 = 86_400.0;

/// Maximum number of variables. On the 32 cpus of the article, microlp proves 4 x 4 (3,104
/// variables) in 4 to 25 s and has no mapping for 8 x 4 (5,600) after 30 s.
pub const VARIABLES_MAX: usize = 4_000;

/// Share of the time limit for each program for the slacks; the program with the products gets the
/// rest.
const RELAX_SHARE: f64 = 0.1;

/// Errors of the program.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum LiteralError {
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The time limit is not positive or exceeds [`SECONDS_MAX`].
    #[error("the time limit is {seconds} s: give seconds above 0, at most {SECONDS_MAX}")]
    TimeLimit { seconds: f64 },
    #[error(
        "the program of this problem has {variables} variables, more than the {VARIABLES_MAX} \
         that microlp is given: use a smaller problem"
    )]
    TooLarge { variables: usize },
    #[error("the program found no mapping within {seconds} s: allow more time")]
    NothingFound { seconds: f64 },
    /// Error message of microlp.
    #[error("microlp could not solve the program ({0})")]
    Engine(String),
    /// The checker rejects the mapping found by the program.
    #[error("the solution of the program is not a valid mapping: {0:?}")]
    Refused(Vec<MappingViolation>),
}

/// Solves the program of the article for at most `seconds`.
///
/// The certificate contains what the program proved: if it ran out of time, the bound is the one of
/// branch and bound at that time, or the trivial one from the largest distance.
///
/// # Errors
/// The problem is outside the limits, the program too large, nothing was found in time, or microlp
/// failed.
pub fn solve_literal(problem: &Problem, seconds: f64) -> Result<Solution, LiteralError> {
    validate(problem)?;
    if !(seconds > 0.0 && seconds <= SECONDS_MAX) {
        return Err(LiteralError::TimeLimit { seconds });
    }
    let variables = size(problem);
    if variables > VARIABLES_MAX {
        return Err(LiteralError::TooLarge { variables });
    }
    let mut left = seconds;
    let slacks = smallest_slacks(problem, seconds, &mut left)?;
    let mut rules = Rules::of(problem, &slacks.map(Slack::Fixed));
    let objective = pairs::objective(problem, &mut rules);
    let places: Vec<Variable> = rules.places.iter().flatten().flatten().copied().collect();
    let program = Program {
        variables: rules.variables,
        objective,
        constraints: rules.constraints,
        magnitude: magnitude(problem),
    };
    let found =
        run(program, &places, left).map_err(|failure| to_literal_error(failure, seconds))?;
    certified(problem, &found)
}

/// Minimizes the slacks in lexicographic order. The time limits of these programs are subtracted
/// from `left`.
fn smallest_slacks(
    problem: &Problem,
    seconds: f64,
    left: &mut f64,
) -> Result<[u32; RULES], LiteralError> {
    let mut slacks = [Slack::Free; RULES];
    let mut least =
        |slacks: &[Slack; RULES], minimized: &[bool; RULES]| -> Result<_, LiteralError> {
            *left -= seconds * RELAX_SHARE;
            let rules = Rules::of(problem, slacks);
            let sum: Expression = (rules.slacks.iter().zip(minimized))
                .filter(|&(_, &is_minimized)| is_minimized)
                .map(|(slack, _)| slack.clone())
                .sum();
            let (free, fixed) = rules.free_slacks();
            let program = Program {
                variables: rules.variables,
                objective: -sum,
                constraints: rules.constraints,
                magnitude: f64::from(u32::from(problem.workers) * u32::from(problem.threads)),
            };
            let found = run(program, &free, seconds * RELAX_SHARE)
                .map_err(|failure| to_literal_error(failure, seconds))?;
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

fn to_literal_error(failure: Failure, seconds: f64) -> LiteralError {
    match failure {
        Failure::Timeout => LiteralError::NothingFound { seconds },
        Failure::Engine(message) => LiteralError::Engine(message),
    }
}

fn pairs_of(items: u16) -> i64 {
    i64::from(items) * (i64::from(items) - 1) / 2
}

/// Upper bound of the absolute value: all pairs at the largest distance.
fn magnitude(problem: &Problem) -> f64 {
    let pairs = pairs_of(problem.workers) + i64::from(problem.workers) * pairs_of(problem.threads);
    (pairs * i64::from(problem.distances.machine)) as f64
}

/// Trivial bound for a program that proved nothing in time, from the largest and the smallest entry
/// of the table of distances.
fn trivial_bound(problem: &Problem) -> i64 {
    let mains = pairs_of(problem.workers) * i64::from(problem.distances.machine);
    let within = i64::from(problem.workers) * pairs_of(problem.threads);
    mains
        + match problem.mode {
            Mode::Scatter => within * i64::from(problem.distances.machine),
            Mode::Compact => -within * i64::from(problem.distances.cpu),
        }
}

/// Number of variables of the program with the products.
fn size(problem: &Problem) -> usize {
    let (workers, threads) = (usize::from(problem.workers), usize::from(problem.threads));
    let (cpus, cores) = (problem.topology.cpus().len(), problem.topology.core_count());
    workers * threads * cpus
        + 2 * cpus
        + 3 * cores
        + pairs::size(workers, cpus)
        + workers * pairs::size(threads, cpus)
}

/// Converts the values to a mapping and certifies it.
fn certified(problem: &Problem, found: &EngineSolution) -> Result<Solution, LiteralError> {
    let cpus = problem.topology.cpus();
    let place = |values: &[f64]| {
        let largest = (0..values.len()).max_by(|&a, &b| values[a].total_cmp(&values[b]));
        cpus[largest.unwrap_or(0)].id
    };
    let mapping = Mapping {
        threads: problem.threads,
        cpus: found.values.chunks(cpus.len()).map(place).collect(),
    };
    let report = check(problem, &mapping).map_err(LiteralError::Refused)?;
    let upper = ProvenBound {
        bound: found.bound.unwrap_or_else(|| trivial_bound(problem)),
        proof: Proof::Search,
    };
    let certificate = Certificate::of(report.objective, upper, report.relaxed);
    Ok(Solution {
        mapping,
        certificate,
    })
}
