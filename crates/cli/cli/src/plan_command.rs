//! `albacore plan`: validates the options, computes the plan and prints it.

use albacore_command::{Failure, OutputFormat, print, print_json};

use crate::args::{PlanArgs, PolicyArg};
use crate::planning::{plan_joint, plan_single};
use crate::{draw, json};

pub(crate) fn run(args: &PlanArgs) -> Result<(), Failure> {
    refuse_contradictions(args)?;
    match args.file.is_empty() {
        true => print_single(args),
        false => print_joint(args),
    }
}

/// Rejects meaningless combinations of options.
fn refuse_contradictions(args: &PlanArgs) -> Result<(), Failure> {
    let (is_single, is_round_robin) = (args.file.is_empty(), args.policy == PolicyArg::RoundRobin);
    let refused = [
        (
            args.explain.is_some() && args.output == OutputFormat::Svg,
            "--explain: a picture cannot show the explanation; use --output text or json",
        ),
        (
            args.explain.is_some() && (args.file.len() > 1 || !args.obstacle.is_empty()),
            "--explain: only a single deployment can be explained; give one -f and no --obstacle",
        ),
        (
            is_round_robin && args.time_limit.is_some(),
            "--time-limit: round robin does not search; leave it out or use --policy tuna",
        ),
        (
            is_single && !args.obstacle.is_empty(),
            "--obstacle: only deployments in files are placed around obstacles; give them with -f",
        ),
        (
            args.move_cost.is_some() && (is_single || args.current.is_none()),
            "--move-cost: moves are relative to a plan in force; give files with -f and that plan \
             with --current",
        ),
    ];
    match refused.into_iter().find(|&(is_refused, _)| is_refused) {
        Some((_, what)) => Err(Failure::Usage(what.to_owned())),
        None => Ok(()),
    }
}

fn print_single(args: &PlanArgs) -> Result<(), Failure> {
    let plan = plan_single(args)?;
    match args.output {
        OutputFormat::Text => print(&draw::plan_text(&plan)),
        OutputFormat::Json => print_json(&json::plan(&plan)),
        OutputFormat::Svg => print(&draw::plan_svg(&plan)),
    }
}

fn print_joint(args: &PlanArgs) -> Result<(), Failure> {
    let plan = plan_joint(args)?;
    match args.output {
        OutputFormat::Text => print(&draw::joint_text(&plan)),
        OutputFormat::Json => print_json(&json::joint(&plan)),
        OutputFormat::Svg => print(&draw::joint_svg(&plan)),
    }
}
