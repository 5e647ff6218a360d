//! Which models share a sub-cluster: balanced request rate and memory within limits, and few
//! changes against what is in force. The integer program of the Symphony article (appendix A).
//!
//! Pure: no clock (a budget is a closure), no randomness but from a seed, no file.
#![forbid(unsafe_code)]

mod check;
mod limits;
mod problem;
mod program;
mod random;
mod search;
mod solve;

pub use check::{Broken, Measure, check};
pub use limits::PROGRAM_BINARIES_MAX;
pub use problem::{Current, Limits, Model, Problem, ProblemError};
pub use program::solve_program;
pub use random::best_random;
pub use search::search;
pub use solve::{Method, Solution, solve};
