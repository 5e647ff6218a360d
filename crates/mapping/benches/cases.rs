//! Prints one table: case, objective, bound, optimal, gap, micros, micros with the mapping in force
//! given (a respawn), what had to be relaxed.
//!
//! The 72 cases of the source article (W, T in {2,4,6,8,12,16}, both modes, one socket, 16 cores x
//! 2 cpus, one L3) and larger machines. Each case is solved several times; micros is the median.
//! Every answer is checked.
#![allow(clippy::expect_used)] // a benchmark has nobody to return an error to

use std::time::{Duration, Instant};

use albacore_mapping::{Mode, Problem, Solution, check_solution, solve};
use albacore_topology::{CoreKind, Cpu, CpuId, Distances, Topology};

const SIZES: [u16; 6] = [2, 4, 6, 8, 12, 16];
const RUNS: usize = 5;
const BUDGET: Duration = Duration::from_millis(50);

fn main() {
    println!("case\tobjective\tbound\toptimal\tgap_percent\tmicros\tagain_micros\trelaxed");
    let article = machine([1, 1, 16, 2]);
    let mut rows = Vec::new();
    for mode in [Mode::Scatter, Mode::Compact] {
        for workers in SIZES {
            for threads in SIZES {
                rows.push(run("1x16x2", &article, (workers, threads, mode)));
            }
        }
    }
    summary("72 cases of the article", &rows);
    let large = [
        ("1x16x2", [1, 1, 16, 2]),
        ("2x16x2", [2, 2, 8, 2]),
        ("2x8x8x2", [2, 8, 8, 2]),
        ("2x4x16x1", [2, 4, 16, 1]),
        ("1x4x8x4", [1, 4, 8, 4]),
    ];
    let mut rows = Vec::new();
    for (name, shape) in large {
        for mode in [Mode::Scatter, Mode::Compact] {
            for (workers, threads) in [(3, 5), (7, 9), (16, 16), (64, 64)] {
                rows.push(run(name, &machine(shape), (workers, threads, mode)));
            }
        }
    }
    summary("other machines", &rows);
}

/// Packages x L3 each x cores each x cpus each.
fn machine([packages, l3s, cores, width]: [u32; 4]) -> Topology {
    let all_cores = packages * l3s * cores;
    let cpus = (0..all_cores * width).map(|id| {
        let core = id % all_cores;
        let (l3, package) = (core / cores, core / cores / l3s);
        let kind = CoreKind::Performance;
        Cpu {
            id: CpuId(id as u16),
            core,
            l2: core,
            l3,
            numa: package,
            package,
            kind,
        }
    });
    Topology::new(cpus.collect()).expect("a regular machine is nested")
}

struct Row {
    micros: u128,
    optimal: bool,
    gap: f64,
}

fn run(name: &str, topology: &Topology, (workers, threads, mode): (u16, u16, Mode)) -> Row {
    let (topology, distances) = (topology.clone(), Distances::default());
    let mut problem = Problem {
        workers,
        threads,
        mode,
        topology,
        distances,
        current: None,
    };
    let (solution, micros) = timed(&problem);
    problem.current = Some(solution.mapping.clone());
    let (_, again) = timed(&problem);
    let stated = &solution.certificate;
    let gap = (stated.bound - stated.objective) as f64 / (stated.bound.abs().max(1)) as f64;
    let row = Row {
        micros,
        optimal: stated.optimal,
        gap,
    };
    let relaxed: Vec<String> = stated
        .relaxed
        .iter()
        .map(|r| format!("({}) by {}", r.rule, r.amount))
        .collect();
    println!(
        "{name} {workers}x{threads} {mode:?}\t{}\t{}\t{}\t{:.3}\t{}\t{again}\t{}",
        stated.objective,
        stated.bound,
        stated.optimal,
        gap * 100.0,
        row.micros,
        relaxed.join(", ")
    );
    row
}

/// The answer, checked, and the median of the microseconds it took.
fn timed(problem: &Problem) -> (Solution, u128) {
    let mut micros = Vec::new();
    let mut last = None;
    for _ in 0..RUNS {
        let start = Instant::now();
        let solution = solve(problem, &mut || start.elapsed() > BUDGET).expect("within limits");
        micros.push(start.elapsed().as_micros());
        last = Some(solution);
    }
    micros.sort_unstable();
    let solution = last.expect("at least one run");
    check_solution(problem, &solution).expect("every answer is valid");
    (solution, micros[RUNS / 2])
}

fn summary(name: &str, rows: &[Row]) {
    let mut micros: Vec<u128> = rows.iter().map(|row| row.micros).collect();
    micros.sort_unstable();
    let optimal = rows.iter().filter(|row| row.optimal).count();
    let worst = rows.iter().map(|row| row.gap).fold(0.0, f64::max);
    println!(
        "# {name}: {optimal} of {} optimal, worst gap {:.3} %, micros median {} max {}",
        rows.len(),
        worst * 100.0,
        micros[micros.len() / 2],
        micros[micros.len() - 1]
    );
}
