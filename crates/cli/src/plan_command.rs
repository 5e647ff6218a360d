//! `albacore plan`: which cpu for which thread, how good that is, and a picture of it.

use std::time::Instant;

use albacore_mapping::{Problem, ProblemError, Solution, check_solution, round_robin, solve};
use albacore_topology::{Distances, Topology};

use crate::args::{Mode, Output, PlanArgs, Policy};
use crate::failure::Failure;
use crate::limits::PLAN_BUDGET;
use crate::machine::Machine;
use crate::print::print;
use crate::{draw, json};

/// What is printed: question, answer and how long it took.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The question, on the usable cpus.
    pub(crate) problem: Problem,
    /// Scatter or compact.
    pub(crate) mode: Mode,
    /// Who answered.
    pub(crate) policy: Policy,
    /// The answer; it has passed the checker.
    pub(crate) solution: Solution,
    /// How long it took, in microseconds.
    pub(crate) solve_micros: u64,
    /// The machine with the cpus outside the cpuset.
    pub(crate) whole: Topology,
}

/// Plans and prints.
pub(crate) fn run(args: &PlanArgs) -> Result<(), Failure> {
    let plan = make(args)?;
    let text = match args.output {
        Output::Text => draw::plan_text(&plan),
        Output::Json => json::plan(&plan)?,
        Output::Svg => draw::plan_svg(&plan),
    };
    print(&text)
}

fn make(args: &PlanArgs) -> Result<Plan, Failure> {
    for (option, value) in [("--workers", args.workers), ("--threads", args.threads)] {
        if value == 0 {
            return Err(Failure::Usage(format!("{option} 0: at least 1 is needed")));
        }
    }
    let Machine { whole, usable } = Machine::open(&args.machine)?;
    let problem = Problem {
        workers: args.workers,
        threads: args.threads,
        mode: match args.mode {
            Mode::Scatter => albacore_mapping::Mode::Scatter,
            Mode::Compact => albacore_mapping::Mode::Compact,
        },
        topology: usable,
        distances: Distances::default(),
        current: None,
    };
    let start = Instant::now();
    let solution =
        answer(&problem, args.policy, start).map_err(|e| Failure::Usage(e.to_string()))?;
    let solve_micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    check_solution(&problem, &solution).map_err(|violations| {
        let list: Vec<String> = violations.iter().map(ToString::to_string).collect();
        Failure::Broken(format!(
            "the plan does not pass its check: {}",
            list.join("; ")
        ))
    })?;
    let (mode, policy) = (args.mode, args.policy);
    Ok(Plan {
        problem,
        mode,
        policy,
        solution,
        solve_micros,
        whole,
    })
}

fn answer(problem: &Problem, policy: Policy, start: Instant) -> Result<Solution, ProblemError> {
    match policy {
        Policy::Tuna => solve(problem, &mut || start.elapsed() >= PLAN_BUDGET),
        Policy::RoundRobin => round_robin(problem),
    }
}
