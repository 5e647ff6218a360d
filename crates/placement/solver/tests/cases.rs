//! The cases that the source article names and corner cases of the problem, one by one.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod machines;

use albacore_solver::{
    Certificate, Mode, Problem, ProblemError, Relaxation, Solution, WorkBudget, check_solution,
    counting_bound, round_robin, solve,
};
use albacore_topology::{CpuId, CpuSet, Distances};
use machines::{ARTICLE, Shape, problem};

const SIZES: [u16; 6] = [2, 4, 6, 8, 12, 16];
const MODES: [Mode; 2] = [Mode::Scatter, Mode::Compact];

/// Solves with an unlimited budget and checks the answer.
fn solved(problem: &Problem) -> Solution {
    let solution = solve(problem, &mut WorkBudget::unlimited()).unwrap();
    check_solution(problem, &solution).unwrap();
    solution
}

fn relaxation(rule: &'static str, amount: u32) -> Relaxation {
    Relaxation { rule, amount }
}

#[test]
fn all_72_cases_of_the_article_are_optimal_without_any_relaxation() {
    for mode in MODES {
        for workers in SIZES {
            for threads in SIZES {
                let problem = problem(ARTICLE.topology(), (workers, threads, mode));
                let Certificate {
                    objective,
                    bound,
                    optimal,
                    relaxed,
                    ..
                } = solved(&problem).certificate;
                assert_eq!(
                    counting_bound(&problem, &relaxed),
                    bound,
                    "confirmed by counts"
                );
                assert!(
                    optimal && objective == bound,
                    "{workers} x {threads} {mode:?}"
                );
                assert!(
                    relaxed.is_empty(),
                    "{workers} x {threads} {mode:?}: {relaxed:?}"
                );
            }
        }
    }
}

#[test]
fn values_counted_by_hand_are_reached() {
    let value = |workers, threads, mode| {
        solved(&problem(ARTICLE.topology(), (workers, threads, mode)))
            .certificate
            .objective
    };
    // 2 mains 50 apart, each worker's 2 threads 50 apart in either mode: (8+) allows 1 on a core
    assert_eq!(value(2, 2, Mode::Scatter), 50 + 2 * 50);
    assert_eq!(value(2, 2, Mode::Compact), 50 - 2 * 50);
    // 16 workers on a core each: 120 pairs of mains 50 apart, 16 pairs of threads 4 apart
    assert_eq!(value(16, 2, Mode::Compact), 120 * 50 - 16 * 4);
    // all pairs on different cores
    assert_eq!(value(16, 16, Mode::Scatter), 120 * 50 + 16 * 120 * 50);
}

#[test]
fn contradictory_rules_are_loosened_by_the_smallest_number() {
    // the 2 cpus with two threads must hold a main, because all peers have rank 1
    let problem = problem(Shape([1, 1, 8, 1, 1]).topology(), (5, 2, Mode::Scatter));
    let solution = solved(&problem);
    // without SMT a core is a cpu, so (12+) equals (12)
    assert_eq!(
        solution.certificate.relaxed,
        [relaxation("12", 2), relaxation("12+", 2)]
    );
    assert!(solution.certificate.optimal);
}

#[test]
fn more_workers_or_threads_than_cpus_are_shared_out() {
    for mode in MODES {
        for (workers, threads) in [(9, 2), (2, 9), (9, 9), (1, 9), (9, 1), (64, 64)] {
            let solution = solved(&problem(
                Shape([1, 1, 2, 1, 2]).topology(),
                (workers, threads, mode),
            ));
            assert!(
                solution.certificate.relaxed.is_empty(),
                "{workers} x {threads} {mode:?}"
            );
        }
    }
}

#[test]
fn one_thread_on_one_cpu_is_optimal() {
    let solution = solved(&problem(Shape([1; 5]).topology(), (1, 1, Mode::Compact)));
    assert_eq!(solution.mapping.cpus, [CpuId(0)]);
    assert!(solution.certificate.optimal);
    assert_eq!(solution.certificate.objective, 0);
}

#[test]
fn half_a_core_in_the_cpuset_is_never_an_error() {
    let cpuset: CpuSet = "0-15,16-20".parse().unwrap();
    let topology = ARTICLE.topology().restrict(&cpuset).unwrap();
    for mode in MODES {
        for workers in SIZES {
            for threads in SIZES {
                solved(&problem(topology.clone(), (workers, threads, mode)));
            }
        }
    }
}

#[test]
fn hybrid_machines_with_shared_l2_are_placed() {
    // 4 fast cores x 2 cpus, 8 slow ones x 1 that share L2 by four
    let mut cpus = Shape([1, 1, 4, 1, 2]).cpus();
    for i in 0..8u32 {
        let mut slow = cpus[0];
        (slow.id, slow.core, slow.l2) = (CpuId(8 + i as u16), 4 + i, 4 + i / 4);
        slow.capacity = 640;
        cpus.push(slow);
    }
    let topology = albacore_topology::Topology::new(cpus).unwrap();
    for mode in MODES {
        for (workers, threads) in [(2, 4), (4, 4), (3, 5), (16, 16)] {
            solved(&problem(topology.clone(), (workers, threads, mode)));
        }
    }
}

#[test]
fn a_spent_budget_still_gives_a_valid_answer() {
    let problem = problem(Shape([2, 8, 1, 8, 2]).topology(), (64, 64, Mode::Compact));
    let solution = solve(&problem, &mut WorkBudget::of_steps(0)).unwrap();
    check_solution(&problem, &solution).unwrap();
    assert!(solution.certificate.bound >= solution.certificate.objective);
}

#[test]
fn round_robin_is_the_baseline_of_the_article() {
    let problem = problem(ARTICLE.topology(), (4, 16, Mode::Scatter));
    let solution = round_robin(&problem).unwrap();
    let first: Vec<u16> = solution
        .mapping
        .cpus
        .iter()
        .take(4)
        .map(|cpu| cpu.0)
        .collect();
    assert_eq!(first, [0, 1, 2, 3]);
    // T divides C: the mains of all workers are on cpus 0 and 16
    assert_eq!(solution.certificate.relaxed[0], relaxation("2", 1));
    assert!(!solution.certificate.optimal);
}

#[test]
fn invalid_problems_are_rejected_with_field_and_value() {
    let of = |workers, threads| {
        let problem = problem(ARTICLE.topology(), (workers, threads, Mode::Scatter));
        (
            solve(&problem, &mut WorkBudget::unlimited()).unwrap_err(),
            round_robin(&problem).unwrap_err(),
        )
    };
    assert_eq!(of(0, 4), (ProblemError::NoWorkers, ProblemError::NoWorkers));
    assert_eq!(of(4, 0), (ProblemError::NoThreads, ProblemError::NoThreads));
    assert!(
        of(1_000, 1)
            .0
            .to_string()
            .starts_with("workers is 1000, more than 256")
    );
    assert!(
        of(1, 1_000)
            .0
            .to_string()
            .starts_with("threads is 1000, more than 256")
    );
    assert!(
        of(200, 200)
            .0
            .to_string()
            .starts_with("workers x threads is 200 x 200 = 40000")
    );
}

#[test]
fn distances_that_fall_with_the_level_are_refused() {
    let mut problem = problem(ARTICLE.topology(), (2, 2, Mode::Scatter));
    problem.distances = Distances {
        l3: 9,
        ..Distances::default()
    };
    let error = solve(&problem, &mut WorkBudget::unlimited()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "distance l3 is 9 but the nearer l2 is 10: distances must not decrease in the order cpu, \
         l1, l2, l3, numa, package, machine"
    );
}
