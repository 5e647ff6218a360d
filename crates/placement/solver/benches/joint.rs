//! Prints a table of joint problems with the columns: case, threads, objective, bound, its proof,
//! whether the checker counts the bound too, gap, milliseconds with a budget of zero and with the
//! usual one, microseconds of the checker; after one worker's respawn (nothing changed),
//! microseconds with the cached solution and without it, and the threads that moved; milliseconds
//! and moved threads when one more deployment joins; peak memory.
//!
//! Every answer is checked. Each case is solved several times; times are medians. An argument
//! selects the cases whose names contain it.
#![allow(clippy::expect_used)] // a benchmark has no caller to return an error to

use std::time::{Duration, Instant};

use albacore_solver::{
    CachedSolution, Deployment, JointProblem, JointSolution, Mode, WorkBudget, check_joint,
    joint_counting_bound, solve_joint,
};
use albacore_topology::{CAPACITY_MAX, Cpu, CpuId, CpuSet, Distances, Topology};

const RUNS: usize = 5;
const RESPAWNS: usize = 101;
/// The budget of the placer.
const BUDGET: Duration = Duration::from_millis(30);

fn main() {
    println!(
        "case\tthreads\tobjective\tbound\tproof\tcounted\tgap_percent\tfloor_ms\tms\tcheck_us\trespawn_us\tagain_us\tmoved\tjoin_ms\tjoin_moved\tpeak_mib"
    );
    let article = machine([1, 1, 16, 2]);
    let large = machine([2, 8, 8, 2]);
    for (name, topology, count, cpusets) in [
        ("2 on 32 cpus", &article, 2, Cpusets::Same),
        ("10 on 32 cpus", &article, 10, Cpusets::Same),
        ("10 on 32 cpus, halves", &article, 10, Cpusets::Halves),
        ("10 on 256 cpus", &large, 10, Cpusets::Same),
        ("50 on 256 cpus, by L3", &large, 50, Cpusets::Sixteenths),
        ("200 on 256 cpus", &large, 200, Cpusets::Same),
        ("200 on 256 cpus, halves", &large, 200, Cpusets::Halves),
        ("200 on 256 cpus, windows", &large, 200, Cpusets::Windows),
    ] {
        run(name, &problem(topology, count, cpusets));
    }
    run("1 of 16 x 16 on 32 cpus", &square(&article, 1, 16));
    run("1 of 64 x 64 on 256 cpus", &square(&large, 1, 64));
    run("200 of 16 x 16 on 256 cpus", &square(&large, 200, 16));
}

/// `count` deployments, each of `side` workers with `side` threads, on the whole machine.
fn square(topology: &Topology, count: usize, side: u16) -> JointProblem {
    let mut problem = problem(topology, count, Cpusets::Same);
    for deployment in &mut problem.deployments {
        (deployment.workers, deployment.threads) = (side, side);
    }
    problem
}

#[derive(Clone, Copy)]
enum Cpusets {
    /// The whole machine for every deployment.
    Same,
    /// The lower or the upper half of the cores, alternately.
    Halves,
    /// One L3 per deployment.
    Sixteenths,
    /// A quarter of the cpus per deployment, each window at a different offset.
    Windows,
}

impl Cpusets {
    fn of(self, index: usize, topology: &Topology) -> CpuSet {
        let cpus = topology.cpus();
        let cores = cpus.len() / 2;
        let keep = |cpu: &&Cpu| {
            let core = cpu.core as usize;
            match self {
                Self::Same => true,
                Self::Halves => (core * 2 / cores) == index % 2,
                Self::Sixteenths => cpu.l3 as usize == index % 16,
                Self::Windows => (core + cores - index * 7 % cores) % cores < cores / 4,
            }
        };
        cpus.iter().filter(keep).map(|cpu| cpu.id).collect()
    }
}

fn problem(topology: &Topology, count: usize, cpusets: Cpusets) -> JointProblem {
    let sizes = [
        (4, 4, Mode::Scatter),
        (2, 8, Mode::Compact),
        (8, 2, Mode::Scatter),
        (1, 16, Mode::Compact),
    ];
    let deployment = |(index, &(workers, threads, mode))| Deployment {
        workers,
        threads,
        mode,
        cpuset: cpusets.of(index, topology),
        current: None,
    };
    JointProblem {
        deployments: sizes
            .iter()
            .cycle()
            .take(count)
            .enumerate()
            .map(deployment)
            .collect(),
        topology: topology.clone(),
        distances: Distances::default(),
        obstacles: Vec::new(),
        move_cost: 200,
    }
}

/// Packages x L3 per package x cores per L3 x cpus per core.
fn machine([packages, l3s, cores, width]: [u32; 4]) -> Topology {
    let all_cores = packages * l3s * cores;
    let cpus = (0..all_cores * width).map(|id| {
        let core = id % all_cores;
        let (l3, package) = (core / cores, core / cores / l3s);
        Cpu {
            id: CpuId(id as u16),
            core,
            l2: core,
            l3,
            numa: package,
            package,
            capacity: CAPACITY_MAX,
        }
    });
    Topology::new(cpus.collect()).expect("a regular machine is nested")
}

fn run(name: &str, problem: &JointProblem) {
    let wanted = std::env::args().skip(1).find(|a| !a.starts_with('-'));
    if wanted.is_some_and(|wanted| !name.contains(&wanted)) {
        return;
    }
    let threads: usize = problem
        .deployments
        .iter()
        .map(|d| usize::from(d.workers) * usize::from(d.threads))
        .sum();
    let (solution, micros) = timed(problem, BUDGET);
    let stated = &solution.certificate;
    let gap = (stated.bound - stated.objective) as f64 / (stated.objective.abs().max(1)) as f64;
    let mut again = problem.clone();
    for (deployment, mapping) in again.deployments.iter_mut().zip(&solution.mappings) {
        deployment.current = Some(mapping.clone());
    }
    let (second, again_micros) = timed(&again, BUDGET);
    let (_, floor_micros) = timed(problem, Duration::ZERO);
    let respawn_micros = respawned(problem, &solution, &again);
    let mut joined = again.clone();
    joined.deployments.push(Deployment {
        current: None,
        ..problem.deployments[0].clone()
    });
    let (third, join_micros) = timed(&joined, BUDGET);
    let start = Instant::now();
    check_joint(problem, &solution).expect("every answer is valid");
    let check_micros = start.elapsed().as_micros();
    let counted = joint_counting_bound(problem, &solution);
    let is_counted = counted.is_some_and(|counted| counted <= stated.bound);
    println!(
        "{name}\t{threads}\t{}\t{}\t{:?}\t{is_counted}\t{:.2}\t{:.1}\t{:.1}\t{check_micros}\t{respawn_micros:.1}\t\
         {again_micros}\t{}\t{:.1}\t{}\t{}",
        stated.objective,
        stated.bound,
        stated.proof,
        gap * 100.0,
        floor_micros as f64 / 1000.0,
        micros as f64 / 1000.0,
        second.moved,
        join_micros as f64 / 1000.0,
        third.moved,
        peak_mib()
    );
}

/// Median microseconds to find that the cached solution holds after a respawn.
fn respawned(problem: &JointProblem, solution: &JointSolution, again: &JointProblem) -> f64 {
    let cached = CachedSolution::new(problem.clone(), solution.clone());
    let mut nanos = Vec::new();
    for _ in 0..RESPAWNS {
        let start = Instant::now();
        let answer = cached.get(again);
        nanos.push(start.elapsed().as_nanos());
        assert!(answer.is_some_and(|answer| answer.moved == 0));
    }
    nanos.sort_unstable();
    nanos[RESPAWNS / 2] as f64 / 1000.0
}

/// The checked answer and the median microseconds.
fn timed(problem: &JointProblem, budget: Duration) -> (JointSolution, u128) {
    let mut micros = Vec::new();
    let mut last = None;
    for _ in 0..RUNS {
        let start = Instant::now();
        let solution = solve_joint(problem, &mut WorkBudget::of_time(budget));
        micros.push(start.elapsed().as_micros());
        last = Some(solution.expect("within limits"));
    }
    micros.sort_unstable();
    let solution = last.expect("at least one run");
    check_joint(problem, &solution).expect("every answer is valid");
    (solution, micros[RUNS / 2])
}

/// Peak resident memory of this process in MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}
