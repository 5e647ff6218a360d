//! Solver of the problem of one deployment.
//!
//! [`solve()`] performs these steps; the head of each module contains its theory: the problem as
//! counts in a tree (`domains`); the value of the mapping in force (`current_mapping`); maximum
//! dispersion (`spread`); threads and mains of each cpu with the smallest relaxation of the rules
//! (`volumes`, `relaxation`, `allowed`); the assignment of threads to workers
//! (`hierarchical_construction`, `assignment`); search (`search_driver`: `local_search`,
//! `penalized_moves`, `count_annealing`, `simulated_annealing`, `perturbation`); upper bounds
//! (`bound`, `capacities`, `domain_classes`, `lagrangian_bound`, `domain_subproblem`,
//! `volume_knapsack`); if a gap remains, enumeration of a tiny problem (`enumeration`) or the
//! integer program of a small one (`reduced`); fewest moves (`move_minimization`); then ranks,
//! worker indices and the choice among equal domains (`labeling`, `symmetry`).

pub(crate) mod allowed;
pub(crate) mod assignment;
mod bound;
mod capacities;
mod count_annealing;
mod current_mapping;
mod domain_classes;
mod domain_subproblem;
pub(crate) mod domains;
mod enumeration;
mod hierarchical_construction;
mod labeling;
mod lagrangian_bound;
pub(crate) mod local_search;
mod move_minimization;
mod penalized_moves;
mod perturbation;
mod reduced;
mod relaxation;
mod round_robin;
mod search_driver;
mod simulated_annealing;
mod solve;
mod spread;
mod symmetry;
mod volume_knapsack;
pub(crate) mod volumes;

pub use round_robin::round_robin;
pub use solve::{Stage, improve, solve, solve_with_stage};
