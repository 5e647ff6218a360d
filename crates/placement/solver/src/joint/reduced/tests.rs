//! The program alone against the enumeration of small joint problems.

use proptest::prelude::*;

use super::super::enumerate::enumerate;
use super::super::instance::Instance;
use super::super::rules::Rules;
use super::super::solve::{Snapshot, counted, first_placement};
use super::super::volumes::balance;
use super::symmetry::{in_canonical_order, interchangeable_classes, weights};
use super::{Start, keeps_caps, solve_within};
use crate::joint_problems::{Sizes, joint_problems};
use crate::{JointProblem, WorkBudget};

/// Far above the time of the slowest of these programs on a busy machine.
const SECONDS: f64 = 60.0;

/// Sizes that can be enumerated within the limit.
const SIZES: Sizes = Sizes {
    cpus: 12,
    deployments: 3,
    workers: 4,
    threads: 4,
    placements: 20_000.0,
};

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        max_global_rejects: 1_000_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn small_joint_problems_are_solved_as_by_going_through_all_placements(
        problem in joint_problems(SIZES)
    ) {
        is_solved_as_by_enumeration(problem)?;
    }
}

fn is_solved_as_by_enumeration(mut problem: JointProblem) -> Result<(), TestCaseError> {
    for deployment in &mut problem.deployments {
        deployment.current = None;
    }
    let instance = Instance::of(&problem);
    let (rules, volume) = (Rules::of(&instance), balance(&instance));
    let mut unlimited = WorkBudget::unlimited();
    let all = enumerate(&instance, &rules, &volume.loads, &mut unlimited).unwrap();
    let (least, most) = all.most_value.unwrap();
    let first = first_placement(&instance, &rules, &volume, &mut WorkBudget::of_steps(0));
    let first = Snapshot::of(&first).labeled(&instance);
    let (best, places) = all.best.unwrap();
    for (excess, places) in [(first.key.0, first.places), (best.0, places)] {
        let places = &places;
        is_in_order(&instance, &in_canonical_order(&instance, places))?;
        let start = Start { excess, places };
        let found = solve_within(&instance, &rules, &volume, start, SECONDS).unwrap();
        let mut loads = instance.obstacles.clone();
        for &cpu in &found.threads {
            loads[usize::from(cpu)] += 1;
        }
        let (broken, value) = counted(&instance, &rules, &loads, &found.threads);
        prop_assert!(found.proven && keeps_caps(&instance, &found.threads));
        prop_assert!(
            broken
                .iter()
                .zip(excess)
                .all(|(&broken, allowed)| broken <= allowed)
        );
        prop_assert!(value >= most);
        prop_assert!(excess != least || value == most);
    }
    Ok(())
}

/// Asserts that the placement is a feasible start of the program.
fn is_in_order(instance: &Instance, places: &[u16]) -> Result<(), TestCaseError> {
    let weights = weights(instance, places);
    for class in interchangeable_classes(instance) {
        let of_unit = |cpus: &Vec<u16>| cpus.iter().map(|&cpu| weights[usize::from(cpu)]).sum();
        let of_units: Vec<u32> = class.iter().map(of_unit).collect();
        prop_assert!(
            of_units.is_sorted_by(|a, b| a >= b),
            "{class:?} {of_units:?}"
        );
    }
    Ok(())
}
