//! Time to solve again after one respawn: the problem and the mapping in force are unchanged.

use std::time::{Duration, Instant};

use albacore_solver::{Mode, Stage, WorkBudget, solve, solve_with_stage};
use albacore_topology::Topology;

use crate::table::{BUDGET, problem};

/// Runs per line: enough for a 99th percentile.
const RUNS: usize = 2_000;

/// Prints one line: median and 99th percentile.
pub(crate) fn respawn(name: &str, topology: &Topology, size: (u16, u16, Mode)) {
    let mut problem = problem(topology, size);
    // unlimited: on a busy machine a time budget could leave room for improvement
    let first = solve(&problem, &mut WorkBudget::unlimited()).expect("within limits");
    problem.current = Some(first.mapping.clone());
    let mut moved = 0;
    let mut took: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            let (again, stage) = solve_with_stage(&problem, &mut WorkBudget::of_time(BUDGET))
                .expect("within limits");
            let took = start.elapsed();
            moved += u32::from(stage != Stage::KeptCurrent || again.mapping != first.mapping);
            took
        })
        .collect();
    if moved > 0 {
        println!("# WRONG: threads move though nothing changed, {moved} of {RUNS} times");
    }
    took.sort_unstable();
    let micros = |percent: usize| took[(RUNS - 1) * percent / 100].as_nanos() as f64 / 1e3;
    let (workers, threads, mode) = size;
    println!(
        "# re-solve after one respawn, {name} {workers}x{threads} {mode:?}: micros p50 {:.1} p99 {:.1}",
        micros(50),
        micros(99)
    );
}
