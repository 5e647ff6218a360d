//! The program of the source article as an oracle: on every problem with at most 6 cpus and 6
//! threads it says what the exact construction says, and so does going through all mappings.
//!
//! The exact solver and the way through all mappings meet on all 9,128 of them. The program of the
//! article takes most of the time: it is asked for all up to [`LITERAL_CPUS`] cpus and for every
//! [`LITERAL_STRIDE`]th of the others, and for every one where `ALBACORE_SOAK` is set (`make
//! soak`).
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod enumerated;
mod machines;

use albacore_mapping::{Method, MethodError, Mode, Problem, Solution, check_solution, solve_by};
use enumerated::{RULES, best_of_all, every_problem, every_topology};
use machines::{ARTICLE, Shape, problem};

const CPUS: usize = 6;
const THREADS: u16 = 6;

/// Up to so many cpus, the literal program is asked for every problem.
const LITERAL_CPUS: usize = 4;

/// And for every so manieth of the larger ones: no divisor of the number of sizes, which is 14, so
/// every size is among them.
const LITERAL_STRIDE: usize = 9;

/// Far above what the slowest of these programs takes on a busy machine.
const SECONDS: f64 = 600.0;

fn by(method: Method, problem: &Problem) -> Solution {
    solve_by(method, problem, &mut || false, SECONDS).unwrap()
}

/// The exact answer. Its own integer program has a slice of wall-clock time, which a busy machine
/// may take away: then the same program is asked with time enough.
fn exact(problem: &Problem) -> Solution {
    let solution = by(Method::Exact, problem);
    if solution.certificate.optimal {
        return solution;
    }
    check_solution(problem, &solution).unwrap();
    by(Method::Reduced, problem)
}

fn breaches(solution: &Solution) -> [u32; 4] {
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

/// Whether the literal program is asked too: of a problem and its place in the list of all.
fn is_for_the_program(problem: &Problem, place: usize) -> bool {
    is_soak()
        || problem.topology.cpus().len() <= LITERAL_CPUS
        || place.is_multiple_of(LITERAL_STRIDE)
}

/// Compares the methods on every problem of a mode; how many there are.
fn compare(mode: Mode) -> usize {
    let problems = every_problem(CPUS, THREADS, mode);
    for (place, problem) in problems.iter().enumerate() {
        let of = |method: Method| {
            let cpus = problem.topology.cpus().iter();
            let tree: Vec<_> = cpus.map(|cpu| (cpu.core, cpu.l2, cpu.l3)).collect();
            let (workers, threads) = (problem.workers, problem.threads);
            format!("{method}: {workers} x {threads} {mode:?} on (core, L2, L3) {tree:?}")
        };
        let (least, value) = best_of_all(problem);
        let literal = is_for_the_program(problem, place)
            .then(|| (Method::Literal, by(Method::Literal, problem)));
        for (method, solution) in literal.into_iter().chain([(Method::Exact, exact(problem))]) {
            check_solution(problem, &solution).unwrap();
            assert_eq!(breaches(&solution), least, "{}", of(method));
            assert_eq!(solution.certificate.objective, value, "{}", of(method));
            assert!(solution.certificate.bound >= value, "{}", of(method));
            assert!(solution.certificate.optimal, "{}", of(method));
        }
    }
    problems.len()
}

#[test]
fn every_small_problem_has_its_literal_value_in_scatter() {
    assert_eq!(compare(Mode::Scatter), 326 * 14);
}

#[test]
fn every_small_problem_has_its_literal_value_in_compact() {
    assert_eq!(compare(Mode::Compact), 326 * 14);
}

#[test]
fn every_tree_is_there_once() {
    let sizes = every_topology(CPUS);
    let with = |cpus: usize| sizes.iter().filter(|t| t.cpus().len() == cpus).count();
    // multisets of multisets of partitions: the number of such trees with so many leaves
    assert_eq!([1, 2, 3, 4, 5, 6].map(with), [1, 4, 10, 30, 75, 206]);
}

#[test]
fn two_workers_of_two_threads_on_the_machine_of_the_article_agree() {
    for (mode, value) in [(Mode::Scatter, 150), (Mode::Compact, -50)] {
        let problem = problem(ARTICLE.topology(), (2, 2, mode));
        for method in [Method::Exact, Method::Reduced, Method::Literal] {
            let solution = by(method, &problem);
            check_solution(&problem, &solution).unwrap();
            assert_eq!(solution.certificate.objective, value, "{method} {mode:?}");
            assert!(solution.certificate.optimal, "{method} {mode:?}");
        }
    }
}

#[test]
fn contradictory_rules_are_loosened_as_by_the_exact_solver() {
    // the second is the example of the design; it takes half a minute
    let all = [(6, 4), (8, 5)];
    for (cpus, workers) in all.into_iter().take(if is_soak() { 2 } else { 1 }) {
        let topology = Shape([1, 1, cpus, 1, 1]).topology();
        let problem = problem(topology, (workers, 2, Mode::Scatter));
        let literal = by(Method::Literal, &problem).certificate;
        assert_eq!(literal.relaxed, exact(&problem).certificate.relaxed);
        assert_eq!(literal.relaxed[0].rule, "12");
        assert_eq!(literal.relaxed[0].amount, 2);
    }
}

#[test]
fn a_program_that_is_too_large_says_what_to_do() {
    let problem = problem(Shape([2, 8, 1, 8, 2]).topology(), (64, 64, Mode::Scatter));
    let error = solve_by(Method::Literal, &problem, &mut || false, 1.0).unwrap_err();
    assert!(matches!(error, MethodError::TooLarge { .. }), "{error}");
    assert!(
        error.to_string().contains("use the exact solver"),
        "{error}"
    );
}

#[test]
fn a_program_without_time_says_that_it_found_nothing() {
    let problem = problem(ARTICLE.topology(), (2, 2, Mode::Compact));
    let error = solve_by(Method::Literal, &problem, &mut || false, 1e-9).unwrap_err();
    assert!(matches!(error, MethodError::NothingFound { .. }), "{error}");
    let spent = solve_by(Method::Literal, &problem, &mut || true, SECONDS).unwrap_err();
    assert!(matches!(spent, MethodError::NothingFound { .. }), "{spent}");
}

#[test]
fn a_program_that_runs_out_of_time_never_claims_too_much() {
    let problem = problem(Shape([1, 1, 4, 1, 2]).topology(), (3, 3, Mode::Compact));
    let best = by(Method::Exact, &problem).certificate;
    assert!(best.optimal);
    for method in [Method::Reduced, Method::Literal] {
        for seconds in [0.001, 0.01, 0.1, 0.5] {
            match solve_by(method, &problem, &mut || false, seconds) {
                Ok(solution) => {
                    check_solution(&problem, &solution).unwrap();
                    let stated = solution.certificate;
                    assert!(stated.objective <= best.objective, "{method} {seconds}");
                    assert!(stated.bound >= best.objective, "{method} {seconds}");
                }
                Err(error) => {
                    assert!(matches!(error, MethodError::NothingFound { .. }), "{error}");
                    assert_eq!(method, Method::Literal, "the reduced program has a start");
                }
            }
        }
    }
}

#[test]
fn seconds_that_are_no_time_limit_are_refused() {
    let problem = problem(ARTICLE.topology(), (1, 1, Mode::Compact));
    for method in [Method::Reduced, Method::Literal] {
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e6] {
            let error = solve_by(method, &problem, &mut || false, seconds).unwrap_err();
            assert!(matches!(error, MethodError::TimeLimit { .. }), "{error}");
        }
    }
}

#[test]
fn a_mapping_in_force_that_is_as_good_stays() {
    let fresh = problem(Shape([1, 2, 2, 1, 2]).topology(), (2, 3, Mode::Compact));
    let mut current = by(Method::Exact, &fresh).mapping;
    current.cpus.rotate_left(3); // the workers change their names
    let again = Problem {
        current: Some(current.clone()),
        ..fresh
    };
    for method in [Method::Reduced, Method::Literal] {
        assert_eq!(by(method, &again).mapping, current, "{method}");
    }
}
