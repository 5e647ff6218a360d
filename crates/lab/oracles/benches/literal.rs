//! Prints one table: case, solver, objective, bound, optimal, seconds, and the ratio of the time to
//! that of the exact construction in the same run.
//!
//! The article's program gets [`SECONDS`]; if it finds nothing or is too large, its row contains
//! the error. `cargo bench -p albacore-oracles --bench literal`
#![allow(clippy::expect_used)] // a benchmark has nobody to return an error to

use std::time::{Duration, Instant};

use albacore_oracles::solve_literal;
use albacore_solver::{Mode, Problem, Solution, WorkBudget, check_solution, solve};
use albacore_topology::{Distances, Topology, parse_synthetic};

/// Time limit of the program, without building it and reading the result.
const SECONDS: f64 = 20.0;

/// Budget of the exact solver, and its number of runs, of which the fastest counts.
const BUDGET: Duration = Duration::from_millis(50);
const RUNS: usize = 5;

const SMALL: &str = "pack:1 l3:1 core:4 pu:2";
const ARTICLE: &str = "pack:1 l3:1 core:16 pu:2";

/// Machine, its name, W and T.
type Case = (&'static str, &'static str, (u16, u16));

const CASES: [Case; 7] = [
    ("1x4x2", SMALL, (2, 2)),
    ("1x4x2", SMALL, (3, 3)),
    ("1x4x2", SMALL, (4, 4)),
    ("1x16x2", ARTICLE, (2, 2)),
    ("1x16x2", ARTICLE, (2, 4)),
    ("1x16x2", ARTICLE, (4, 4)),
    ("1x16x2", ARTICLE, (8, 4)),
];

fn main() {
    println!("case\tsolver\tobjective\tbound\toptimal\tseconds\ttimes_exact");
    for (name, machine, size) in CASES {
        let topology = parse_synthetic(machine).expect("a machine");
        for mode in [Mode::Scatter, Mode::Compact] {
            let problem = problem(&topology, size, mode);
            let case = format!("{name} {}x{} {mode:?}", size.0, size.1);
            let exact = (0..RUNS).map(|_| exact(&problem));
            let exact = exact.min_by_key(|(_, took)| *took).expect("several runs");
            let unit = exact.1.as_secs_f64();
            row(&format!("{case}\texact"), &problem, &exact, unit);
            let start = Instant::now();
            let literal = solve_literal(&problem, SECONDS).map_err(|error| error.to_string());
            let literal = (literal, start.elapsed());
            row(&format!("{case}\tliteral"), &problem, &literal, unit);
        }
    }
}

fn problem(topology: &Topology, (workers, threads): (u16, u16), mode: Mode) -> Problem {
    Problem {
        workers,
        threads,
        mode,
        topology: topology.clone(),
        distances: Distances::default(),
        current: None,
    }
}

/// A solution or the error, and the time that it took.
type Outcome = (Result<Solution, String>, Duration);

fn exact(problem: &Problem) -> Outcome {
    let start = Instant::now();
    let answer = solve(problem, &mut WorkBudget::of_time(BUDGET));
    (answer.map_err(|error| error.to_string()), start.elapsed())
}

fn row(name: &str, problem: &Problem, (answer, took): &Outcome, unit: f64) {
    let seconds = took.as_secs_f64();
    match answer {
        Ok(solution) => {
            check_solution(problem, solution).expect("every answer is valid");
            let stated = &solution.certificate;
            println!(
                "{name}\t{}\t{}\t{}\t{seconds:.6}\t{:.0}",
                stated.objective,
                stated.bound,
                stated.optimal,
                seconds / unit.max(1e-9)
            );
        }
        Err(why) => println!("{name}\t-\t-\tfalse\t{seconds:.6}\t-\t{why}"),
    }
}
