//! Judges mappings by code that the solver does not share.
//!
//! `placed` is rule (1) and the objective, for any number of deployments. `one` counts the rules of
//! a deployment that has the machine to itself, `several` those of deployments that share it
//! (`balance`, `main_rules`). `bound` counts bounds again.

mod balance;
mod bound;
mod fill_levels;
mod main_rules;
mod one;
mod placed;
mod several;

pub use bound::counted_bound;
pub use fill_levels::cpu_volumes;
pub use one::{
    CheckReport, Violation, check, check_solution, misstated, objective, report, unproven,
};
pub use several::{JointReport, JointViolation, check_joint, counted_joint_bound, report_joint};
