//! The program of the source article as an oracle: on every problem with at most 6 cpus and 6
//! threads it agrees with the exact construction and with exhaustive enumeration.
//!
//! The exact solver is compared with enumeration on all 9,128 problems. The article's program takes
//! most of the time: it runs on all problems of up to [`LITERAL_CPUS`] cpus and on every
//! [`LITERAL_STRIDE`]th of the others, and on all of them if `ALBACORE_SOAK` is set (`make soak`).
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../../../placement/solver/src/enumerated/tests.rs"]
mod enumerated;
#[path = "../../../placement/solver/tests/machines/mod.rs"]
mod machines;

use albacore_oracles::{LiteralError, solve_literal};
use albacore_solver::{Mode, Problem, Solution, WorkBudget, check_solution, solve};
use enumerated::{
    RULES, best_of_all, every_problem, every_problem_of_two_nodes, every_topology,
    every_topology_of_two_nodes,
};
use machines::{ARTICLE, Shape, problem};

const CPUS: usize = 6;

/// Maximum number of cpus of a machine with two nodes.
const CPUS_OF_TWO_NODES: usize = 5;
const THREADS: u16 = 6;

/// Up to this number of cpus, the literal program runs on every problem.
const LITERAL_CPUS: usize = 4;

/// Stride over the larger problems: coprime to the number of sizes, which is 14, so that every size
/// is sampled.
const LITERAL_STRIDE: usize = 9;

/// Time limit: far above the time of the slowest of these programs on a busy machine.
const SECONDS: f64 = 600.0;

fn literal(problem: &Problem) -> Solution {
    solve_literal(problem, SECONDS).unwrap()
}

fn exact(problem: &Problem) -> Solution {
    solve(problem, &mut WorkBudget::unlimited()).unwrap()
}

fn breaches(solution: &Solution) -> [u32; 5] {
    let relaxed = &solution.certificate.relaxed;
    assert!(
        relaxed.iter().all(|r| RULES.contains(&r.rule)),
        "{relaxed:?}"
    );
    RULES.map(|rule| {
        relaxed
            .iter()
            .find(|r| r.rule == rule)
            .map_or(0, |r| r.amount)
    })
}

fn is_soak() -> bool {
    std::env::var_os("ALBACORE_SOAK").is_some()
}

/// Whether the literal program runs on this problem, given its position in the list of all.
fn is_for_the_program(problem: &Problem, place: usize) -> bool {
    is_soak()
        || problem.topology.cpus().len() <= LITERAL_CPUS
        || place.is_multiple_of(LITERAL_STRIDE)
}

/// Compares the solvers on every problem; returns the number of problems.
fn compare(problems: &[Problem]) -> usize {
    for (place, problem) in problems.iter().enumerate() {
        let of = |solver: &str| {
            let cpus = problem.topology.cpus().iter();
            let tree: Vec<_> = cpus
                .map(|cpu| (cpu.core, cpu.l2, cpu.l3, cpu.numa))
                .collect();
            let Problem {
                workers,
                threads,
                mode,
                ..
            } = problem;
            format!("{solver}: {workers} x {threads} {mode:?} on (core, L2, L3, node) {tree:?}")
        };
        let (least, value) = best_of_all(problem);
        let literal = is_for_the_program(problem, place).then(|| ("literal", literal(problem)));
        for (solver, solution) in literal.into_iter().chain([("exact", exact(problem))]) {
            check_solution(problem, &solution).unwrap();
            assert_eq!(breaches(&solution), least, "{}", of(solver));
            assert_eq!(solution.certificate.objective, value, "{}", of(solver));
            assert!(solution.certificate.bound >= value, "{}", of(solver));
            assert!(solution.certificate.optimal, "{}", of(solver));
        }
    }
    problems.len()
}

#[test]
fn every_small_problem_has_its_literal_value_in_scatter() {
    let problems = every_problem(CPUS, THREADS, Mode::Scatter);
    assert_eq!(compare(&problems), 326 * 14);
}

#[test]
fn every_small_problem_on_two_nodes_has_its_literal_value() {
    for mode in [Mode::Scatter, Mode::Compact] {
        let problems = every_problem_of_two_nodes(CPUS_OF_TWO_NODES, THREADS, mode);
        let machines = every_topology_of_two_nodes(CPUS_OF_TWO_NODES).len();
        assert_eq!(compare(&problems), machines * 14);
    }
}

#[test]
fn every_small_problem_has_its_literal_value_in_compact() {
    let problems = every_problem(CPUS, THREADS, Mode::Compact);
    assert_eq!(compare(&problems), 326 * 14);
}

#[test]
fn every_tree_occurs_once() {
    let sizes = every_topology(CPUS);
    let with = |cpus: usize| sizes.iter().filter(|t| t.cpus().len() == cpus).count();
    // multisets of multisets of partitions: the number of such trees with this number of leaves
    assert_eq!([1, 2, 3, 4, 5, 6].map(with), [1, 4, 10, 30, 75, 206]);
}

#[test]
fn two_workers_of_two_threads_on_the_machine_of_the_article_agree() {
    for (mode, value) in [(Mode::Scatter, 150), (Mode::Compact, -50)] {
        let problem = problem(ARTICLE.topology(), (2, 2, mode));
        for solution in [exact(&problem), literal(&problem)] {
            check_solution(&problem, &solution).unwrap();
            assert_eq!(solution.certificate.objective, value, "{mode:?}");
            assert!(solution.certificate.optimal, "{mode:?}");
        }
    }
}

#[test]
fn contradictory_rules_are_relaxed_as_by_the_exact_solver() {
    // the second is the example of the design document; it takes half a minute
    let all = [(6, 4), (8, 5)];
    for (cpus, workers) in all.into_iter().take(if is_soak() { 2 } else { 1 }) {
        let topology = Shape([1, 1, cpus, 1, 1]).topology();
        let problem = problem(topology, (workers, 2, Mode::Scatter));
        let literal = literal(&problem).certificate;
        assert_eq!(literal.relaxed, exact(&problem).certificate.relaxed);
        assert_eq!(literal.relaxed[0].rule, "12");
        assert_eq!(literal.relaxed[0].amount, 2);
    }
}

#[test]
fn a_program_that_is_too_large_is_rejected_with_advice() {
    let problem = problem(Shape([2, 8, 1, 8, 2]).topology(), (64, 64, Mode::Scatter));
    let error = solve_literal(&problem, 1.0).unwrap_err();
    assert!(matches!(error, LiteralError::TooLarge { .. }), "{error}");
    assert!(
        error.to_string().contains("use a smaller problem"),
        "{error}"
    );
}

#[test]
fn a_program_without_time_reports_that_it_found_nothing() {
    let problem = problem(ARTICLE.topology(), (2, 2, Mode::Compact));
    let error = solve_literal(&problem, 1e-9).unwrap_err();
    assert!(
        matches!(error, LiteralError::NothingFound { .. }),
        "{error}"
    );
}

#[test]
fn a_program_that_runs_out_of_time_has_a_valid_bound() {
    let problem = problem(Shape([1, 1, 4, 1, 2]).topology(), (3, 3, Mode::Compact));
    let best = exact(&problem).certificate;
    for seconds in [0.001, 0.01, 0.1, 0.5] {
        match solve_literal(&problem, seconds) {
            Ok(solution) => {
                check_solution(&problem, &solution).unwrap();
                let stated = solution.certificate;
                assert!(stated.objective <= best.objective, "{seconds}");
                assert!(stated.bound >= best.objective, "{seconds}");
            }
            Err(LiteralError::NothingFound { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn invalid_time_limits_are_rejected() {
    let problem = problem(ARTICLE.topology(), (1, 1, Mode::Compact));
    for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e6] {
        let error = solve_literal(&problem, seconds).unwrap_err();
        assert!(matches!(error, LiteralError::TimeLimit { .. }), "{error}");
    }
}
