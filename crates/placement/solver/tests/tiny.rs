//! Tiny problems against brute force over every mapping, verified by the independent checker.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod machines;

use albacore_solver::{CheckReport, Mapping, Problem, WorkBudget, check, check_solution, solve};
use albacore_topology::CpuId;
use machines::{modes, problem, topologies};
use proptest::prelude::*;

/// Breaches of a mapping, in the order in which the solver avoids them.
fn breaches(report: &CheckReport) -> Vec<u32> {
    let amount = |rule| {
        report
            .relaxed
            .iter()
            .find(|r| r.rule == rule)
            .map_or(0, |r| r.amount)
    };
    ["2", "3", "8", "8+", "mains-per-core", "12", "12+"]
        .map(amount)
        .to_vec()
}

/// The least breaches of any mapping and the best objective with them.
fn brute_force(problem: &Problem) -> (Vec<u32>, i64) {
    let ids: Vec<CpuId> = problem.topology.cpus().iter().map(|cpu| cpu.id).collect();
    let slots = usize::from(problem.workers) * usize::from(problem.threads);
    let mut digits = vec![0usize; slots];
    let mut best: Option<(Vec<u32>, std::cmp::Reverse<i64>)> = None;
    loop {
        let cpus = digits.iter().map(|&d| ids[d]).collect();
        let report = check(
            problem,
            &Mapping {
                threads: problem.threads,
                cpus,
            },
        )
        .unwrap();
        let key = (breaches(&report), std::cmp::Reverse(report.objective));
        if best.as_ref().is_none_or(|best| key < *best) {
            best = Some(key);
        }
        let Some(digit) = (0..slots).find(|&i| digits[i] + 1 < ids.len()) else {
            break;
        };
        digits[..digit].fill(0);
        digits[digit] += 1;
    }
    let (breaches, objective) = best.unwrap();
    (breaches, objective.0)
}

fn tiny_problems() -> impl Strategy<Value = Problem> {
    (topologies(16), (1..=6u16, 1..=6u16), modes())
        .prop_map(|(topology, (w, t), m)| problem(topology, (w, t, m)))
        .prop_filter("few mappings", |p| {
            let (cpus, slots) = (p.topology.cpus().len() as f64, p.workers * p.threads);
            cpus.powi(slots.into()) <= 20_000.0
        })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 600,
        max_global_rejects: 1_000_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn tiny_problems_are_solved_as_by_brute_force(problem in tiny_problems()) {
        let solution = solve(&problem, &mut WorkBudget::unlimited()).unwrap();
        let (least, best) = brute_force(&problem);
        let report = check_solution(&problem, &solution).unwrap();
        prop_assert_eq!(breaches(&report), least, "least breaches");
        prop_assert!(solution.certificate.bound >= best, "the bound is a bound");
        prop_assert_eq!(report.objective, best, "best value");
        prop_assert!(solution.certificate.optimal, "proven");
    }
}
