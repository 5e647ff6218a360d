//! Plans for `albacore plan`: solved, checked and explained, for one deployment or for several that
//! share a machine. How they are printed is the job of [`crate::draw`] and [`crate::json`].

mod current_plan;
mod joint;
mod single;

use std::fmt::Display;

use albacore_command::Failure;

pub(crate) use joint::{JointPlan, plan_joint};
pub(crate) use single::{PlanChange, SinglePlan, plan_single};

/// The failure for a plan that does not pass its check: such a plan is never printed.
fn failed_check<V: Display>(violations: &[V]) -> Failure {
    let list: Vec<String> = violations.iter().map(ToString::to_string).collect();
    let list = list.join("; ");
    Failure::Broken(format!("the plan does not pass its check: {list}"))
}
