//! Partitions models into sub-clusters: balanced request rate and memory, within limits and with
//! few changes relative to the partition in force. The integer program of the Symphony article
//! (appendix A).
//!
//! Pure: no clock (a budget is a closure), no randomness except from a seed, no file.
#![forbid(unsafe_code)]

mod check;
mod limits;
mod problem;
mod program;
mod random;
mod search;
mod solve;

pub use check::{Measure, Violation, check};
pub use limits::PROGRAM_BINARIES_MAX;
pub use problem::{Current, Limits, Model, Problem, ProblemError};
pub use program::solve_program;
pub use random::best_random;
pub use search::search;
pub use solve::{Method, Solution, solve};
