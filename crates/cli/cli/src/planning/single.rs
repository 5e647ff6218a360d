//! The plan of one deployment: problem, solution, moves and explanation.

use std::time::Instant;

use albacore_solver::{
    ExplainError, Explanation, Mapping, Move, Problem, Solution, ThreadExplanation, WorkBudget,
    check, check_solution, difference, explain, explain_thread, relaxed_by, round_robin, solve,
};
use albacore_topology::Topology;

use super::distances::{PlanDistances, plan_distances};
use super::{current_plan, failed_check};
use crate::args::{ModeArg, PlanArgs, PolicyArg, ThreadArg};
use crate::limits::{EXPLAIN_BUDGET, PLAN_BUDGET};
use crate::machine::Machine;
use albacore_command::Failure;

/// A solved problem, with all data to print.
#[derive(Debug)]
pub(crate) struct SinglePlan {
    /// The problem on the usable CPUs; `current` is the plan in force, if given.
    pub(crate) problem: Problem,
    pub(crate) policy: PolicyArg,
    /// Has passed the checker.
    pub(crate) solution: Solution,
    pub(crate) solve_micros: u64,
    /// The whole machine, including CPUs outside the cpuset.
    pub(crate) machine: Topology,
    pub(crate) distances: PlanDistances,
    pub(crate) change: Option<PlanChange>,
    pub(crate) explanation: Option<Explanation>,
    /// Explanation of the thread given by `--explain`.
    pub(crate) thread: Option<ThreadExplanation>,
}

/// The difference to the plan in force.
#[derive(Debug)]
pub(crate) struct PlanChange {
    pub(crate) moves: Vec<Move>,
    /// Gain of the objective, in cycles; `None` if the plan in force contains CPUs that no longer
    /// exist.
    pub(crate) gained: Option<i64>,
    /// Rules that the plan in force violates by more than the new one: `rule 8 by 1`.
    pub(crate) broke: Vec<(&'static str, u32)>,
}

/// Solves, checks and explains the plan.
///
/// # Errors
/// Usage: the problem has no solution or is rejected. Broken: the solution fails its check.
pub(crate) fn plan_single(args: &PlanArgs) -> Result<SinglePlan, Failure> {
    let (workers, threads, mode) = requested_size(args)?;
    let Machine {
        whole: machine,
        usable,
    } = Machine::open(&args.machine)?;
    let current = match &args.current {
        Some(path) => Some(current_plan::read_single(path, (workers, threads))?),
        None => None,
    };
    let distances = plan_distances(args.distances.as_ref(), &machine)?;
    let problem = Problem {
        workers,
        threads,
        mode: mode.into(),
        topology: usable,
        distances: distances.cycles,
        current,
    };
    let start = Instant::now();
    let solution = solve_with(&problem, args)?;
    let solve_micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    check_solution(&problem, &solution).map_err(|violations| failed_check(&violations))?;
    let change = problem
        .current
        .as_ref()
        .map(|current| change(&problem, current, &solution));
    let (explanation, thread) = explained(&problem, &solution.mapping, args)?;
    Ok(SinglePlan {
        policy: args.policy,
        solution,
        solve_micros,
        machine,
        distances,
        change,
        explanation,
        thread,
        problem,
    })
}

/// The explained plan of a problem that has already been solved.
pub(super) fn explained_plan(
    problem: Problem,
    solution: Solution,
    distances: PlanDistances,
    args: &PlanArgs,
) -> Result<SinglePlan, Failure> {
    let (explanation, thread) = explained(&problem, &solution.mapping, args)?;
    Ok(SinglePlan {
        policy: PolicyArg::Tuna,
        solution,
        solve_micros: 0,
        machine: problem.topology.clone(),
        distances,
        change: None,
        explanation,
        thread,
        problem,
    })
}

/// W, T and mode from the command line, which are required if no file is given.
fn requested_size(args: &PlanArgs) -> Result<(u16, u16, ModeArg), Failure> {
    let (Some(workers), Some(threads), Some(mode)) = (args.workers, args.threads, args.mode) else {
        let what = "--workers, --threads and --mode are required, or a file with -f";
        return Err(Failure::Usage(what.to_owned()));
    };
    for (option, value) in [("--workers", workers), ("--threads", threads)] {
        if value == 0 {
            return Err(Failure::Usage(format!("{option} 0: must be at least 1")));
        }
    }
    Ok((workers, threads, mode))
}

fn solve_with(problem: &Problem, args: &PlanArgs) -> Result<Solution, Failure> {
    let solved = match args.policy {
        PolicyArg::RoundRobin => round_robin(problem),
        PolicyArg::Tuna => {
            let limit = args.time_limit.unwrap_or(PLAN_BUDGET);
            solve(problem, &mut WorkBudget::of_time(limit))
        }
    };
    solved.map_err(|e| Failure::Usage(e.to_string()))
}

fn change(problem: &Problem, current: &Mapping, solution: &Solution) -> PlanChange {
    let before = check(problem, current).ok();
    let objective = solution.certificate.objective;
    let relaxed = before.iter().flat_map(|report| &report.relaxed);
    let admitted = |rule: &str| relaxed_by(&solution.certificate.relaxed, rule);
    PlanChange {
        moves: difference(current, &solution.mapping),
        gained: before.as_ref().map(|report| objective - report.objective),
        broke: relaxed
            .filter(|r| r.amount > admitted(r.rule))
            .map(|r| (r.rule, r.amount))
            .collect(),
    }
}

type Explained = (Option<Explanation>, Option<ThreadExplanation>);

fn explained(problem: &Problem, mapping: &Mapping, args: &PlanArgs) -> Result<Explained, Failure> {
    let Some(thread) = &args.explain else {
        return Ok((None, None));
    };
    let refused = |e: ExplainError| match e {
        ExplainError::NoThread { .. } => Failure::Usage(format!("--explain: {e}")),
        e => Failure::Broken(e.to_string()),
    };
    let thread = match thread {
        Some(ThreadArg(slot)) => Some(explain_thread(problem, mapping, *slot).map_err(refused)?),
        None => None,
    };
    let mut budget = WorkBudget::of_time(EXPLAIN_BUDGET);
    let whole = explain(problem, mapping, &mut budget).map_err(refused)?;
    Ok((Some(whole), thread))
}
