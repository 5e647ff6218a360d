//! Three ways to the same answer: the exact construction, the reduced program, the literal one.
//!
//! **Problem.** No user has to trust [`solve()`]: people who know the source article want to see
//! its own program give the same value, and tests want an oracle that shares no idea with the
//! solver. **Approach.** [`solve_by`] runs one [`Method`] and has its answer counted by `check`
//! before it is given out. *Exact* is [`solve()`]: construction, exchanges, a bound from counts,
//! the reduced program as its net. *Reduced* is that program alone (`reduced`): no ranks, pairs
//! counted in domains. *Literal* is the program of the article with its `Y[w,t,c]` (`literal`).
//! Both programs go through good_lp to microlp, or to HiGHS in a build with the cargo feature
//! `highs` (`engine`). **Proof sketch.** A program's `optimal` means that its branch and bound came
//! to its end, or that value and proven bound are less than one clock cycle apart: values are whole
//! numbers. **Limits.** A running program cannot be interrupted, it gets its seconds beforehand;
//! programs work with floats, so an answer is what counting says of the mapping, never what the
//! program says of it.

pub(crate) mod engine;

use crate::limits::METHOD_SECONDS_MAX;
use crate::literal::solve_literal;
use crate::reduced::solve_reduced_alone;
use crate::{Mode, Problem, ProblemError, Solution, Violation, check, check_solution, solve};

/// How an answer is found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Method {
    /// [`solve()`]: construction and bound, the reduced program where they do not meet.
    #[default]
    Exact,
    /// The integer program without ranks, alone.
    Reduced,
    /// The integer program of the source article, as it is written there.
    Literal,
}

impl Method {
    /// Its name on the command line: `exact`, `reduced`, `literal`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Reduced => "reduced",
            Self::Literal => "literal",
        }
    }
}

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a method has no answer. [`Method::Exact`] only ever has [`MethodError::Problem`].
#[derive(Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MethodError {
    /// No method solves it.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The seconds are no time limit.
    #[error("the time limit is {seconds} s: give seconds above 0, at most {METHOD_SECONDS_MAX}")]
    TimeLimit { seconds: f64 },
    /// The program has more variables than its engine could settle.
    #[error(
        "the {method} program of this problem has {variables} variables, more than the {most} that \
         {engine} is given: {}",
        engine::way_out()
    )]
    TooLarge {
        method: Method,
        /// How many variables it has.
        variables: usize,
        /// How many it may have.
        most: usize,
        /// Who solves it: `microlp` or `HiGHS`.
        engine: &'static str,
    },
    /// The time was over before there was any mapping.
    #[error(
        "the {method} program found no mapping within {seconds} s: allow more time, or use the \
         exact solver, which always has one"
    )]
    NothingFound { method: Method, seconds: f64 },
    #[error("{engine} could not solve the {method} program ({message}): use the exact solver")]
    Engine {
        method: Method,
        /// Who solves it: `microlp` or `HiGHS`.
        engine: &'static str,
        /// In the engine's words.
        message: String,
    },
    /// Counting does not confirm what the program found.
    #[error("the answer of the {method} program was refused ({}): use the exact solver",
        violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Refused {
        method: Method,
        /// Everything that is wrong with it.
        violations: Vec<Violation>,
    },
}

/// The answer of one method, checked. `out_of_budget` is that of [`solve()`], and asked between two
/// programs; the programs together run for at most `seconds_max`, which [`Method::Exact`] does not
/// need.
///
/// A certificate says what the method itself proved: that of a program that ran out of time has the
/// bound that its branch and bound had by then, and if it had none, that of the largest distance.
///
/// # Errors
/// The problem is outside the limits, or a program is too large, found nothing in time, or failed.
pub fn solve_by(
    method: Method,
    problem: &Problem,
    out_of_budget: &mut dyn FnMut() -> bool,
    seconds_max: f64,
) -> Result<Solution, MethodError> {
    let solution = match method {
        Method::Exact => solve(problem, out_of_budget)?,
        Method::Reduced => solve_reduced_alone(problem, seconds_of(seconds_max)?)?,
        Method::Literal => solve_literal(problem, out_of_budget, seconds_of(seconds_max)?)?,
    };
    let solution = stay(problem, solution);
    match check_solution(problem, &solution) {
        Ok(_) => Ok(solution),
        Err(violations) => Err(MethodError::Refused { method, violations }),
    }
}

/// What no mapping exceeds because no pair is farther apart, or nearer, than the table of distances
/// says: the bound of a program that proved nothing in time.
pub(crate) fn farthest(problem: &Problem) -> i64 {
    let pairs = |items: u16| i64::from(items) * (i64::from(items) - 1) / 2;
    let mains = pairs(problem.workers) * i64::from(problem.distances.beyond);
    let within = i64::from(problem.workers) * pairs(problem.threads);
    mains
        + match problem.mode {
            Mode::Scatter => within * i64::from(problem.distances.beyond),
            Mode::Compact => -within * i64::from(problem.distances.cpu),
        }
}

fn seconds_of(seconds: f64) -> Result<f64, MethodError> {
    if seconds > 0.0 && seconds <= METHOD_SECONDS_MAX {
        Ok(seconds)
    } else {
        Err(MethodError::TimeLimit { seconds })
    }
}

/// The mapping in force instead, where it is as good: then no thread moves.
fn stay(problem: &Problem, solution: Solution) -> Solution {
    let Some(current) = &problem.current else {
        return solution;
    };
    let Ok(report) = check(problem, current) else {
        return solution;
    };
    let stated = &solution.certificate;
    let is_admitted = report.relaxed.iter().all(|broken| {
        let admitted = stated.relaxed.iter().find(|r| r.rule == broken.rule);
        admitted.is_some_and(|admitted| broken.amount <= admitted.amount)
    });
    if report.objective != stated.objective || !is_admitted {
        return solution;
    }
    let mut solution = solution;
    solution.mapping = current.clone();
    solution.certificate.relaxed = report.relaxed;
    solution
}
