//! Reference solvers that only tests and benchmarks use.
//!
//! Readers of the source article can compare the value of its own program with that of
//! [`albacore_solver::solve()`], and tests get an oracle that shares no code with that solver.
#![forbid(unsafe_code)]

mod engine;
mod literal;

pub use literal::{LiteralError, SECONDS_MAX, VARIABLES_MAX, solve_literal};
