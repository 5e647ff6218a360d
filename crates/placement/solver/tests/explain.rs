//! Explanations are correct: every figure is compared with the independent checker.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod machines;

use albacore_solver::{
    AlternativeCpu, BindingConstraint, ExplainError, Mapping, Mode, Problem, Rank, Rule, Slot,
    SpeedClass, WorkBudget, WorkerIndex, check, difference, explain, explain_thread, round_robin,
    solve,
};
use albacore_topology::{CAPACITY_MAX, Cpu, CpuId, CpuSet, Level, Topology};
use machines::{ARTICLE, Shape, at_two_speeds, capacities, modes, problem, topologies};
use proptest::prelude::*;

fn solved(problem: &Problem) -> Mapping {
    let mut budget = WorkBudget::of_steps(400_000);
    solve(problem, &mut budget).unwrap().mapping
}

fn slot(worker: u16, rank: u16) -> Slot {
    Slot {
        worker: WorkerIndex(worker),
        rank: Rank(rank),
    }
}

fn index(problem: &Problem, slot: Slot) -> usize {
    usize::from(slot.worker.0 * problem.threads + slot.rank.0)
}

/// The mapping after `slot` moved to `to` and `partner` moved in return.
fn changed(
    problem: &Problem,
    mapping: &Mapping,
    slot: Slot,
    to: CpuId,
    partner: Option<Slot>,
) -> Mapping {
    let mut changed = mapping.clone();
    let from = mapping.cpu(slot).unwrap();
    changed.cpus[index(problem, slot)] = to;
    if let Some(partner) = partner {
        assert_eq!(mapping.cpu(partner), Some(to), "the partner was there");
        changed.cpus[index(problem, partner)] = from;
    }
    changed
}

fn amount(problem: &Problem, mapping: &Mapping, rule: Rule) -> u32 {
    let report = check(problem, mapping).unwrap();
    let found = report.relaxed.iter().find(|r| r.rule == rule.name());
    found.map_or(0, |relaxed| relaxed.amount)
}

fn problems() -> impl Strategy<Value = Problem> {
    let machines = prop_oneof![
        topologies(24),
        (topologies(24), any::<u64>(), capacities())
            .prop_map(|(topology, slow, capacity)| at_two_speeds(&topology, slow, capacity)),
    ];
    (machines, (1..=7u16, 1..=7u16), modes())
        .prop_map(|(topology, (w, t), m)| problem(topology, (w, t, m)))
}

/// A solved mapping, or the baseline, which breaks rules.
fn either(problem: &Problem, is_baseline: bool) -> Mapping {
    if is_baseline {
        round_robin(problem).unwrap().mapping
    } else {
        solved(problem)
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn alternatives_of_a_thread_have_the_stated_cost_and_violations(
        problem in problems(), is_baseline in any::<bool>(), pick in any::<u16>()
    ) {
        let mapping = either(&problem, is_baseline);
        let slot = slot(pick % problem.workers, pick / 256 % problem.threads);
        let explained = explain_thread(&problem, &mapping, slot).unwrap();
        prop_assert_eq!(explained.places.len(), problem.topology.cpus().len() - 1);
        let value = check(&problem, &mapping).unwrap().objective;
        for AlternativeCpu { cpu, partner, gain, forbidden, .. } in &explained.places {
            let after = changed(&problem, &mapping, slot, *cpu, *partner);
            prop_assert_eq!(check(&problem, &after).unwrap().objective - value, *gain);
            for rule in Rule::ALL.into_iter().filter(|&rule| rule != Rule::EqualRanks) {
                let grows = amount(&problem, &after, rule) > amount(&problem, &mapping, rule);
                prop_assert_eq!(forbidden.contains(&rule), grows, "{:?} on {}", rule, cpu);
            }
        }
    }

    #[test]
    fn an_explanation_agrees_with_the_checker(
        problem in problems(), is_baseline in any::<bool>()
    ) {
        let mapping = either(&problem, is_baseline);
        let explained = explain(&problem, &mapping, &mut WorkBudget::unlimited()).unwrap();
        let value = check(&problem, &mapping).unwrap().objective;
        prop_assert_eq!(explained.objective, value);
        prop_assert!(explained.complete);
        prop_assert!(explained.parts >= value, "the parts are a bound");
        for (alternative, wanted) in [(explained.better, 1), (explained.runner_up, -1)] {
            let Some(found) = alternative else { continue };
            prop_assert_eq!(found.gain.signum(), wanted);
            let after = changed(&problem, &mapping, found.slot, found.to, found.partner);
            prop_assert_eq!(check(&problem, &after).unwrap().objective - value, found.gain);
            for rule in Rule::ALL.into_iter().filter(|&rule| rule != Rule::EqualRanks) {
                let admitted = amount(&problem, &mapping, rule);
                prop_assert!(amount(&problem, &after, rule) <= admitted, "{:?}", rule);
            }
        }
        prop_assert!(explained.binding.iter().all(|binding| binding.gain > 0));
    }

    #[test]
    fn no_single_step_improves_what_is_optimal(problem in problems()) {
        let solution = solve(&problem, &mut WorkBudget::unlimited()).unwrap();
        let explained = explain(&problem, &solution.mapping, &mut WorkBudget::unlimited()).unwrap();
        if solution.certificate.optimal {
            prop_assert_eq!(explained.better, None);
        }
    }
}

#[test]
fn the_rule_that_keeps_compact_workers_off_one_core_is_named_with_its_price() {
    let problem = problem(ARTICLE.topology(), (2, 2, Mode::Compact));
    let explained = explain(&problem, &solved(&problem), &mut WorkBudget::unlimited()).unwrap();
    // both workers could have their 2 threads on one core, 4 apart instead of 50
    let wanted = BindingConstraint {
        rule: Rule::CoreVolume,
        gain: 2 * 46,
    };
    assert_eq!(explained.binding, [wanted]);
    assert_eq!((explained.objective, explained.parts), (-50, -50));
    assert_eq!((explained.cores.units, explained.cores.most), (16, 1));
    assert_eq!((explained.cores.at_most, explained.cores.held), (4, (0, 1)));
    assert_eq!(
        (explained.mains.cycles, explained.mains.pairs.at(Level::L3)),
        (50, 1)
    );
}

/// Core 2 has one cpu, which takes one of 6 mains by rule (2): the checker allows 3 of them on
/// another core, although each of 3 cores has 2 on average.
#[test]
fn the_limit_of_mains_on_a_core_is_that_of_the_checker_where_cores_differ_in_speed() {
    let cpu = |(id, core): (u16, u32)| Cpu {
        id: CpuId(id),
        core,
        l2: core,
        l3: core,
        numa: core,
        package: 0,
        capacity: if core == 0 { 341 } else { CAPACITY_MAX },
    };
    let cpus = [(1, 1), (3, 0), (6, 0), (7, 1), (8, 2), (9, 0), (10, 1)];
    let topology = Topology::new(cpus.map(cpu).into()).unwrap();
    let problem = problem(topology, (6, 7, Mode::Scatter));
    let mapping = solved(&problem);
    for main in (0..6).map(|worker| slot(worker, 0)) {
        for place in explain_thread(&problem, &mapping, main).unwrap().places {
            let after = changed(&problem, &mapping, main, place.cpu, place.partner);
            let [now, then] = [&mapping, &after].map(|of| amount(&problem, of, Rule::MainsPerCore));
            assert_eq!(place.forbidden.contains(&Rule::MainsPerCore), then > now);
        }
    }
}

#[test]
fn a_worker_that_is_split_knows_what_it_could_have_alone() {
    // 3 workers of 4 threads on 2 L3 of 3 cores x 2 cpus: one of them must be split
    let problem = problem(Shape([1, 2, 3, 1, 2]).topology(), (3, 4, Mode::Compact));
    let explained = explain(&problem, &solved(&problem), &mut WorkBudget::unlimited()).unwrap();
    let alone = 2 * 4 + 4 * 50;
    assert!(explained.workers.iter().all(|worker| worker.alone == alone));
    assert!(explained.workers.iter().any(|worker| worker.cycles > alone));
    assert!(explained.parts > explained.objective);
}

#[test]
fn a_spent_budget_is_reported() {
    let problem = problem(ARTICLE.topology(), (4, 4, Mode::Scatter));
    let explained = explain(&problem, &solved(&problem), &mut WorkBudget::of_steps(0)).unwrap();
    assert!(!explained.complete);
    assert_eq!(
        (explained.better, explained.runner_up, explained.equal),
        (None, None, 0)
    );
}

#[test]
fn places_differ_by_what_they_share() {
    let problem = problem(Shape([2, 2, 1, 2, 2]).topology(), (1, 2, Mode::Scatter));
    let explained = explain_thread(&problem, &solved(&problem), slot(0, 0)).unwrap();
    let count = |nearness| {
        let near = explained.places.iter().filter(|p| p.nearness == nearness);
        near.count()
    };
    assert_eq!(count(Level::L1), 1);
    assert_eq!(count(Level::L2), 2);
    assert_eq!(count(Level::Numa), 4);
    assert_eq!(count(Level::Machine), 8);
    assert_eq!((explained.to_mains, explained.to_worker), (0, 200));
}

#[test]
fn an_unknown_thread_is_rejected_with_the_valid_ranges() {
    let problem = problem(ARTICLE.topology(), (2, 3, Mode::Scatter));
    let mapping = solved(&problem);
    let refused = explain_thread(&problem, &mapping, slot(2, 0)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "there is no thread 2.0: workers are 0 to 1, ranks 0 to 2"
    );
    let slot = slot(0, 3);
    let refused = explain_thread(&problem, &mapping, slot).unwrap_err();
    assert!(matches!(refused, ExplainError::NoThread { .. }));
    let other = Mapping {
        threads: 2,
        ..mapping
    };
    let refused = explain(&problem, &other, &mut WorkBudget::unlimited()).unwrap_err();
    assert!(matches!(refused, ExplainError::Mapping(_)));
}

#[test]
fn a_difference_lists_the_threads_that_go_elsewhere() {
    let mapping = |cpus: [u16; 4]| Mapping {
        threads: 2,
        cpus: cpus.map(CpuId).to_vec(),
    };
    let moves = difference(&mapping([0, 1, 2, 3]), &mapping([0, 3, 2, 1]));
    let listed: Vec<_> = moves.iter().map(|m| (m.slot, m.from.0, m.to.0)).collect();
    assert_eq!(listed, [(slot(0, 1), 1, 3), (slot(1, 1), 3, 1)]);
}

#[test]
fn what_is_optimal_uses_all_that_a_loosened_rule_admits() {
    // half cores: (8+) is relaxed above, and the same amount below is then admitted as well
    let cpus = [1, 2, 3, 4, 6, 7, 8, 10, 11].map(CpuId);
    let topology = Shape([1, 1, 6, 1, 2]).topology();
    let topology = topology.restrict(&CpuSet::from_iter(cpus)).unwrap();
    let problem = problem(topology, (5, 7, Mode::Compact));
    let solution = solve(&problem, &mut WorkBudget::unlimited()).unwrap();
    let explained = explain(&problem, &solution.mapping, &mut WorkBudget::unlimited()).unwrap();
    assert_eq!(explained.better, None, "{:?}", solution.certificate);
}

#[test]
fn what_cores_of_each_speed_hold_is_explained() {
    // 8 cores of 2 cpus, the last 4 slow
    let topology = at_two_speeds(&Shape([1, 1, 8, 1, 2]).topology(), 0xf0, 512);
    let problem = problem(topology, (4, 2, Mode::Scatter));
    let mapping = solved(&problem);
    let explained = explain(&problem, &mapping, &mut WorkBudget::unlimited()).unwrap();
    let share = |capacity, threads, mains| SpeedClass {
        capacity,
        cores: 4,
        cpus: 8,
        threads,
        mains,
    };
    // a thread alone on a slow core has the level of the second on a fast one, which has priority
    assert_eq!(explained.speeds, [share(1024, 8, 4), share(512, 0, 0)]);
    let thread = explain_thread(&problem, &mapping, slot(0, 0)).unwrap();
    let places = thread.places.iter();
    let slow = places.filter(|place| problem.topology.cpu(place.cpu).unwrap().capacity < 1024);
    for place in slow {
        assert!(place.forbidden.contains(&Rule::FastMains), "{place:?}");
    }
}
