//! Checks mappings. Shares no code with the solver.
//!
//! `placed` implements rule (1) and the objective, for any number of deployments. `one` evaluates
//! the rules for a deployment that is alone on the machine, `several` those for deployments that
//! share it (`balance`, `main_rules`). `bound` recomputes bounds.

mod balance;
mod bound;
mod fill_levels;
mod main_rules;
mod one;
mod placed;
mod several;

pub use bound::counting_bound;
pub use fill_levels::cpu_volumes;
pub use one::{
    CheckReport, MappingViolation, certificate_errors, check, check_proof, check_solution,
    objective, report,
};
pub use several::{JointReport, JointViolation, check_joint, joint_counting_bound, report_joint};
