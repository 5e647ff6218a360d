//! Which cpu each (worker, rank) runs on: a problem in, a mapping with its certificate out. Pure but for good_lp.
#![forbid(unsafe_code)]

mod bound;
mod check;
mod deal;
mod domains;
mod error;
mod improve;
mod label;
pub mod limits;
mod name;
mod problem;
mod reduced;
mod relax;
mod round_robin;
mod shake;
mod solve;
mod volumes;

pub use check::{CheckReport, Violation, check, check_solution, objective};
pub use error::ProblemError;
pub use problem::{
    Certificate, Mapping, Mode, Problem, Rank, Relaxation, Slot, Solution, WorkerIndex,
};
pub use round_robin::round_robin;
pub use solve::solve;
