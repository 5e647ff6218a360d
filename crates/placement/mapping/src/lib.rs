//! Which cpu each (worker, rank) runs on: takes a problem, returns a mapping with its certificate.
//! Pure but for good_lp.
//!
//! [`solve()`] goes through these steps; each module has its theory at its head. The problem as
//! counts in a tree (`domains`), the value of the mapping in force (`incumbent`), maximum
//! dispersion (`spread`), threads and mains of each cpu with the smallest relaxation of the rules
//! (`volumes`, `relaxation`), which worker gets which thread (`hierarchical_construction`,
//! `assignment`), search (`search_driver`: `local_search`, `count_annealing`,
//! `simulated_annealing`, `perturbation`), upper bounds (`bound`, `domain_classes`,
//! `lagrangian_bound`, `domain_subproblem`, `volume_knapsack`, `branch_and_bound`); where value and
//! bound do not meet, every assignment of a tiny problem (`enumeration`) or the integer program of
//! a small one (`reduced`); fewest moves (`move_minimization`), then ranks, worker indices and
//! which of equal domains (`rank_coloring`, `labeling`, `symmetry`). [`round_robin()`] is the
//! baseline. `check` judges any mapping and `check_bound` computes the bound again; neither shares
//! code with the solver.
#![forbid(unsafe_code)]

// Unit tests share modules with the tests beside this crate, which name it.
#[cfg(test)]
extern crate self as albacore_mapping;

mod assignment;
mod bound;
mod branch_and_bound;
mod check;
mod check_bound;
mod count_annealing;
mod domain_classes;
mod domain_subproblem;
mod domains;
#[cfg(test)]
#[path = "enumerated/tests.rs"]
mod enumerated;
mod enumeration;
mod error;
mod hierarchical_construction;
mod incumbent;
mod labeling;
mod lagrangian_bound;
pub mod levels;
pub mod limits;
mod local_search;
mod move_minimization;
mod penalized_moves;
mod perturbation;
mod problem;
mod rank_coloring;
mod reduced;
mod relaxation;
mod round_robin;
mod rule_limits;
#[cfg(test)]
#[path = "sample/tests.rs"]
mod sample;
mod search_driver;
mod simulated_annealing;
mod solve;
mod spread;
mod symmetry;
mod volume_knapsack;
mod volumes;

pub use albacore_values::WorkerIndex;
pub use check::{
    CheckReport, Violation, check, check_solution, contradiction, misstated, objective, unproven,
};
pub use check_bound::counted_bound;
pub use error::{ProblemError, validate, validate_distances, validate_size};
pub use problem::{
    Certificate, Mapping, Mode, Problem, Proof, ProvenBound, Rank, Relaxation, Slot, Solution,
    relaxed_by,
};
pub use rank_coloring::Peers;
pub use round_robin::round_robin;
pub use rule_limits::{RuleLimits, full_mains};
pub use solve::{Stage, solve, solve_with_stage};
