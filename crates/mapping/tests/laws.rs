//! Laws that hold for every problem, on thousands of random ones, judged by the independent
//! checker.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod machines;

use albacore_mapping::{Mode, Problem, check_solution, counted_bound, round_robin, solve};
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

/// A budget that is spent after so many questions. 300 is spent before the integer program could
/// start, whose slice of wall-clock time would make an answer depend on how busy the machine is.
fn budget(questions: u32) -> impl FnMut() -> bool {
    let mut asked = 0;
    move || {
        asked += 1;
        asked > questions
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3_000, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn every_answer_is_valid_and_admits_what_it_breaks(
        problem in problems(), questions in 0..2_000u32
    ) {
        let solution = solve(&problem, &mut budget(questions)).unwrap();
        let report = check_solution(&problem, &solution).unwrap();
        prop_assert_eq!(&report.relaxed, &solution.certificate.relaxed);
        let counted = counted_bound(&problem, &report.relaxed);
        prop_assert!(counted >= report.objective, "{counted} below a mapping");
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
        let first = solve(&problem, &mut budget(300)).unwrap();
        prop_assert_eq!(&first, &solve(&problem, &mut budget(300)).unwrap());
    }

    #[test]
    fn round_robin_never_beats_the_bound_within_the_rules(problem in problems()) {
        let baseline = round_robin(&problem).unwrap();
        let best = solve(&problem, &mut budget(300)).unwrap();
        if baseline.certificate.relaxed.is_empty() {
            prop_assert!(best.certificate.bound >= baseline.certificate.objective);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1_000, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn a_mapping_in_force_stays_when_nothing_changed(problem in problems()) {
        let first = solve(&problem, &mut budget(300)).unwrap();
        let again = Problem { current: Some(first.mapping.clone()), ..problem };
        let second = solve(&again, &mut budget(300)).unwrap();
        prop_assert_eq!(first.mapping, second.mapping);
    }

    #[test]
    fn a_mapping_in_force_never_makes_the_answer_worse(problem in problems(), moved in 0..9usize) {
        let first = solve(&problem, &mut budget(300)).unwrap();
        let mut current = first.mapping.clone();
        let lowest = problem.topology.cpus()[0].id;
        current.cpus.iter_mut().step_by(7).take(moved).for_each(|cpu| *cpu = lowest);
        let again = Problem { current: Some(current), ..problem };
        let second = solve(&again, &mut budget(300)).unwrap();
        check_solution(&again, &second).unwrap();
        prop_assert!(second.certificate.objective >= first.certificate.objective);
    }

    #[test]
    fn a_lost_cpu_leaves_as_good_an_answer_as_a_fresh_start(problem in problems()) {
        let first = solve(&problem, &mut budget(300)).unwrap();
        let mut cpuset = problem.topology.cpuset();
        cpuset.remove(problem.topology.cpus()[0].id);
        prop_assume!(!cpuset.is_empty());
        let topology = problem.topology.restrict(&cpuset).unwrap();
        let fresh = Problem { topology, ..problem };
        let again = Problem { current: Some(first.mapping), ..fresh.clone() };
        let second = solve(&again, &mut budget(300)).unwrap();
        check_solution(&again, &second).unwrap();
        let fresh = solve(&fresh, &mut budget(300)).unwrap().certificate;
        prop_assert!(second.certificate.objective >= fresh.objective);
    }

    #[test]
    fn names_of_cpus_and_domains_do_not_matter(problem in problems(), seed in any::<u64>()) {
        let topology = machines::renamed(&problem.topology, seed);
        let renamed = Problem { topology, ..problem.clone() };
        let a = solve(&problem, &mut budget(300)).unwrap();
        let b = solve(&renamed, &mut budget(300)).unwrap();
        check_solution(&renamed, &b).unwrap();
        prop_assert_eq!(a.certificate, b.certificate);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn an_answer_is_valid_wherever_the_budget_ends(problem in problems(), questions in 0..40u32) {
        let solution = solve(&problem, &mut budget(questions)).unwrap();
        let report = check_solution(&problem, &solution).unwrap();
        prop_assert_eq!(&report.relaxed, &solution.certificate.relaxed);
        prop_assert!(solution.certificate.bound >= solution.certificate.objective);
    }
}

#[test]
fn a_large_problem_asks_the_budget_often() {
    let large = problem(
        machines::Shape([2, 8, 8, 1, 2]).topology(),
        (63, 61, Mode::Compact),
    );
    let mut longest = std::time::Duration::ZERO;
    let mut last = std::time::Instant::now();
    let mut asked = 0;
    let solution = solve(&large, &mut || {
        longest = longest.max(last.elapsed());
        last = std::time::Instant::now();
        asked += 1;
        asked > 3_000
    });
    check_solution(&large, &solution.unwrap()).unwrap();
    assert!(asked > 500, "asked {asked} times");
    // a deadline for liveness only: a few milliseconds on a quiet machine
    assert!(longest.as_secs() < 2, "{longest:?} without a question");
}

#[test]
fn the_modes_differ() {
    let at = |mode| problem(machines::ARTICLE.topology(), (4, 8, mode));
    let solved = |mode| solve(&at(mode), &mut budget(300)).unwrap().mapping;
    assert_ne!(solved(Mode::Scatter), solved(Mode::Compact));
}
