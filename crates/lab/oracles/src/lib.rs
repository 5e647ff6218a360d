//! Reference solvers that only tests and benchmarks use.
//!
//! People who know the source article want to see its own program give the value of
//! [`albacore_solver::solve()`], and tests want an oracle that shares no code with that solver.
#![forbid(unsafe_code)]

mod engine;
mod literal;

pub use literal::{LiteralError, SECONDS_MAX, VARIABLES_MAX, solve_literal};
