//! The checker rejects what is wrong: each rule broken by hand, each false statement of a
//! certificate.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod machines;

use albacore_solver::{
    Certificate, Mapping, MappingViolation, Mode, Problem, Proof, Rank, Relaxation, Slot, Solution,
    WorkBudget, WorkerIndex, check, check_solution, objective, solve,
};
use albacore_topology::CpuId;
use machines::{Shape, problem};

/// Rules that the checker reports as broken for these cpus of 2 cores x 2 cpus (0 and 2 on one
/// core, 1 and 3 on the other).
fn broken(workers: u16, threads: u16, cpus: &[u16]) -> Vec<(&'static str, u32)> {
    broken_on(Shape([1, 1, 2, 1, 2]), (workers, threads), cpus)
}

fn broken_on(
    shape: Shape,
    (workers, threads): (u16, u16),
    cpus: &[u16],
) -> Vec<(&'static str, u32)> {
    let problem = problem(shape.topology(), (workers, threads, Mode::Scatter));
    let report = check(&problem, &mapping(threads, cpus)).unwrap();
    report
        .relaxed
        .into_iter()
        .map(|relaxed| (relaxed.rule, relaxed.amount))
        .collect()
}

fn mapping(threads: u16, cpus: &[u16]) -> Mapping {
    Mapping {
        threads,
        cpus: cpus.iter().copied().map(CpuId).collect(),
    }
}

#[test]
fn a_mapping_that_keeps_every_rule_breaks_none() {
    assert_eq!(broken(2, 2, &[0, 3, 1, 2]), []);
}

#[test]
fn rule_2_equal_ranks_on_one_cpu() {
    assert!(broken(2, 2, &[0, 1, 0, 3]).contains(&("2", 1)));
}

#[test]
fn rule_3_two_threads_of_a_worker_on_one_cpu() {
    assert!(broken(2, 2, &[0, 0, 1, 3]).contains(&("3", 1)));
}

#[test]
fn rule_8_a_cpu_with_too_many_and_one_with_too_few() {
    // cpu 0 has 2 of 4 threads, cpu 2 none
    assert_eq!(broken(2, 2, &[0, 3, 1, 0]), [("8", 1)]);
}

#[test]
fn rule_8_plus_a_core_with_too_many() {
    // 2 threads on 2 cores, both on one
    assert_eq!(broken(1, 2, &[0, 2]), [("8+", 1)]);
}

#[test]
fn mains_on_one_core_while_another_has_none() {
    assert_eq!(broken(2, 2, &[0, 1, 2, 3]), [("mains-per-core", 1)]);
}

#[test]
fn rule_12_a_full_cpu_with_a_main() {
    // 2 x 3 threads on 4 cpus without SMT: r = 2, so W - C + r = 0 full cpus may hold a main
    let flat = Shape([1, 1, 4, 1, 1]);
    assert_eq!(broken_on(flat, (2, 3), &[0, 2, 3, 1, 3, 2]), []);
    assert_eq!(
        broken_on(flat, (2, 3), &[0, 1, 3, 1, 2, 0]),
        [("12", 2), ("12+", 2)]
    );
}

#[test]
fn rule_12_plus_a_full_core_with_a_main() {
    // one core holds 2, W - P + r' = 0, so the main belongs on the other
    assert_eq!(broken(1, 3, &[1, 0, 2]), []);
    assert_eq!(broken(1, 3, &[0, 1, 2]), [("12+", 1)]);
}

#[test]
fn more_workers_than_cpus_share_by_ceil() {
    // ceil(5/4) = 2 mains may share a cpu, 3 may not
    assert_eq!(broken(5, 1, &[0, 1, 2, 3, 0]), []);
    assert!(broken(5, 1, &[0, 0, 0, 1, 3]).contains(&("2", 1)));
}

#[test]
fn rule_1_wrong_counts_and_foreign_cpus_are_refused() {
    let problem = problem(Shape([1, 1, 2, 1, 2]).topology(), (2, 2, Mode::Scatter));
    let refused = |threads, cpus| check(&problem, &mapping(threads, cpus)).unwrap_err();
    assert_eq!(
        refused(1, &[0, 1]),
        [MappingViolation::OtherThreads {
            mapping: 1,
            problem: 2
        }]
    );
    assert_eq!(
        refused(2, &[0, 1]),
        [MappingViolation::OtherCount {
            placed: 2,
            requested: 4
        }]
    );
    let slot = Slot {
        worker: WorkerIndex(1),
        rank: Rank(1),
    };
    let cpu = CpuId(9);
    assert_eq!(
        refused(2, &[0, 1, 2, 9]),
        [MappingViolation::OutsideCpuset { slot, cpu }]
    );
    assert!(objective(&problem, &mapping(2, &[0, 1])).is_err());
}

#[test]
fn the_objective_is_the_sum_over_pairs() {
    let value = |mode| {
        let problem = problem(Shape([1, 1, 2, 1, 2]).topology(), (2, 2, mode));
        objective(&problem, &mapping(2, &[0, 2, 1, 3])).unwrap()
    };
    // mains on two cores: 50; both workers on the two cpus of a core: 4 each
    assert_eq!(value(Mode::Scatter), 50 + 8);
    assert_eq!(value(Mode::Compact), 50 - 8);
}

/// A problem whose solution has to relax (12) and (12+) by 2.
fn contradictory() -> Problem {
    problem(Shape([1, 1, 8, 1, 1]).topology(), (5, 2, Mode::Scatter))
}

#[test]
fn a_solution_that_does_not_admit_what_it_breaks_is_refused() {
    let problem = contradictory();
    let mut solution = solve(&problem, &mut WorkBudget::unlimited()).unwrap();
    check_solution(&problem, &solution).unwrap();
    solution.certificate.relaxed = vec![Relaxation {
        rule: "12",
        amount: 1,
    }];
    let violations = check_solution(&problem, &solution).unwrap_err();
    let broken = |rule, admitted| MappingViolation::Broken {
        rule,
        amount: 2,
        admitted,
    };
    assert_eq!(violations, [broken("12", 1), broken("12+", 0)]);
}

#[test]
fn a_certificate_that_overstates_is_refused() {
    let problem = contradictory();
    let honest = solve(&problem, &mut WorkBudget::unlimited()).unwrap();
    let value = honest.certificate.objective;
    let refused = |change: &dyn Fn(&mut albacore_solver::Certificate)| {
        let mut solution = honest.clone();
        change(&mut solution.certificate);
        check_solution(&problem, &solution).unwrap_err()
    };
    assert_eq!(
        refused(&|stated| (stated.objective, stated.bound) = (value + 1, value + 1)),
        [MappingViolation::OtherObjective {
            stated: value + 1,
            actual: value
        }]
    );
    assert_eq!(
        refused(&|stated| {
            (stated.bound, stated.optimal, stated.proof) = (value - 1, false, Proof::None);
        }),
        [MappingViolation::BoundTooLow {
            bound: value - 1,
            objective: value
        }]
    );
    assert_eq!(
        refused(&|stated| stated.bound = value + 1),
        [MappingViolation::NotProven {
            objective: value,
            bound: value + 1
        }]
    );
    assert_eq!(honest.certificate.proof, Proof::Bound);
    assert_eq!(
        refused(&|stated| stated.proof = Proof::None),
        [MappingViolation::OtherProof {
            optimal: true,
            proof: Proof::None
        }]
    );
    assert_eq!(
        refused(&|stated| (stated.optimal, stated.proof) = (false, Proof::Search)),
        [MappingViolation::OtherProof {
            optimal: false,
            proof: Proof::Search
        }]
    );
}

#[test]
fn a_counted_bound_that_counting_does_not_confirm_is_refused() {
    let problem = problem(Shape([1, 1, 2, 1, 2]).topology(), (2, 2, Mode::Scatter));
    let best = solve(&problem, &mut WorkBudget::unlimited())
        .unwrap()
        .certificate;
    let (mapping, objective) = (mapping(2, &[0, 2, 1, 3]), 50 + 8);
    assert!(best.optimal && best.objective > objective);
    // another mapping, whose value is claimed to be optimal
    let mut poor = Solution {
        certificate: Certificate {
            relaxed: check(&problem, &mapping).unwrap().relaxed,
            objective,
            bound: objective,
            ..best
        },
        mapping,
    };
    assert_eq!(
        check_solution(&problem, &poor).unwrap_err(),
        [MappingViolation::Unconfirmed {
            bound: objective,
            counted: best.bound
        }]
    );
    // without the claim, or with a proof that is not counted, the checker does not verify it
    (poor.certificate.optimal, poor.certificate.proof) = (false, Proof::None);
    check_solution(&problem, &poor).unwrap();
    (poor.certificate.optimal, poor.certificate.proof) = (true, Proof::Search);
    check_solution(&problem, &poor).unwrap();
}
