//! Judges mappings by code that the solver does not share.

mod counted_bound;
mod joint;
mod placed;
mod single;

pub use counted_bound::counted_bound;
pub use joint::{JointReport, JointViolation, check_joint, counted_joint_bound, report_joint};
pub(crate) use single::report;
pub use single::{CheckReport, Violation, check, check_solution, misstated, objective, unproven};
