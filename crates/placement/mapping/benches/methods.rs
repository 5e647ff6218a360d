//! Prints one table: case, method, objective, bound, optimal, seconds, and how many times as long
//! as the exact construction took, all in one run.
//!
//! The programs get [`SECONDS`] each; one that found nothing or is too large for its engine says so
//! in its row. `cargo bench -p albacore-mapping --bench methods` has microlp as the engine, with
//! `--features highs` HiGHS.
#![allow(clippy::expect_used)] // a benchmark has nobody to return an error to

use std::time::{Duration, Instant};

use albacore_mapping::{Method, Mode, Problem, check_solution, solve_by};
use albacore_topology::{Distances, Topology, parse_synthetic};

/// What a program gets; building it and reading it back come on top.
const SECONDS: f64 = 20.0;

/// The exact solver's budget, and how often it runs: its fastest run counts.
const BUDGET: Duration = Duration::from_millis(50);
const RUNS: usize = 5;

const SMALL: &str = "pack:1 l3:1 core:4 pu:2";
const ARTICLE: &str = "pack:1 l3:1 core:16 pu:2";
const LARGE: &str = "pack:2 l3:8 core:8 pu:2";

/// Machine, its name, W and T, and the programs that are run on it.
type Case = (&'static str, &'static str, (u16, u16), &'static [Method]);

const BOTH: &[Method] = &[Method::Reduced, Method::Literal];
const REDUCED: &[Method] = &[Method::Reduced];
const CASES: [Case; 10] = [
    ("1x4x2", SMALL, (2, 2), BOTH),
    ("1x4x2", SMALL, (3, 3), BOTH),
    ("1x4x2", SMALL, (4, 4), BOTH),
    ("1x16x2", ARTICLE, (2, 2), BOTH),
    ("1x16x2", ARTICLE, (2, 4), BOTH),
    ("1x16x2", ARTICLE, (4, 4), BOTH),
    ("1x16x2", ARTICLE, (8, 4), BOTH),
    ("1x16x2", ARTICLE, (12, 12), REDUCED),
    ("1x16x2", ARTICLE, (16, 16), REDUCED),
    ("2x8x8x2", LARGE, (16, 16), REDUCED),
];

fn main() {
    println!("case\tmethod\tobjective\tbound\toptimal\tseconds\ttimes_exact");
    for (name, machine, size, programs) in CASES {
        let topology = parse_synthetic(machine).expect("a machine");
        for mode in [Mode::Scatter, Mode::Compact] {
            let problem = problem(&topology, size, mode);
            let case = format!("{name} {}x{} {mode:?}", size.0, size.1);
            let exact = (0..RUNS).map(|_| run(Method::Exact, &problem));
            let exact = exact.min_by_key(|(_, took)| *took).expect("several runs");
            let unit = exact.1.as_secs_f64();
            row(&case, Method::Exact, &exact, unit);
            for &program in programs {
                row(&case, program, &run(program, &problem), unit);
            }
        }
    }
}

fn problem(topology: &Topology, (workers, threads): (u16, u16), mode: Mode) -> Problem {
    let (topology, distances) = (topology.clone(), Distances::default());
    Problem {
        workers,
        threads,
        mode,
        topology,
        distances,
        current: None,
    }
}

/// Objective, bound, optimal; or why there is nothing.
type Outcome = Result<(i64, i64, bool), String>;

fn run(method: Method, problem: &Problem) -> (Outcome, Duration) {
    let start = Instant::now();
    let mut out_of_budget = || method == Method::Exact && start.elapsed() > BUDGET;
    let answer = solve_by(method, problem, &mut out_of_budget, SECONDS);
    let took = start.elapsed();
    let outcome = answer.map_err(|error| error.to_string()).map(|solution| {
        check_solution(problem, &solution).expect("every answer is valid");
        let stated = solution.certificate;
        (stated.objective, stated.bound, stated.optimal)
    });
    (outcome, took)
}

fn row(case: &str, method: Method, (outcome, took): &(Outcome, Duration), unit: f64) {
    let seconds = took.as_secs_f64();
    let times = seconds / unit.max(1e-9);
    match outcome {
        Ok((objective, bound, optimal)) => {
            println!("{case}\t{method}\t{objective}\t{bound}\t{optimal}\t{seconds:.6}\t{times:.0}")
        }
        Err(why) => println!("{case}\t{method}\t-\t-\tfalse\t{seconds:.6}\t-\t{why}"),
    }
}
