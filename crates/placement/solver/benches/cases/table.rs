//! One row of the table: a problem, solved and checked several times.

use std::time::{Duration, Instant};

use albacore_solver::{
    Certificate, Mode, Problem, Solution, Stage, WorkBudget, check_solution, counting_bound,
    solve_with_stage,
};
use albacore_topology::{Distances, Topology};

/// Runs per case: the machine is busy, so the minimum is the best estimate.
const RUNS: usize = 5;
/// Time budget of the solver.
pub(crate) const BUDGET: Duration = Duration::from_millis(30);

/// Figures of a row that a summary needs.
pub(crate) struct Row {
    /// Minimum microseconds to solve without a mapping in force.
    pub(crate) micros: u128,
    /// The same with the answer given as the mapping in force.
    pub(crate) again: u128,
    pub(crate) optimal: bool,
    /// (bound - objective) / max(|objective|, 1).
    pub(crate) gap: f64,
    /// (bound - objective) / all distances that the objective adds or subtracts.
    pub(crate) gap_of_terms: f64,
}

/// The names of the columns.
pub(crate) fn head() {
    println!(
        "case\tobjective\tbound\toptimal\tgap_percent\tmicros\tagain_micros\tbranch\tconfirmed\trelaxed"
    );
}

/// A problem without a mapping in force.
pub(crate) fn problem(topology: &Topology, (workers, threads, mode): (u16, u16, Mode)) -> Problem {
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

pub(crate) fn run(name: &str, topology: &Topology, size: (u16, u16, Mode)) -> Row {
    let mut problem = problem(topology, size);
    let (solution, stage, micros) = timed(&problem, RUNS);
    problem.current = Some(solution.mapping.clone());
    let (_, _, again) = timed(&problem, RUNS);
    let stated = &solution.certificate;
    let row = Row {
        micros,
        again,
        optimal: stated.optimal,
        gap: gap(stated),
        gap_of_terms: gap_of_terms(&problem, &solution),
    };
    let relaxed: Vec<String> = stated
        .relaxed
        .iter()
        .map(|r| format!("({}) by {}", r.rule, r.amount))
        .collect();
    let (workers, threads, mode) = size;
    println!(
        "{name} {workers}x{threads} {mode:?}\t{}\t{}\t{}\t{:.3}\t{micros}\t{again}\t{}\t{}\t{}",
        stated.objective,
        stated.bound,
        stated.optimal,
        row.gap * 100.0,
        label(stage),
        counting_bound(&problem, &stated.relaxed) <= stated.bound,
        relaxed.join(", ")
    );
    row
}

/// Gap between objective and bound, relative to the objective.
pub(crate) fn gap(stated: &Certificate) -> f64 {
    (stated.bound - stated.objective) as f64 / stated.objective.abs().max(1) as f64
}

/// The gap relative to the sum of all distances: in compact mode the objective is a difference,
/// which may be near 0 while both of its terms are large.
pub(crate) fn gap_of_terms(problem: &Problem, solution: &Solution) -> f64 {
    let cpu = |id| problem.topology.cpus().iter().find(|cpu| cpu.id == id);
    let places: Vec<_> = solution
        .mapping
        .cpus
        .iter()
        .filter_map(|&id| cpu(id))
        .collect();
    let apart = |of: &[&albacore_topology::Cpu]| -> i64 {
        let pair = |i: usize, j: usize| Topology::distance(of[i], of[j], &problem.distances);
        let all = (0..of.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
        all.map(|(i, j)| i64::from(pair(i, j))).sum()
    };
    let threads = usize::from(problem.threads);
    let mains: Vec<_> = places.iter().step_by(threads).copied().collect();
    let terms = apart(&mains) + places.chunks(threads).map(apart).sum::<i64>();
    let stated = &solution.certificate;
    (stated.bound - stated.objective) as f64 / terms.max(1) as f64
}

/// The name of a stage in the table.
fn label(stage: Stage) -> &'static str {
    match stage {
        Stage::KeptCurrent => "settled",
        Stage::Constructed => "constructed",
        Stage::LocalSearch => "climbed",
        Stage::Annealed => "annealed",
        Stage::Enumerated => "enumerated",
        Stage::Reduced => "reduced",
    }
}

/// The checked answer, its stage, and the minimum microseconds.
pub(crate) fn timed(problem: &Problem, runs: usize) -> (Solution, Stage, u128) {
    let mut least = u128::MAX;
    let mut last = None;
    for _ in 0..runs {
        let start = Instant::now();
        let mut budget = WorkBudget::of_time(BUDGET);
        let solution = solve_with_stage(problem, &mut budget).expect("within limits");
        least = least.min(start.elapsed().as_micros());
        last = Some(solution);
    }
    let (solution, stage) = last.expect("at least one run");
    if let Err(violations) = check_solution(problem, &solution) {
        println!("# WRONG: {violations:?}");
    }
    (solution, stage, least)
}

/// Prints one line on many rows.
pub(crate) fn summary(name: &str, rows: &[Row]) {
    let sorted = |of: fn(&Row) -> u128| {
        let mut micros: Vec<u128> = rows.iter().map(of).collect();
        micros.sort_unstable();
        micros
    };
    let (micros, again) = (sorted(|row| row.micros), sorted(|row| row.again));
    let optimal = rows.iter().filter(|row| row.optimal).count();
    let near = rows.iter().filter(|row| row.gap <= 0.01).count();
    let near_in_terms = rows.iter().filter(|row| row.gap_of_terms <= 0.01).count();
    let worst = rows.iter().map(|row| row.gap).fold(0.0, f64::max);
    println!(
        "# {name}: {optimal} of {} optimal, {near} within 1 % ({near_in_terms} of \
         the terms), worst gap {:.3} %, micros median {} \
         p99 {} max {}, again median {} \
         p99 {} max {}",
        rows.len(),
        worst * 100.0,
        micros[micros.len() / 2],
        micros[micros.len() * 99 / 100],
        micros[micros.len() - 1],
        again[again.len() / 2],
        again[again.len() * 99 / 100],
        again[again.len() - 1]
    );
}

/// Peak resident memory of this process.
pub(crate) fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.split_whitespace().next())
        .and_then(|word| word.parse().ok())
        .unwrap_or(0)
}
