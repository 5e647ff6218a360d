//! `albacore bench solver`: compares the solver of `albacore plan` with the integer program of the
//! source article on one problem; prints one line of JSON for each.

use std::time::{Duration, Instant};

use albacore_command::{Failure, print_json};
use albacore_oracles::{SECONDS_MAX, solve_literal};
use albacore_solver::{Mode, Problem, Solution, WorkBudget, solve};
use albacore_topology::{Distances, parse_synthetic};
use serde_json::{Value, json};

/// The arguments of `albacore bench solver`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchSolverArgs {
    /// Number of workers
    #[arg(long, value_name = "W")]
    workers: u16,
    /// Number of threads per worker
    #[arg(long, value_name = "T")]
    threads: u16,
    /// Place the threads of a worker far apart or close together
    #[arg(long, value_enum)]
    mode: ModeArg,
    /// Machine, as an hwloc synthetic string
    #[arg(long, value_name = "SPEC", default_value = "pack:1 l3:1 core:16 pu:2")]
    topology: String,
    /// Time limit of the integer program, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    time_limit: f64,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ModeArg {
    Scatter,
    Compact,
}

/// Solves the problem with both and prints a line for each solver.
///
/// # Errors
/// Usage: the problem is rejected. Failed: standard output cannot be written.
pub(crate) fn run(args: &BenchSolverArgs) -> Result<(), Failure> {
    if !(args.time_limit > 0.0 && args.time_limit <= SECONDS_MAX) {
        let what = format!("--time-limit: write seconds above 0, at most {SECONDS_MAX}");
        return Err(Failure::Usage(what));
    }
    let topology = parse_synthetic(&args.topology).map_err(|e| Failure::usage("--topology", &e))?;
    let problem = Problem {
        workers: args.workers,
        threads: args.threads,
        mode: match args.mode {
            ModeArg::Scatter => Mode::Scatter,
            ModeArg::Compact => Mode::Compact,
        },
        topology,
        distances: Distances::default(),
        current: None,
    };
    let start = Instant::now();
    let limit = Duration::from_secs_f64(args.time_limit);
    let exact = solve(&problem, &mut WorkBudget::of_time(limit));
    let exact = exact.map_err(|e| Failure::Usage(e.to_string()))?;
    print_json(&line("exact", start, &exact))?;
    let start = Instant::now();
    print_json(&match solve_literal(&problem, args.time_limit) {
        Ok(solution) => line("literal", start, &solution),
        Err(error) => json!({"solver": "literal", "error": error.to_string()}),
    })
}

fn line(solver: &str, start: Instant, solution: &Solution) -> Value {
    let micros = start.elapsed().as_micros() as u64;
    let stated = &solution.certificate;
    let relaxed = stated.relaxed.iter();
    let relaxed: Vec<Value> = relaxed
        .map(|r| json!({"rule": r.rule, "amount": r.amount}))
        .collect();
    json!({
        "solver": solver,
        "objective": stated.objective,
        "bound": stated.bound,
        "optimal": stated.optimal,
        "relaxed": relaxed,
        "solve_micros": micros,
    })
}
