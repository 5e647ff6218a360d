//! `albacore plan`: which cpu for which thread, how good that is, why, and a picture of it; for one
//! deployment or for several that share a machine.

mod current;
mod one;
mod several;

use std::fmt::Display;

use albacore_command::Output;

use crate::args::{PlanArgs, Policy};
use crate::{draw, json};
use albacore_command::Failure;
use albacore_command::print;

pub(crate) use one::{Change, Plan};
pub(crate) use several::{JointPlan, mode_name};

pub(crate) fn run(args: &PlanArgs) -> Result<(), Failure> {
    refuse_contradictions(args)?;
    let text = match args.file.is_empty() {
        true => of_one(args)?,
        false => of_several(args)?,
    };
    print(&text)
}

/// Refuses options that say nothing together.
fn refuse_contradictions(args: &PlanArgs) -> Result<(), Failure> {
    let (is_one, is_dealt) = (args.file.is_empty(), args.policy == Policy::RoundRobin);
    let refused = [
        (
            args.explain.is_some() && args.output == Output::Svg,
            "--explain: a picture has no sentences; use --output text or json",
        ),
        (
            args.explain.is_some() && (args.file.len() > 1 || !args.obstacle.is_empty()),
            "--explain: a deployment that is alone can be explained; give one -f and no --obstacle",
        ),
        (
            is_dealt && args.solver.is_some(),
            "--solver: a round robin is dealt, not solved; leave it out or use --policy tuna",
        ),
        (
            is_dealt && args.time_limit.is_some(),
            "--time-limit: a round robin is dealt at once; leave it out or use --policy tuna",
        ),
        (
            is_one && !args.obstacle.is_empty(),
            "--obstacle: only deployments of files are placed around others; give them with -f",
        ),
        (
            args.move_cost.is_some() && (is_one || args.current.is_none()),
            "--move-cost: it counts against a plan in force; give files with -f and that plan with --current",
        ),
    ];
    match refused.into_iter().find(|&(is_refused, _)| is_refused) {
        Some((_, what)) => Err(Failure::Usage(what.to_owned())),
        None => Ok(()),
    }
}

fn of_one(args: &PlanArgs) -> Result<String, Failure> {
    let plan = one::make(args)?;
    Ok(match args.output {
        Output::Text => draw::plan_text(&plan),
        Output::Json => json::plan(&plan)?,
        Output::Svg => draw::plan_svg(&plan),
    })
}

fn of_several(args: &PlanArgs) -> Result<String, Failure> {
    let plan = several::make(args)?;
    Ok(match args.output {
        Output::Text => draw::joint_text(&plan),
        Output::Json => json::joint(&plan)?,
        Output::Svg => draw::joint_svg(&plan),
    })
}

/// A plan that does not pass its check is never printed.
fn broken<V: Display>(violations: &[V]) -> Failure {
    let list: Vec<String> = violations.iter().map(ToString::to_string).collect();
    let list = list.join("; ");
    Failure::Broken(format!("the plan does not pass its check: {list}"))
}
