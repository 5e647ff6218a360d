//! Compares partitions of small problems with exhaustive enumeration, and of large problems with
//! the figures of the article's setting.
#![allow(clippy::unwrap_used)] // tests fail by panicking

use albacore_partition::{
    Current, Limits, Method, Model, Problem, ProblemError, best_random, check, search, solve,
    solve_program,
};
use proptest::prelude::*;

fn model(i: usize, rate: f64, memory: f64) -> Model {
    Model {
        name: format!("m{i}"),
        rate,
        memory,
        running_memory: memory * 0.2,
        change_cost: 1.0,
    }
}

fn problem(models: Vec<Model>, clusters: usize) -> Problem {
    Problem {
        models,
        clusters,
        limits: Limits {
            rate: f64::INFINITY,
            memory: f64::INFINITY,
        },
        weight: 1.0,
        current: None,
    }
}

/// A budget of `left` iterations.
fn turns(mut left: u32) -> impl FnMut() -> bool {
    move || {
        left = left.saturating_sub(1);
        left > 0
    }
}

/// The article's setting: exponential rates, memory of variants of a model zoo.
fn large(seed: u64) -> Problem {
    let mut state = seed;
    let mut unit = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 11) + 1) as f64 / (1_u64 << 53) as f64
    };
    let models = (0..800).map(|i| {
        let rate = -unit().ln();
        model(i, rate, 14.0 + 530.0 * unit().powi(2))
    });
    problem(models.collect(), 20)
}

#[test]
fn eight_hundred_models_on_twenty_clusters_are_out_of_balance_by_less_than_a_percent() {
    for seed in 1..=3 {
        let problem = large(seed);
        let solution = solve(&problem, &mut turns(100_000)).unwrap();
        let measure = solution.measure;
        assert!(measure.rate_imbalance <= 0.01, "{measure:?}");
        assert!(measure.memory_imbalance <= 0.01, "{measure:?}");
        assert!(solution.gap() <= 0.01, "{}", solution.gap());
        let random = best_random(&problem, seed, &mut turns(500)).unwrap();
        let random = check(&problem, &random).unwrap();
        assert!(random.rate_imbalance > 0.2, "{random:?}");
    }
}

#[test]
fn memory_limits_are_kept_and_few_models_move() {
    let mut problem = large(7);
    let before = search(&problem, &mut turns(100_000));
    for (i, model) in problem.models.iter_mut().enumerate() {
        model.rate *= 0.8 + 0.4 * ((i * 37 % 100) as f64 / 100.0);
    }
    let mean: f64 = problem.models.iter().map(|m| m.memory).sum::<f64>() / 20.0;
    problem.limits.memory = mean * 1.02 + 110.0;
    problem.current = Some(Current {
        clusters: before.iter().map(|&place| Some(place)).collect(),
        cost_max: 60.0,
    });
    let solution = solve(&problem, &mut turns(100_000)).unwrap();
    assert!(solution.measure.change_cost <= 60.0 && solution.measure.moved <= 30);
    let stay = check(&problem, &before).unwrap();
    assert!(
        solution.measure.objective < 0.5 * stay.objective,
        "{stay:?} {solution:?}"
    );
}

#[test]
fn infeasible_partitions_are_rejected_with_a_reason() {
    let mut tight = problem(vec![model(0, 1.0, 10.0), model(1, 1.0, 10.0)], 1);
    tight.limits.memory = 15.0;
    let refused = solve(&tight, &mut turns(100)).unwrap_err();
    assert!(refused.to_string().contains("sum up to 20"), "{refused}");
    tight.models[0].rate = f64::NAN;
    let refused = solve(&tight, &mut turns(100)).unwrap_err();
    assert!(
        matches!(refused, ProblemError::Quantity { .. }),
        "{refused}"
    );
    let none = problem(Vec::new(), 2);
    assert!(solve(&none, &mut turns(100)).is_err());
}

/// The smallest objective of all partitions.
fn best_of_all(problem: &Problem) -> Option<f64> {
    let (n, k) = (problem.models.len() as u32, problem.clusters);
    let all = (0..k.pow(n)).filter_map(|mut code| {
        let places: Vec<usize> = (0..n)
            .map(|_| {
                let place = code % k;
                code /= k;
                place
            })
            .collect();
        check(problem, &places)
            .ok()
            .map(|measure| measure.objective)
    });
    all.min_by(f64::total_cmp)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_program_finds_the_best_and_the_search_keeps_the_rules(
        sizes in prop::collection::vec((0.1_f64..3.0, 0.1_f64..3.0), 2..7),
        clusters in 1_usize..4,
        room in 1.0_f64..3.0,
        moves in prop::option::of(0_u32..8),
    ) {
        let models: Vec<_> = sizes.iter().enumerate().map(|(i, &(r, s))| model(i, r, s)).collect();
        let mut problem = problem(models, clusters);
        let sum: f64 = sizes.iter().map(|size| size.1).sum();
        problem.limits.memory = room * sum / clusters as f64 + 1.0;
        if let Some(moves) = moves {
            let places = (0..sizes.len()).map(|i| (i % 3 > 0).then_some(i % clusters));
            let cost_max = f64::from(moves) + 2.0;
            problem.current = Some(Current { clusters: places.collect(), cost_max });
        }
        let best = best_of_all(&problem);
        if problem.validate().is_err() {
            prop_assert!(best.is_none());
            return Ok(());
        }
        let programmed = solve_program(&problem).and_then(|places| check(&problem, &places).ok());
        let programmed = programmed.map(|measure| measure.objective);
        match (best, programmed) {
            (Some(best), Some(found)) => prop_assert!((found - best).abs() < 1e-6, "{found} {best}"),
            (None, None) => {}
            other => prop_assert!(false, "{other:?}"),
        }
        match (best, solve(&problem, &mut turns(1000))) {
            (Some(best), Ok(solution)) => {
                prop_assert!((solution.measure.objective - best).abs() < 1e-6);
                prop_assert!(solution.bound <= best + 1e-6 && solution.gap() < 1e-6);
                let is_known = matches!(solution.method, Method::Search | Method::Program);
                prop_assert!(is_known);
            }
            (None, Err(_)) => {}
            other => prop_assert!(false, "{other:?}"),
        }
    }
}
