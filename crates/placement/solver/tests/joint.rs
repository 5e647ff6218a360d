//! Laws of joint problems, on random ones and on machines of real size, verified by the independent
//! checker.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod joint_problems;
mod machines;

use albacore_solver::{
    Certificate, Deployment, JointError, JointProblem, JointSolution, JointViolation, Mapping,
    MappingViolation, Mode, Obstacle, Problem, Proof, WorkBudget, check_joint,
    joint_counting_bound, solve, solve_joint,
};
use albacore_topology::{CpuId, CpuSet, Distances, Topology};
use joint_problems::{
    Random, Sizes, is_alone, joint_problems, joint_problems_at_any_speed, same_cpuset,
};
use machines::Shape;
use proptest::prelude::*;

/// A budget of `pieces` small pieces of work, some microseconds each.
fn budget(pieces: u32) -> WorkBudget {
    WorkBudget::of_steps(u64::from(pieces) * 2_000)
}

fn solved(problem: &JointProblem) -> JointSolution {
    let solution = solve_joint(problem, &mut budget(2_000)).unwrap();
    check_joint(problem, &solution).unwrap();
    solution
}

/// The problem with the solution's mappings in force.
fn settled(problem: &JointProblem, solution: &JointSolution) -> JointProblem {
    let mut settled = problem.clone();
    for (deployment, mapping) in settled.deployments.iter_mut().zip(&solution.mappings) {
        deployment.current = Some(mapping.clone());
    }
    settled
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 600, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn every_answer_is_valid_whatever_the_budget(
        problem in joint_problems_at_any_speed(Sizes::SMALL), questions in 0..3_000u32
    ) {
        let solution = solve_joint(&problem, &mut budget(questions)).unwrap();
        let report = check_joint(&problem, &solution).unwrap();
        prop_assert_eq!(report.relaxed, solution.certificate.relaxed);
    }

    #[test]
    fn the_checker_recounts_the_bound_of_the_solver(
        problem in joint_problems_at_any_speed(Sizes::SMALL), questions in 0..300u32
    ) {
        prop_assume!(!is_alone(&problem));
        let solution = solve_joint(&problem, &mut budget(questions)).unwrap();
        let stated = &solution.certificate;
        let counted = joint_counting_bound(&problem, &solution).unwrap();
        // tiny problems are enumerated and small ones solved as an integer program, which prove
        // more than counts
        let ways = |d: &Deployment| (d.cpuset.len() as f64).powi((d.workers * d.threads).into());
        let is_tiny = problem.deployments.iter().map(ways).product::<f64>() <= 100_000.0;
        // of at most 60 variables, some of which are the positions of mains
        let cells = |d: &Deployment| match d.threads {
            1 => d.cpuset.len(),
            _ => usize::from(d.workers) * d.cpuset.len(),
        };
        let is_small = problem.deployments.iter().map(cells).sum::<usize>() <= 60;
        let is_searched = is_tiny && stated.proof != Proof::Bound
            || is_small && stated.proof == Proof::Search;
        prop_assert!(is_searched || counted <= stated.bound, "{counted} {stated:?}");
    }

    #[test]
    fn the_same_problem_has_the_same_answer(problem in joint_problems_at_any_speed(Sizes::SMALL)) {
        prop_assume!(!is_alone(&problem));
        prop_assert_eq!(solved(&problem), solved(&problem));
    }

    #[test]
    fn the_order_of_deployments_does_not_matter(
        problem in joint_problems_at_any_speed(Sizes::SMALL), seed in any::<u64>()
    ) {
        prop_assume!(!is_alone(&problem));
        let mut turned = problem.clone();
        let mut random = Random(seed | 1);
        for i in (1..turned.deployments.len()).rev() {
            turned.deployments.swap(i, random.below(i + 1));
        }
        let (a, b) = (solved(&problem), solved(&turned));
        prop_assert_eq!(a.certificate, b.certificate);
        prop_assert_eq!((a.gained, a.moved), (b.gained, b.moved));
    }

    #[test]
    fn no_thread_moves_without_gain(problem in joint_problems_at_any_speed(Sizes::SMALL)) {
        let first = solved(&problem);
        let again = settled(&problem, &first);
        let second = solved(&again);
        let cost = i64::from(problem.move_cost) * i64::from(second.moved);
        // repairing a broken rule is a valid reason as well
        let mended = first.certificate.relaxed != second.certificate.relaxed;
        prop_assert!(second.moved == 0 || second.gained > cost || mended, "{second:?}");
        if second.moved == 0 {
            prop_assert_eq!(second.gained, 0);
            prop_assert_eq!(first.mappings, second.mappings);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn one_deployment_alone_is_answered_as_by_solve(
        problem in joint_problems(Sizes { deployments: 1, ..Sizes::SMALL })
    ) {
        let joint = JointProblem { obstacles: Vec::new(), move_cost: 0, ..problem };
        let one = &joint.deployments[0];
        let alone = Problem {
            workers: one.workers,
            threads: one.threads,
            mode: one.mode,
            topology: joint.topology.restrict(&one.cpuset).unwrap(),
            distances: joint.distances,
            current: one.current.clone(),
        };
        let expected = solve(&alone, &mut budget(30)).unwrap();
        let solution = solve_joint(&joint, &mut budget(30)).unwrap();
        check_joint(&joint, &solution).unwrap();
        prop_assert_eq!(&solution.mappings[0], &expected.mapping);
        prop_assert_eq!(solution.certificate, expected.certificate);
    }
}

const ARTICLE: Shape = machines::ARTICLE;

fn mixed(topology: &Topology, count: usize) -> JointProblem {
    let sizes = [
        (4, 4, Mode::Scatter),
        (2, 8, Mode::Compact),
        (1, 3, Mode::Scatter),
        (6, 2, Mode::Compact),
    ];
    let sizes: Vec<_> = sizes.into_iter().cycle().take(count).collect();
    same_cpuset(topology, &sizes)
}

#[test]
fn a_newcomer_among_ten_running_ones_moves_no_thread_without_need() {
    for shape in [
        ARTICLE,
        Shape([2, 2, 1, 8, 2]),
        Shape([1, 4, 1, 4, 2]),
        Shape([1, 1, 16, 1, 1]),
    ] {
        let topology = shape.topology();
        let ten = mixed(&topology, 10);
        let before = solved(&ten);
        let mut eleven = settled(&ten, &before);
        eleven.move_cost = 200;
        for (workers, threads, mode) in [
            (1, 1, Mode::Scatter),
            (4, 4, Mode::Scatter),
            (3, 5, Mode::Compact),
        ] {
            let mut joined = eleven.clone();
            joined.deployments.push(Deployment {
                workers,
                threads,
                mode,
                cpuset: topology.cpuset(),
                current: None,
            });
            let after = solved(&joined);
            let still = solved(&JointProblem {
                move_cost: 1_000_000,
                ..joined
            });
            let name = format!("{shape:?} {workers} x {threads}");
            assert!(still.moved <= 2, "{name}: {} had to move", still.moved);
            assert!(still.moved > 0 || still.gained == 0, "{name}");
            assert_eq!(still.moved, still.moved_least, "{name}: proven fewest");
            if after.moved > still.moved {
                let more = i64::from(after.moved - still.moved);
                let gain = after.certificate.objective - still.certificate.objective;
                assert!(gain > 200 * more, "{name}: {gain} for {more} moves");
            }
        }
    }
}

#[test]
fn thousands_of_threads_that_run_can_be_counted() {
    let topology = Shape([1, 1, 1, 2, 1]).topology();
    let of = |workers, current| Deployment {
        workers,
        threads: 20,
        mode: Mode::Scatter,
        cpuset: topology.cpuset(),
        current,
    };
    let before = solved(&JointProblem {
        topology: topology.clone(),
        distances: Distances::default(),
        deployments: (0..10).map(|_| of(10, None)).collect(),
        obstacles: Vec::new(),
        move_cost: 0,
    });
    let running = before.mappings.into_iter().map(Some);
    let mut joined = JointProblem {
        topology: topology.clone(),
        distances: Distances::default(),
        deployments: running.map(|mapping| of(10, mapping)).collect(),
        obstacles: Vec::new(),
        move_cost: 200,
    };
    joined.deployments.push(of(1, None));
    assert_eq!(solved(&joined).moved, 0, "a newcomer moves no thread");
}

#[test]
fn a_mapping_in_force_that_is_bad_is_improved_where_it_pays() {
    let topology = ARTICLE.topology();
    let problem = mixed(&topology, 3);
    let good = solved(&problem);
    let mut worse = settled(&problem, &good);
    // the two workers of the second deployment exchange half of their threads
    let current = worse.deployments[1].current.as_mut().unwrap();
    for rank in (0..8).step_by(2) {
        current.cpus.swap(rank, 8 + rank);
    }
    let free = solved(&JointProblem {
        move_cost: 0,
        ..worse.clone()
    });
    assert!(free.certificate.objective >= good.certificate.objective);
    assert!(free.gained > 0 && free.moved > 0);
    let dear = solved(&JointProblem {
        move_cost: 1_000_000,
        ..worse
    });
    assert_eq!((dear.gained, dear.moved), (0, 0));
}

#[test]
fn obstacles_push_threads_away_and_so_do_those_on_siblings() {
    // 4 cores x 2: cpu c and c + 4 are siblings
    let topology = Shape([1, 1, 4, 1, 2]).topology();
    let mut problem = same_cpuset(&topology, &[(1, 3, Mode::Scatter)]);
    problem.obstacles = vec![Obstacle {
        cpu: CpuId(1),
        weight: 2,
    }];
    let mapping = &solved(&problem).mappings[0];
    assert!(
        !mapping.cpus.contains(&CpuId(1)) && !mapping.cpus.contains(&CpuId(5)),
        "{mapping:?}"
    );
    // the sibling is outside the cpuset: its load counts only for its core
    problem.deployments[0].cpuset = (0..4).map(CpuId).collect();
    problem.obstacles = vec![Obstacle {
        cpu: CpuId(6),
        weight: 1,
    }];
    let mapping = &solved(&problem).mappings[0];
    assert_eq!(mapping.cpus, [CpuId(0), CpuId(1), CpuId(3)]);
}

#[test]
fn mains_of_all_deployments_repel_each_other() {
    let topology = Shape([1, 4, 1, 2, 1]).topology();
    let problem = same_cpuset(&topology, &[(1, 2, Mode::Compact); 4]);
    let solution = solved(&problem);
    let l3 = |m: &Mapping| topology.cpu(m.cpus[0]).unwrap().l3;
    let mut homes: Vec<u32> = solution.mappings.iter().map(l3).collect();
    homes.sort_unstable();
    assert_eq!(homes, [0, 1, 2, 3]);
    assert!(solution.certificate.optimal);
    for mapping in &solution.mappings {
        assert_eq!(l3(mapping), topology.cpu(mapping.cpus[1]).unwrap().l3);
    }
}

#[test]
fn cpusets_apart_nested_and_overlapping_share_fairly() {
    let topology = ARTICLE.topology();
    let set = |text: &str| text.parse::<CpuSet>().unwrap();
    for (a, b) in [("0-7", "8-15"), ("0-31", "0-3"), ("0-11", "8-20")] {
        let mut problem = same_cpuset(&topology, &[(4, 4, Mode::Scatter), (2, 6, Mode::Compact)]);
        problem.deployments[0].cpuset = set(a);
        problem.deployments[1].cpuset = set(b);
        let solution = solved(&problem);
        for (deployment, mapping) in problem.deployments.iter().zip(&solution.mappings) {
            assert!(
                mapping
                    .cpus
                    .iter()
                    .all(|&cpu| deployment.cpuset.contains(cpu))
            );
        }
    }
}

#[test]
fn more_workers_or_threads_than_cpus_share_them_evenly() {
    let topology = Shape([1, 1, 2, 1, 2]).topology();
    let sizes = [
        (9, 2, Mode::Scatter),
        (2, 11, Mode::Compact),
        (1, 1, Mode::Scatter),
    ];
    let mut problem = same_cpuset(&topology, &sizes);
    problem.deployments[1].cpuset = [CpuId(0), CpuId(3)].into_iter().collect();
    solved(&problem);
}

#[test]
fn a_cpu_that_is_gone_is_left_and_nothing_else_happens_without_need() {
    let topology = ARTICLE.topology();
    let problem = mixed(&topology, 2);
    let before = solved(&problem);
    let mut after = settled(&problem, &before);
    after.move_cost = 1_000;
    for deployment in &mut after.deployments {
        deployment.cpuset.remove(CpuId(5));
    }
    let on_it = before
        .mappings
        .iter()
        .flat_map(|m| &m.cpus)
        .filter(|c| c.0 == 5)
        .count() as u32;
    let solution = solved(&after);
    assert!(
        solution.moved >= on_it && solution.moved <= on_it + 4,
        "{on_it} {}",
        solution.moved
    );
}

#[test]
fn nothing_to_place_is_an_answer() {
    let problem = same_cpuset(&ARTICLE.topology(), &[]);
    let solution = solved(&problem);
    assert_eq!((solution.certificate.objective, solution.moved), (0, 0));
    assert!(solution.certificate.optimal);
}

#[test]
fn errors_name_the_deployment_the_field_and_the_way_out() {
    let topology = Shape([1, 1, 2, 1, 1]).topology();
    let with = |change: &dyn Fn(&mut JointProblem)| {
        let mut problem = same_cpuset(&topology, &[(1, 1, Mode::Scatter), (2, 2, Mode::Compact)]);
        change(&mut problem);
        solve_joint(&problem, &mut WorkBudget::unlimited()).unwrap_err()
    };
    let error = with(&|p| p.deployments[1].workers = 0).to_string();
    assert!(error.starts_with("deployment 1: workers is 0"), "{error}");
    let error = with(&|p| p.deployments[1].cpuset.insert(CpuId(9))).to_string();
    assert!(
        error.contains("deployment 1: the cpuset contains 9"),
        "{error}"
    );
    let error = with(&|p| p.deployments[0].cpuset = CpuSet::new());
    assert_eq!(error, JointError::EmptyCpuset { deployment: 0 });
    let error = with(&|p| {
        p.obstacles = vec![Obstacle {
            cpu: CpuId(7),
            weight: 1,
        }]
    })
    .to_string();
    assert!(
        error.starts_with("obstacle 0: cpu 7 is not a cpu of the machine"),
        "{error}"
    );
}

#[test]
fn a_bound_of_a_lone_deployment_that_counting_does_not_confirm_is_refused() {
    let topology = Shape([1, 2, 1, 4, 1]).topology();
    let lone = Deployment {
        workers: 2,
        threads: 1,
        mode: Mode::Scatter,
        cpuset: topology.cpuset(),
        current: None,
    };
    let problem = JointProblem {
        topology,
        distances: Distances::default(),
        deployments: vec![lone],
        obstacles: Vec::new(),
        move_cost: 0,
    };
    let mut solution = solved(&problem);
    assert_eq!(solution.certificate.objective, 100, "an L3 for each main");
    // both mains in one L3, and a bound that would make that optimal
    solution.mappings[0].cpus = vec![CpuId(0), CpuId(1)];
    (solution.certificate.objective, solution.certificate.bound) = (50, 50);
    let violations = check_joint(&problem, &solution).unwrap_err();
    let is_it = |v: &JointViolation| {
        matches!(
            v,
            JointViolation::Stated(MappingViolation::Unconfirmed { .. })
        )
    };
    assert!(violations.iter().any(is_it), "{violations:?}");
}

#[test]
fn a_bound_of_several_that_counting_does_not_confirm_is_refused_and_so_is_one_that_is_exceeded() {
    let topology = Shape([1, 2, 1, 4, 1]).topology();
    let sizes = [(1, 2, Mode::Compact), (1, 2, Mode::Scatter)];
    let problem = same_cpuset(&topology, &sizes);
    let best = solved(&problem);
    assert_eq!(best.certificate.proof, Proof::Bound);
    let violation = |solution: &JointSolution| match &check_joint(&problem, solution).unwrap_err()[..]
    {
        [JointViolation::Stated(violation)] => violation.clone(),
        other => panic!("{other:?}"),
    };
    // both mains in the first L3, and a bound that would make that optimal
    let mut crowded = best.clone();
    crowded.mappings[0].cpus = vec![CpuId(0), CpuId(1)];
    crowded.mappings[1].cpus = vec![CpuId(2), CpuId(4)];
    // each worker within an L3 or across both, and the two mains
    let [compact, scatter, mains] = [-50, 100, 50];
    let objective = compact + scatter + mains;
    crowded.certificate = Certificate {
        objective,
        bound: objective,
        ..best.certificate.clone()
    };
    let counted = best.certificate.bound;
    let bound = objective;
    assert_eq!(
        violation(&crowded),
        MappingViolation::Unconfirmed { bound, counted }
    );
    // without a claim of optimality, it is merely not the best mapping
    crowded.certificate = Certificate {
        bound: counted,
        optimal: false,
        proof: Proof::None,
        ..crowded.certificate
    };
    check_joint(&problem, &crowded).unwrap();
    // a bound that the mappings exceed is wrong, whatever is claimed
    let mut wrong = best;
    let objective = wrong.certificate.objective;
    let bound = objective - 1;
    wrong.certificate.bound = bound;
    (wrong.certificate.optimal, wrong.certificate.proof) = (false, Proof::None);
    assert_eq!(
        violation(&wrong),
        MappingViolation::BoundTooLow { bound, objective }
    );
}
