//! Which cpu each (worker, rank) runs on: a problem in, a mapping with its certificate out. Pure
//! but for good_lp.
//!
//! [`solve()`] goes through these steps, each a module with its theory at its head: `domains` (the
//! problem as counts in a tree), `kept` (what the mapping in force is worth), `spread` (things far
//! apart), `volumes` and `relax` (threads and mains of each cpu, the smallest relaxation),
//! `descend` and `deal` (which worker gets which), `improve`, `anneal`, `wander` and `shake`
//! (exchanges), `bound`, `classes`, `prices` and `forks` (what nothing can exceed), `reduced` (the
//! integer program where value and bound do not meet), `settle` (few moves), `label`, `name` and
//! `image` (ranks, workers and which of equal domains). [`round_robin()`] is the baseline. `check`
//! judges any of them and `check_bound` counts the bound again; neither shares code with the
//! solver. `method` runs the reduced program or that of the source article (`literal`) alone.
#![forbid(unsafe_code)]

mod anneal;
mod bound;
mod check;
mod check_bound;
mod classes;
mod deal;
mod descend;
mod domains;
mod error;
mod forks;
mod image;
mod improve;
mod kept;
mod label;
pub mod limits;
mod literal;
mod method;
mod name;
mod prices;
mod problem;
mod pursuit;
mod reduced;
mod relax;
mod round_robin;
#[cfg(test)]
#[path = "sample/tests.rs"]
mod sample;
mod settle;
mod shake;
mod soft;
mod solve;
mod splits;
mod spread;
mod volumes;
mod wander;

pub use check::{
    CheckReport, Violation, check, check_solution, contradiction, objective, unproven,
};
pub use check_bound::{counted_bound, is_confirmed};
pub use error::{ProblemError, validate, validate_distances, validate_size};
pub use label::Peers;
pub use method::{Method, MethodError, solve_by};
pub use problem::{
    Certificate, Mapping, Mode, Problem, Proof, Rank, Relaxation, Slot, Solution, WorkerIndex,
};
pub use round_robin::round_robin;
pub use solve::{Branch, solve, solve_telling};
