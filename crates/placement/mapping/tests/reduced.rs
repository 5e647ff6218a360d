//! The reduced program as a method of its own.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod enumerated;
mod machines;

use albacore_mapping::{Method, MethodError, Mode, Problem, Solution, check_solution, solve_by};
use enumerated::{best_of_all, every_problem};
use machines::{ARTICLE, Shape, problem};

/// Far above what the slowest of these programs takes on a busy machine.
const SECONDS: f64 = 60.0;

fn reduced(problem: &Problem, seconds: f64) -> Solution {
    let solution = solve_by(Method::Reduced, problem, &mut || false, seconds).unwrap();
    check_solution(problem, &solution).unwrap();
    solution
}

#[test]
fn every_small_problem_is_solved_as_by_going_through_all_mappings() {
    for mode in [Mode::Scatter, Mode::Compact] {
        for problem in every_problem(5, 6, mode) {
            let stated = reduced(&problem, SECONDS).certificate;
            let (_, value) = best_of_all(&problem);
            assert_eq!(stated.objective, value, "{problem:?}");
            assert!(stated.optimal, "{problem:?}");
        }
    }
}

#[test]
fn without_time_the_construction_is_the_answer_and_its_gap_is_told() {
    let problem = problem(ARTICLE.topology(), (6, 6, Mode::Compact));
    let stated = reduced(&problem, 1e-9).certificate;
    assert!(stated.bound >= stated.objective);
    assert_eq!(stated.optimal, stated.bound == stated.objective);
}

#[test]
fn a_program_that_is_too_large_says_what_to_do() {
    let problem = problem(Shape([2, 8, 1, 8, 2]).topology(), (256, 64, Mode::Scatter));
    let error = solve_by(Method::Reduced, &problem, &mut || false, 1.0).unwrap_err();
    assert!(matches!(error, MethodError::TooLarge { .. }), "{error}");
    assert!(
        error.to_string().contains("use the exact solver"),
        "{error}"
    );
}
