//! Plans for `albacore plan`: solved, checked and explained, for one deployment or for several that
//! share a machine. They are printed by [`crate::draw`] and [`crate::json`].

mod current_plan;
mod distances;
mod joint;
mod single;

use std::fmt::Display;
use std::io::Read as _;
use std::path::Path;

use albacore_command::Failure;

pub(crate) use distances::{DistancesSource, PlanDistances};
pub(crate) use joint::{JointPlan, plan_joint};
pub(crate) use single::{PlanChange, SinglePlan, plan_single};

/// The failure for a plan that fails its check; such a plan is never printed.
fn failed_check<V: Display>(violations: &[V]) -> Failure {
    let list: Vec<String> = violations.iter().map(ToString::to_string).collect();
    let list = list.join("; ");
    Failure::Broken(format!("the plan failed its check: {list}"))
}

/// Reads the file given by `option`, of at most `bytes_max` bytes; `remedy` is the advice in
/// errors.
fn read_option_file(
    option: &str,
    path: &Path,
    bytes_max: u64,
    remedy: &str,
) -> Result<String, Failure> {
    let refused = |what: String| {
        let path = path.display();
        Failure::Usage(format!("{option} {path}: {what}"))
    };
    let mut text = String::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(bytes_max + 1).read_to_string(&mut text));
    match read {
        Err(e) => Err(refused(format!("cannot be read: {e}; {remedy}"))),
        Ok(length) if length as u64 > bytes_max => Err(refused(format!(
            "has more than {bytes_max} bytes: {remedy}"
        ))),
        Ok(_) => Ok(text),
    }
}
