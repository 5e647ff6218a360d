//! Tiny joint problems against brute force over every placement.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod joint_problems;
mod machines;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use albacore_solver::{
    Deployment, JointProblem, JointReport, JointViolation, Mapping, Mode, Proof, WorkBudget,
    check_joint, joint_counting_bound, report_joint, solve_joint,
};
use albacore_topology::{CAPACITY_MAX, Cpu, CpuId, Distances, Topology};
use joint_problems::{
    Sizes, is_alone, joint_problems, joint_problems_at_two_speeds, loads_from_the_largest,
    same_cpuset,
};
use machines::Shape;
use proptest::prelude::*;

/// Visits every placement of all threads on cpus of their cpusets.
fn every_placement(problem: &JointProblem, look: &mut dyn FnMut(&[Mapping])) {
    let choices: Vec<Vec<CpuId>> = problem
        .deployments
        .iter()
        .map(|d| d.cpuset.iter().collect())
        .collect();
    let mut mappings: Vec<Mapping> = Vec::new();
    for (deployment, cpus) in problem.deployments.iter().zip(&choices) {
        let slots = usize::from(deployment.workers * deployment.threads);
        mappings.push(Mapping {
            threads: deployment.threads,
            cpus: vec![cpus[0]; slots],
        });
    }
    let slots: Vec<(usize, usize)> = (0..mappings.len())
        .flat_map(|d| (0..mappings[d].cpus.len()).map(move |slot| (d, slot)))
        .collect();
    let mut digits = vec![0usize; slots.len()];
    loop {
        look(&mappings);
        let Some(up) = (0..slots.len()).find(|&i| digits[i] + 1 < choices[slots[i].0].len()) else {
            return;
        };
        for i in 0..=up {
            digits[i] = if i == up { digits[i] + 1 } else { 0 };
            let (deployment, slot) = slots[i];
            mappings[deployment].cpus[slot] = choices[deployment][digits[i]];
        }
    }
}

/// Amounts of mains-per-core, fast-mains, (12), (12+).
fn breaches(report: &JointReport) -> [u32; 4] {
    ["mains-per-core", "fast-mains", "12", "12+"].map(|rule| {
        report
            .relaxed
            .iter()
            .find(|r| r.rule == rule)
            .map_or(0, |r| r.amount)
    })
}

/// Whether a placement is rejected for another reason than its loads.
fn breaks_2_or_3(violations: &[JointViolation]) -> bool {
    violations
        .iter()
        .any(|v| !matches!(v, JointViolation::Unbalanced { .. }))
}

struct Best {
    /// Fewest moves of all placements, by the amounts by which they break the rules on mains.
    fewest: BTreeMap<[u32; 4], u32>,
    key: ([u32; 4], Reverse<i64>, u32),
    most: ([u32; 4], Reverse<i64>),
}

/// The best placement; also asserts that the checker accepts exactly the balanced loads.
fn brute_force(problem: &JointProblem) -> Best {
    let mut balanced = None;
    every_placement(problem, &mut |mappings| {
        if !report_joint(problem, mappings).is_err_and(|v| breaks_2_or_3(&v)) {
            let loads = loads_from_the_largest(problem, mappings);
            if balanced.as_ref().is_none_or(|least| loads < *least) {
                balanced = Some(loads);
            }
        }
    });
    let mut best: Option<Best> = None;
    every_placement(
        problem,
        &mut |mappings| match report_joint(problem, mappings) {
            Ok(report) => {
                let loads = loads_from_the_largest(problem, mappings);
                assert_eq!(Some(&loads), balanced.as_ref(), "accepted, so balanced");
                let net_value =
                    report.objective - i64::from(problem.move_cost) * i64::from(report.moved);
                let key = (breaches(&report), Reverse(net_value), report.moved);
                let most = (breaches(&report), Reverse(report.objective));
                let best = best.get_or_insert_with(|| Best {
                    key,
                    most,
                    fewest: BTreeMap::new(),
                });
                best.key = best.key.min(key);
                best.most = best.most.min(most);
                let fewest = best.fewest.entry(breaches(&report));
                let fewest = fewest.or_insert(report.moved);
                *fewest = report.moved.min(*fewest);
            }
            Err(violations) if !breaks_2_or_3(&violations) => {
                let loads = loads_from_the_largest(problem, mappings);
                assert_ne!(Some(&loads), balanced.as_ref(), "refused, so not balanced");
            }
            Err(_) => {}
        },
    );
    best.expect("rules 2, 3, 8 and 8+ can always be kept")
}

/// The mapping in force meets the bound of placements that break (12); moving 2 threads keeps (12).
#[test]
fn a_rule_is_kept_where_moving_threads_keeps_it() {
    let cpu = |id: u16, core: u32, l3: u32| Cpu {
        id: CpuId(id),
        core,
        l2: core,
        l3,
        numa: 0,
        package: 0,
        capacity: CAPACITY_MAX,
    };
    let deployment = |threads: u16, current: Option<Mapping>| Deployment {
        workers: 1,
        threads,
        mode: Mode::Scatter,
        cpuset: [1, 2, 5].map(CpuId).into_iter().collect(),
        current,
    };
    let current = Mapping {
        threads: 2,
        cpus: vec![CpuId(1), CpuId(2)],
    };
    let problem = JointProblem {
        topology: Topology::new(vec![cpu(1, 1, 0), cpu(2, 2, 1), cpu(5, 1, 0)]).unwrap(),
        distances: Distances::default(),
        deployments: vec![deployment(2, Some(current)), deployment(3, None)],
        obstacles: Vec::new(),
        move_cost: 0,
    };
    let solution = solve_joint(&problem, &mut WorkBudget::unlimited()).unwrap();
    let report = check_joint(&problem, &solution).unwrap();
    assert_eq!(breaches(&report), [0; 4]);
    assert_eq!((report.moved, report.objective), (2, 404));
}

/// 8^6 placements: too many to enumerate, and the counted bound is 246. The integer program finds
/// more than the search, 100 instead of 50, and proves it optimal.
#[test]
fn the_integer_program_proves_optimality_where_search_and_counts_do_not() {
    let topology = Shape([1, 2, 2, 1, 2]).topology();
    let problem = same_cpuset(&topology, &[(1, 3, Mode::Scatter), (1, 3, Mode::Compact)]);
    let solution = solve_joint(&problem, &mut WorkBudget::unlimited()).unwrap();
    let (stated, report) = (&solution.certificate, check_joint(&problem, &solution));
    assert_eq!(report.unwrap().objective, 100);
    assert!(stated.optimal && stated.proof == Proof::Search);
    let best = brute_force(&problem);
    assert_eq!(best.most, ([0; 4], Reverse(100)));
    // the program is not started without a budget
    let hasty = solve_joint(&problem, &mut WorkBudget::of_steps(0)).unwrap();
    assert_ne!(hasty.certificate.proof, Proof::Search);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        max_global_rejects: 1_000_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn tiny_joint_problems_are_solved_as_by_brute_force(
        problem in joint_problems(Sizes::TINY)
    ) {
        prop_assume!(!is_alone(&problem));
        is_solved_as_by_brute_force(&problem)?;
    }

    #[test]
    fn tiny_joint_problems_at_two_speeds_are_solved_as_by_brute_force(
        problem in joint_problems_at_two_speeds(Sizes::TINY)
    ) {
        prop_assume!(!is_alone(&problem));
        is_solved_as_by_brute_force(&problem)?;
    }
}

fn is_solved_as_by_brute_force(problem: &JointProblem) -> Result<(), TestCaseError> {
    let solution = solve_joint(problem, &mut WorkBudget::unlimited()).unwrap();
    let report = check_joint(problem, &solution).unwrap();
    let best = brute_force(problem);
    let net_value = report.objective - i64::from(problem.move_cost) * i64::from(report.moved);
    prop_assert_eq!(
        (breaches(&report), Reverse(net_value), report.moved),
        best.key
    );
    prop_assert!(
        solution.certificate.bound >= best.most.1.0,
        "the bound is a bound"
    );
    if problem.move_cost == 0 {
        prop_assert!(solution.certificate.optimal, "proven");
    }
    let counted = joint_counting_bound(problem, &solution).unwrap();
    prop_assert!(
        counted >= best.most.1.0,
        "no mapping exceeds what the checker counts"
    );
    // without enumeration the bound is counted
    let hasty = solve_joint(problem, &mut WorkBudget::of_steps(0)).unwrap();
    let report = check_joint(problem, &hasty).unwrap();
    let bound = hasty.certificate.bound;
    let mut as_good = best.fewest.range(..=breaches(&report));
    let is_least = as_good.all(|(_, &fewest)| hasty.moved_least <= fewest);
    // the smallest are enumerated regardless of the budget: then fewer moves would gain less
    let net_value = report.objective - i64::from(problem.move_cost) * i64::from(report.moved);
    let is_best = (breaches(&report), Reverse(net_value), report.moved) == best.key;
    prop_assert!(is_least || is_best, "what must move is counted");
    prop_assert!(
        breaches(&report) > best.most.0 || bound >= best.most.1.0,
        "a bound"
    );
    let counted = joint_counting_bound(problem, &hasty).unwrap();
    prop_assert!(
        counted >= best.most.1.0 || breaches(&report) > best.most.0,
        "a count"
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        max_global_rejects: 1_000_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_newcomer_moves_the_fewest_threads_that_optimality_allows(
        problem in joint_problems(Sizes::TINY)
    ) {
        let mut settled = problem.clone();
        settled.deployments.truncate(problem.deployments.len() - 1);
        prop_assume!(!settled.deployments.is_empty());
        let before = solve_joint(&settled, &mut WorkBudget::unlimited()).unwrap();
        let mut joined = problem.clone();
        for (deployment, mapping) in joined.deployments.iter_mut().zip(before.mappings) {
            deployment.current = Some(mapping);
        }
        if let Some(newcomer) = joined.deployments.last_mut() {
            newcomer.current = None;
        }
        let after = solve_joint(&joined, &mut WorkBudget::unlimited()).unwrap();
        check_joint(&joined, &after).unwrap();
        let best = brute_force(&joined);
        prop_assert_eq!(after.moved, best.key.2);
        prop_assert_eq!(after.moved_least, after.moved, "and it is known");
    }
}
