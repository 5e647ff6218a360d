//! Laws that hold for every problem, on thousands of random ones, judged by the independent checker.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod machines;

use albacore_mapping::{Mode, Problem, check_solution, round_robin, solve};
use machines::{has_equal_cores, modes, problem, topologies};
use proptest::prelude::*;

fn problems() -> impl Strategy<Value = Problem> {
    let sizes = prop_oneof![
        (1..=6u16, 1..=6u16),
        (1..=20u16, 1..=20u16),
        (1..=64u16, 1..=3u16)
    ];
    (topologies(64), sizes, modes()).prop_map(|(topology, (w, t), m)| problem(topology, (w, t, m)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_is_valid_and_admits_what_it_breaks(problem in problems(), budget in 0..2_000u32) {
        let mut asked = 0;
        let solution = solve(&problem, &mut || { asked += 1; asked > budget }).unwrap();
        let report = check_solution(&problem, &solution).unwrap();
        prop_assert_eq!(&report.relaxed, &solution.certificate.relaxed);
        for relaxed in &report.relaxed {
            prop_assert!(!["2", "3", "8"].contains(&relaxed.rule), "{relaxed:?}");
            if has_equal_cores(&problem.topology) {
                prop_assert!(["12", "12+"].contains(&relaxed.rule), "{relaxed:?}");
            }
        }
    }

    #[test]
    fn round_robin_tells_what_it_breaks(problem in problems()) {
        let solution = round_robin(&problem).unwrap();
        let report = check_solution(&problem, &solution).unwrap();
        prop_assert_eq!(&report.relaxed, &solution.certificate.relaxed);
        prop_assert!(report.relaxed.iter().all(|r| !["3", "8"].contains(&r.rule)));
    }

    #[test]
    fn the_same_problem_has_the_same_answer(problem in problems()) {
        let first = solve(&problem, &mut || false).unwrap();
        prop_assert_eq!(&first, &solve(&problem, &mut || false).unwrap());
    }

    #[test]
    fn round_robin_never_beats_the_bound_within_the_rules(problem in problems()) {
        let (baseline, best) = (round_robin(&problem).unwrap(), solve(&problem, &mut || false).unwrap());
        if baseline.certificate.relaxed.is_empty() {
            prop_assert!(best.certificate.bound >= baseline.certificate.objective);
        }
    }
}

#[test]
fn the_modes_differ() {
    let at = |mode| problem(machines::ARTICLE.topology(), (4, 8, mode));
    let solved = |mode| solve(&at(mode), &mut || false).unwrap().mapping;
    assert_ne!(solved(Mode::Scatter), solved(Mode::Compact));
}
