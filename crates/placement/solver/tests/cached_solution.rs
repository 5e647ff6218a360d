//! A cached solution answers the problem that it was computed for, and the same problem with the
//! solution in force; no other problem.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod joint_problems;
mod machines;

use albacore_solver::{
    CachedSolution, JointProblem, Obstacle, WorkBudget, check_joint, solve_joint,
};
use albacore_topology::CpuId;
use joint_problems::{Sizes, joint_problems_at_any_speed};
use proptest::prelude::*;

/// The problem with its solution in force.
fn in_force(problem: &JointProblem, cached: &CachedSolution) -> JointProblem {
    let mut next = problem.clone();
    let answer = cached.get(problem).unwrap();
    for (deployment, mapping) in next.deployments.iter_mut().zip(answer.mappings) {
        deployment.current = Some(mapping);
    }
    next
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn a_respawn_changes_nothing_and_the_cached_answer_passes_the_checker(
        problem in joint_problems_at_any_speed(Sizes::SMALL)
    ) {
        let solution = solve_joint(&problem, &mut WorkBudget::of_steps(0)).unwrap();
        let cached = CachedSolution::new(problem.clone(), solution.clone());
        prop_assert_eq!(cached.get(&problem), Some(solution.clone()));
        let respawned = in_force(&problem, &cached);
        prop_assert!(cached.is_in_force(&respawned));
        let answer = cached.get(&respawned).unwrap();
        check_joint(&respawned, &answer).unwrap();
        prop_assert_eq!(&answer.mappings, &solution.mappings);
        prop_assert_eq!(answer.certificate, solution.certificate);
        prop_assert_eq!((answer.gained, answer.moved), (0, 0));
    }

    #[test]
    fn any_other_change_misses_the_cache(
        problem in joint_problems_at_any_speed(Sizes::SMALL), change in 0..8usize
    ) {
        let solution = solve_joint(&problem, &mut WorkBudget::of_steps(0)).unwrap();
        let cached = CachedSolution::new(problem.clone(), solution);
        let mut other = in_force(&problem, &cached);
        let at = CpuId(problem.topology.cpus()[0].id.0);
        match change {
            0 => other.move_cost += 1,
            1 => other.obstacles.push(Obstacle { cpu: at, weight: 1 }),
            2 => other.distances.machine += 1,
            3 => other.deployments[0].workers += 1,
            4 => other.deployments[0].threads += 1,
            5 => { other.deployments.pop(); }
            6 => other.deployments.push(other.deployments[0].clone()),
            _ => {
                let current = other.deployments[0].current.as_mut().unwrap();
                let cpu = current.cpus[0];
                current.cpus[0] = CpuId(cpu.0 + 1);
                prop_assume!(problem.deployments[0].current.as_ref() != Some(current));
            }
        }
        prop_assert_eq!(cached.get(&other), None);
        prop_assert!(!cached.is_in_force(&other));
    }
}
