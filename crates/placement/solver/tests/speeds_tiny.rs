//! Tiny machines with cores of two speeds against brute force over every mapping, verified by the
//! independent checker.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../src/enumerated/tests.rs"]
mod enumerated;
mod machines;

use albacore_solver::{Problem, WorkBudget, check_solution, relaxed_by, solve};
use enumerated::{RULES, best_of_all, every_topology_of_two_nodes, on_each};
use machines::{at_two_speeds, capacities, modes, problem, topologies};
use proptest::prelude::*;

fn is_solved_as_by_brute_force(problem: &Problem) {
    let solution = solve(problem, &mut WorkBudget::unlimited()).unwrap();
    let (least, best) = best_of_all(problem);
    let report = check_solution(problem, &solution).expect("valid");
    let breaches = RULES.map(|rule| relaxed_by(&report.relaxed, rule));
    assert_eq!(breaches, least, "least breaches, {problem:?}");
    assert_eq!(report.objective, best, "best value, {problem:?}");
    let certificate = &solution.certificate;
    assert!(certificate.optimal, "proven, {problem:?}");
    // without a search the bound is counted
    let hasty = solve(problem, &mut WorkBudget::of_steps(0)).unwrap();
    let report = check_solution(problem, &hasty).expect("valid");
    let breaches = RULES.map(|rule| relaxed_by(&report.relaxed, rule));
    assert!(
        breaches > least || hasty.certificate.bound >= best,
        "a bound, {problem:?}"
    );
}

#[test]
fn every_machine_of_two_nodes_and_two_speeds_is_solved_as_by_brute_force() {
    let mut solved = 0;
    for topology in every_topology_of_two_nodes(5) {
        let cores = topology.core_count();
        // not all fast, not all slow
        for slow in 1..(1u64 << cores) - 1 {
            let machine = at_two_speeds(&topology, slow, 512);
            for mode in [
                albacore_solver::Mode::Scatter,
                albacore_solver::Mode::Compact,
            ] {
                for problem in on_each(std::slice::from_ref(&machine), 4, mode) {
                    is_solved_as_by_brute_force(&problem);
                    solved += 1;
                }
            }
        }
    }
    assert!(solved > 1_000, "{solved} problems");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        max_global_rejects: 1_000_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn tiny_problems_at_two_speeds_are_solved_as_by_brute_force(
        topology in topologies(12), size in (1..=5u16, 1..=5u16), mode in modes(),
        slow in any::<u64>(), capacity in capacities()
    ) {
        let ways = (topology.cpus().len() as f64).powi((size.0 * size.1).into());
        prop_assume!(ways <= 20_000.0);
        let problem = problem(at_two_speeds(&topology, slow, capacity), (size.0, size.1, mode));
        prop_assume!(!problem.topology.is_uniform());
        is_solved_as_by_brute_force(&problem);
    }
}
