//! Laws that hold for every problem, on thousands of random ones, verified by the independent
//! checker.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod machines;

use albacore_solver::{
    Mode, Problem, Relaxation, Solution, WorkBudget, check, check_solution, counting_bound,
    round_robin, solve,
};
use albacore_topology::parse_synthetic;
use machines::{has_equal_cores, modes, problem, topologies};
use proptest::prelude::*;

/// Every rule that a certificate may relax.
const RULES: [&str; 7] = ["2", "3", "8", "8+", "mains-per-core", "12", "12+"];

fn problems() -> impl Strategy<Value = Problem> {
    let sizes = prop_oneof![
        (1..=6u16, 1..=6u16),
        (1..=20u16, 1..=20u16),
        (1..=64u16, 1..=3u16)
    ];
    (topologies(64), sizes, modes()).prop_map(|(topology, (w, t), m)| problem(topology, (w, t, m)))
}

/// A budget of `pieces` small pieces of work, some microseconds each.
fn budget(pieces: u32) -> WorkBudget {
    WorkBudget::of_steps(u64::from(pieces) * 2_000)
}

/// Problems of which thousands are solved per second.
fn small_problems(mode: Mode) -> impl Strategy<Value = Problem> {
    let sizes = prop_oneof![
        8 => (1..=4u16, 1..=4u16),
        1 => (1..=8u16, 1..=8u16),
        1 => (1..=24u16, 1..=2u16)
    ];
    (topologies(16), sizes).prop_map(move |(topology, (w, t))| problem(topology, (w, t, mode)))
}

/// Asserts that the certificate holds; `check_solution` recounts a counted bound.
fn is_honest(problem: &Problem, solution: &Solution) -> Result<(), TestCaseError> {
    let report = check_solution(problem, solution).map_err(|violations| {
        TestCaseError::fail(format!("{violations:?} of {:?}", solution.certificate))
    })?;
    prop_assert_eq!(&report.relaxed, &solution.certificate.relaxed);
    let counted = counting_bound(problem, &report.relaxed);
    prop_assert!(counted >= report.objective, "{counted} below a mapping");
    for relaxed in &report.relaxed {
        prop_assert!(!["2", "3", "8"].contains(&relaxed.rule), "{relaxed:?}");
        if has_equal_cores(&problem.topology) {
            prop_assert!(["12", "12+"].contains(&relaxed.rule), "{relaxed:?}");
        }
    }
    Ok(())
}

#[test]
fn threads_that_are_all_mains_keep_the_floor_of_cores_without_any_budget() {
    let machine = parse_synthetic("pack:1 l3:2 core:4 pu:2").unwrap();
    let machine = machine.restrict(&"0-13".parse().unwrap()).unwrap();
    let problem = problem(machine, (22, 1, Mode::Scatter));
    let solution = solve(&problem, &mut WorkBudget::of_steps(0)).unwrap();
    assert_eq!(solution.certificate.relaxed, []);
    is_honest(&problem, &solution).unwrap();
}

// 100,000 random problems, half of them per mode, so that two cpus share the work
proptest! {
    #![proptest_config(ProptestConfig {
        cases: 50_000, failure_persistence: None, max_local_rejects: 100_000_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn fifty_thousand_answers_in_scatter_are_valid(
        problem in small_problems(Mode::Scatter), questions in 0..60u32
    ) {
        is_honest(&problem, &solve(&problem, &mut budget(questions)).unwrap())?;
    }

    #[test]
    fn fifty_thousand_answers_in_compact_are_valid(
        problem in small_problems(Mode::Compact), questions in 0..60u32
    ) {
        is_honest(&problem, &solve(&problem, &mut budget(questions)).unwrap())?;
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
        is_honest(&problem, &solve(&problem, &mut budget(questions)).unwrap())?;
    }

    #[test]
    fn round_robin_lists_what_it_breaks(problem in problems()) {
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

    /// From any start, however its workers are numbered and wherever its budget ended: no thread
    /// moves without a gain.
    #[test]
    fn no_thread_moves_without_gain(
        problem in problems(), questions in 0..60u32, turn in any::<u16>(),
        swaps in prop::collection::vec(any::<(u16, u16)>(), 0..4)
    ) {
        let mut current = solve(&problem, &mut budget(questions)).unwrap().mapping;
        let threads = usize::from(problem.threads);
        current.cpus.rotate_left(usize::from(turn % problem.workers) * threads);
        for (a, b) in swaps {
            let slots = current.cpus.len();
            current.cpus.swap(usize::from(a) % slots, usize::from(b) % slots);
        }
        let before = check(&problem, &current).unwrap();
        let again = Problem { current: Some(current.clone()), ..problem };
        let after = solve(&again, &mut budget(300)).unwrap();
        let amount = |relaxed: &[Relaxation], rule| {
            relaxed.iter().find(|r| r.rule == rule).map_or(0, |r| r.amount)
        };
        let now = &after.certificate.relaxed;
        let breaks_less = before.relaxed.iter().any(|r| amount(now, r.rule) < r.amount);
        let gains = after.certificate.objective > before.objective;
        prop_assert!(after.mapping == current || gains || breaks_less, "{before:?} {after:?}");
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

// Bounds are monotone: the optimum over more mappings is no less, so a bound has to grow with the
// admitted relaxations; and a sum of distances grows with a distance, which in scatter all pairs
// add. There is no such law for more cpus or more workers: they change the right-hand sides of (8)
// to (12+), so mappings are lost as well; and in compact a longer distance favors mains and harms
// workers.
proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3_000, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn a_bound_never_falls_when_a_rule_is_loosened(
        problem in problems(), more in prop::collection::vec((0..RULES.len(), 1..4u32), 1..4)
    ) {
        let mut relaxed = solve(&problem, &mut budget(0)).unwrap().certificate.relaxed;
        let mut bound = counting_bound(&problem, &relaxed);
        for (rule, more) in more {
            match relaxed.iter_mut().find(|r| r.rule == RULES[rule]) {
                Some(relaxed) => relaxed.amount += more,
                None => relaxed.push(Relaxation { rule: RULES[rule], amount: more }),
            }
            let loosened = counting_bound(&problem, &relaxed);
            prop_assert!(loosened >= bound, "{loosened} below {bound} with {relaxed:?}");
            bound = loosened;
        }
    }

    #[test]
    fn a_bound_of_scattered_threads_never_falls_when_the_largest_distance_grows(
        problem in problems(), more in 1..1_000u32
    ) {
        let problem = Problem { mode: Mode::Scatter, ..problem };
        let relaxed = solve(&problem, &mut budget(0)).unwrap().certificate.relaxed;
        let mut farther = problem.clone();
        farther.distances.machine += more;
        let (bound, grown) =
            (counting_bound(&problem, &relaxed), counting_bound(&farther, &relaxed));
        prop_assert!(grown >= bound, "{grown} below {bound}");
    }
}

#[test]
fn a_large_problem_ends_soon_after_its_budget() {
    let large = problem(
        machines::Shape([2, 8, 8, 1, 2]).topology(),
        (63, 61, Mode::Compact),
    );
    for pieces in [1, 100, 10_000] {
        let mut budget = budget(pieces);
        let solution = solve(&large, &mut budget);
        check_solution(&large, &solution.unwrap()).unwrap();
        assert!(budget.is_exhausted());
        // about 20 ms on a usual machine
        assert!(budget.overrun() < 20_000_000, "{}", budget.overrun());
    }
}

#[test]
fn the_modes_differ() {
    let at = |mode| problem(machines::ARTICLE.topology(), (4, 8, mode));
    let solved = |mode| solve(&at(mode), &mut budget(300)).unwrap().mapping;
    assert_ne!(solved(Mode::Scatter), solved(Mode::Compact));
}
