//! The figures of an independent reference simulator (tests/data/symphony/README.md), within its
//! tolerances. A goodput g within 2 % is: good at 0.98 g, not good at 1.02 g.
#![allow(clippy::unwrap_used)] // tests fail by panicking

use albacore_simulator::{Figures, Scenario, is_good_at, run};

fn scenario(text: &str, sets: &[&str]) -> Scenario {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/symphony/");
    let read =
        |file: &str| std::fs::read_to_string(format!("{folder}{file}")).map_err(|e| e.to_string());
    let text = format!("{text}\nrate: 1\npolicy: deferred\nearly: 0\nrequests: 400000");
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    Scenario::read(&text, &sets, &read).unwrap()
}

/// So many models of one profile.
fn copies(workers: usize, models: usize, profile: &str) -> String {
    let item = |i| format!("\n  - {{name: m{i}, {profile}}}");
    format!(
        "workers: {workers}\nmodels:{}",
        (0..models).map(item).collect::<String>()
    )
}

fn resnet() -> String {
    copies(8, 1, "alpha: 1.053, beta: 5.072, slo: 25")
}

fn inception() -> String {
    copies(8, 1, "alpha: 5.090, beta: 18.368, slo: 70")
}

fn flat() -> String {
    copies(24, 10, "alpha: 1.053, beta: 5.072, slo: 100")
}

fn assert_goodput(text: &str, sets: &[&str], goodput: f64) {
    let scenario = scenario(text, sets);
    assert!(
        is_good_at(&scenario, goodput * 0.98, &mut |_| ()),
        "{sets:?}: below {goodput}"
    );
    assert!(
        !is_good_at(&scenario, goodput * 1.02, &mut |_| ()),
        "{sets:?}: above {goodput}"
    );
}

fn at(text: &str, sets: &[&str], rate: f64) -> Figures {
    run(&scenario(text, sets).at_rate(rate))
}

#[test]
fn one_model_on_eight_workers_has_the_goodput_of_table_2() {
    assert_goodput(&resnet(), &[], 5321.0);
    assert_goodput(&inception(), &[], 948.0);
    let (few, many) = (at(&resnet(), &[], 5000.0), at(&resnet(), &[], 5600.0));
    assert!((few.bad_rate - 0.0015).abs() < 0.001, "{few:?}");
    assert!((many.bad_rate - 0.025).abs() < 0.004, "{many:?}");
    assert_eq!(at(&resnet(), &[], 5321.0).batch_median, 16);
    assert_eq!(at(&inception(), &[], 948.0).batch_median, 8);
}

#[test]
fn eager_batches_of_one_model_have_their_goodput() {
    assert_goodput(&resnet(), &["policy=eager"], 3770.0);
    assert_goodput(&inception(), &["policy=eager"], 733.0);
    assert_goodput(&resnet(), &["policy=eager", "drop.target=half"], 5178.0);
    assert_goodput(&inception(), &["policy=eager", "drop.target=half"], 890.0);
}

#[test]
fn deferred_batches_gain_as_dispatches_cost_more() {
    for (beta, deferred, eager) in [
        (1, 28_862.0, 0.996),
        (7, 21_464.0, 0.82),
        (15, 17_671.0, 0.646),
    ] {
        let slo = 2 * (8 + beta);
        let text = copies(32, 10, &format!("alpha: 1, beta: {beta}, slo: {slo}"));
        assert_goodput(&text, &[], deferred);
        assert_goodput(&text, &["policy=eager"], deferred * eager);
    }
}

#[test]
fn the_top_is_flat_and_idle_workers_are_proportional() {
    let peak = 20_426.0;
    assert_goodput(&flat(), &[], peak);
    for offered in [1000.0, 6000.0, 12_000.0, 19_500.0] {
        let figures = at(&flat(), &[], offered);
        let ideal = (peak - offered) / peak;
        assert!(
            (figures.idle_share - ideal).abs() < 0.04,
            "{offered}: {figures:?}"
        );
    }
    for offered in [21_000.0, 30_000.0, 40_000.0] {
        let figures = at(&flat(), &[], offered);
        let ideal = (offered - peak) / offered;
        assert!(
            (figures.bad_rate - ideal).abs() < 0.04,
            "{offered}: {figures:?}"
        );
        assert!(
            figures.good_per_second > peak * 0.98,
            "{offered}: {figures:?}"
        );
    }
}

#[test]
fn deferred_batches_leave_high_numbered_workers_alone() {
    assert_eq!(at(&flat(), &["requests=2000000"], 3000.0).workers_used, 10);
    assert_eq!(at(&flat(), &["policy=eager"], 3000.0).workers_used, 24);
}

#[test]
fn mixed_models_have_the_goodput_of_the_reference() {
    let zipf = ["arrivals.popularity=zipf", "arrivals.exponent=0.9"];
    for (file, equal, popular) in [("a100", 17_007.0, 42_157.0), ("1080ti", 7283.0, 15_152.0)] {
        let text = format!("workers: 64\nprofiles: {file}.csv");
        // The worst of 37 models is judged: fewer requests would be noise.
        assert_goodput(&text, &["requests=1200000"], equal);
        assert_goodput(&text, &["requests=1200000", zipf[0], zipf[1]], popular);
    }
}

#[test]
fn without_the_window_the_batches_collapse() {
    // 200 s at the article's goodput.
    let figures = at(&resnet(), &["drop.rule=head", "requests=1052800"], 5264.0);
    assert!((figures.bad_rate - 0.75).abs() < 0.05, "{figures:?}");
}

#[test]
fn equal_seeds_give_equal_runs() {
    let once = || at(&flat(), &["seed=5", "requests=50000"], 15_000.0);
    assert_eq!(once(), once());
    let delayed = at(
        &resnet(),
        &["delays.control=100us", "delays.data=50us"],
        4500.0,
    );
    assert!(
        delayed.bad_rate < 0.01 && delayed.batch_median < 16,
        "{delayed:?}"
    );
}
