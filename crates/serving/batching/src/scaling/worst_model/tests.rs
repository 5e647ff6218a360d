//! The worst model decides; a single model is judged by its requests alone.

use proptest::prelude::*;

use super::super::{DEAD_BAND, FACTOR_MISSED};
use super::*;

fn counts(requests: u64, bad: u64) -> RequestCounts {
    RequestCounts {
        requests,
        bad,
        ..RequestCounts::default()
    }
}

/// A model with these requests by kind, of which 1 % may be bad.
fn model(kinds: &[(u64, u64)]) -> ModelLoad {
    let kinds: Vec<RequestCounts> = kinds.iter().map(|&(all, bad)| counts(all, bad)).collect();
    ModelLoad {
        bad_rate_allowed: Some(0.01),
        all: sum(&kinds),
        kinds,
    }
}

fn sum<'a>(counts: impl IntoIterator<Item = &'a RequestCounts>) -> RequestCounts {
    let mut sum = RequestCounts::default();
    counts.into_iter().for_each(|counts| sum.add(counts));
    sum
}

fn load_of(models: &[ModelLoad]) -> DeploymentLoad {
    DeploymentLoad::new(4, 0.3, sum(models.iter().map(|model| &model.all)), models)
}

fn is_near(value: f64, expected: f64) -> bool {
    (value - expected).abs() < 1e-9
}

#[test]
fn a_small_model_that_misses_decides_although_all_requests_together_are_in_time() {
    let load = load_of(&[model(&[(100_000, 0)]), model(&[(100, 50)])]);
    assert!(load_factor(load.all()) < 1.0 + DEAD_BAND);
    assert!(is_near(load.factor(), 2.0), "{}", load.factor());
    assert_eq!((load.worst().requests, load.worst().bad), (100, 50));
}

#[test]
fn a_kind_of_output_that_misses_decides_within_its_model() {
    let models = [model(&[(100_000, 10), (40, 20)])];
    let load = load_of(&models);
    assert!(is_near(load.factor(), 2.0), "{}", load.factor());
    assert_eq!(models[0].is_objective_met(), Some(false));
    assert_eq!(models[0].all.is_objective_met(0.01), Some(true));
}

#[test]
fn one_or_two_bad_requests_of_a_small_model_are_chance_and_three_are_not() {
    let factor = |bad| load_of(&[model(&[(100_000, 0)]), model(&[(20, bad)])]).factor();
    assert!(factor(2) < 1.0 + DEAD_BAND);
    assert!(is_near(factor(3), 1.0 / (1.0 - 3.0 / 20.0)));
    // Whether it met its objective is reported nevertheless.
    assert_eq!(model(&[(20, 1)]).is_objective_met(), Some(false));
}

#[test]
fn requests_whose_kind_is_not_known_count_for_their_model() {
    let refused = ModelLoad {
        all: counts(150, 100),
        ..model(&[(50, 0)])
    };
    let load = load_of(&[model(&[(1000, 0)]), refused.clone()]);
    assert!(is_near(load.factor(), 3.0), "{}", load.factor());
    assert_eq!(refused.is_objective_met(), Some(false));
}

#[test]
fn a_model_without_an_objective_misses_none_but_its_bad_requests_ask_for_pods() {
    let free = |bad| ModelLoad {
        bad_rate_allowed: None,
        ..model(&[(1000, bad)])
    };
    assert_eq!(free(500).is_objective_met(), None);
    assert!(is_near(load_of(&[free(500)]).factor(), 2.0));
    let little = load_of(&[free(20)]).factor();
    assert!(little > 1.0 && little < FACTOR_MISSED, "{little}");
    assert_eq!(model(&[]).is_objective_met(), None, "without a request");
}

#[test]
fn without_reports_by_model_all_requests_are_judged_by_the_strictest_objective() {
    let silent = |allowed| ModelLoad {
        bad_rate_allowed: Some(allowed),
        ..model(&[])
    };
    let models = [silent(0.05), silent(0.01)];
    let load = DeploymentLoad::new(2, 0.0, counts(1000, 20), &models);
    assert!(is_near(load.all().bad_rate_allowed, 0.01));
    assert!(is_near(load.factor(), FACTOR_MISSED));
}

#[test]
fn the_newest_part_of_the_window_decides_if_it_is_sufficient_evidence() {
    let mut rush = model(&[(2000, 100)]);
    (rush.all.recent_requests, rush.all.recent_bad) = (1000, 500);
    let mut calm = model(&[(4000, 400)]);
    calm.all.recent_requests = 9000;
    let load = load_of(&[calm, rush]);
    assert_eq!(load.worst().requests, 2000);
    assert!(is_near(load.factor(), 1.0 / 0.9), "by the whole window");
}

fn any_counts() -> impl Strategy<Value = RequestCounts> {
    (0..5000u64, 0.0..1.0f64, 0..2000u64, 0.0..1.0f64).prop_map(
        |(requests, bad, recent, recent_bad)| RequestCounts {
            requests,
            bad: (requests as f64 * bad * bad) as u64,
            recent_requests: recent,
            recent_bad: (recent as f64 * recent_bad * recent_bad) as u64,
        },
    )
}

fn any_model() -> impl Strategy<Value = ModelLoad> {
    let kinds = prop::collection::vec(any_counts(), 0..4);
    (prop::option::of(0.001..0.2f64), kinds).prop_map(|(bad_rate_allowed, kinds)| ModelLoad {
        bad_rate_allowed,
        all: sum(&kinds),
        kinds,
    })
}

proptest! {
    #[test]
    fn one_model_with_one_kind_is_judged_as_all_requests(
        of in any_counts(), allowed in 0.0..0.2f64, idle in 0.0..1.0f64,
    ) {
        let bad_rate_allowed = Some(allowed);
        let models = [ModelLoad { bad_rate_allowed, all: of, kinds: vec![of] }];
        let load = DeploymentLoad::new(3, idle, of, &models);
        prop_assert_eq!(load.worst(), *load.all());
        prop_assert!(is_near(load.factor(), load_factor(load.all())));
    }

    #[test]
    fn the_factor_is_that_of_the_worst_and_no_model_can_lower_it(
        models in prop::collection::vec(any_model(), 1..6), idle in 0.0..1.0f64,
    ) {
        let all = sum(models.iter().map(|model| &model.all));
        let load = DeploymentLoad::new(3, idle, all, &models);
        prop_assert!(load.factor() >= load_factor(load.all()) - 1e-12);
        for model in &models {
            let own = DeploymentLoad::new(3, idle, model.all, std::slice::from_ref(model));
            let is_evident = model.all.bad >= EVIDENCE_MIN;
            prop_assert!(!is_evident || load.factor() >= own.factor() - 1e-12);
        }
        let growing = load.factor() > FACTOR_MISSED;
        let is_bad = |model: &ModelLoad| model.all.bad > 0;
        prop_assert!(!growing || models.iter().any(is_bad), "only bad requests ask for more");
    }

    #[test]
    fn more_bad_requests_of_a_model_never_need_fewer_pods(
        models in prop::collection::vec(any_model(), 1..5), more in 1..1000u64,
    ) {
        let factor = |models: &[ModelLoad]| {
            let all = sum(models.iter().map(|model| &model.all));
            DeploymentLoad::new(3, 0.2, all, models).factor()
        };
        let mut worse = models.clone();
        let of = &mut worse[0].all;
        of.bad = (of.bad + more).min(of.requests);
        prop_assert!(factor(&worse) >= factor(&models) - 1e-12);
    }
}
