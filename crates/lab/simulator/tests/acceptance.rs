//! Compares with the figures of an independent reference simulator (tests/data/symphony/README.md),
//! within its tolerances. A goodput g within 2 % means: good at 0.98 g, not good at 1.02 g.
#![allow(clippy::unwrap_used)] // tests fail by panicking

use albacore_simulator::{Figures, Scenario, is_good_at, run};

fn scenario(text: &str, sets: &[&str]) -> Scenario {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/symphony/");
    let read =
        |file: &str| std::fs::read_to_string(format!("{folder}{file}")).map_err(|e| e.to_string());
    let text = format!("{text}\nrate: 1\npolicy: deferred\nearly: 0\nrequests: 400000");
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    Scenario::read(&text, &sets, &read).unwrap()
}

/// A scenario with `models` models of one profile.
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
        // The worst of 37 models counts: with fewer requests it would be noise.
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

#[test]
fn a_day_is_followed_with_fewer_workers_than_by_busy_time_and_no_more_bad_requests() {
    let text = copies(12, 1, "alpha: 1.053, beta: 5.072, slo: 25");
    let scenario = scenario(&text, &["policy=auto", "prefer=idle_workers"]).at_rate(6000.0);
    let hour = albacore_batching::Nanos(3_600_000_000_000);
    let [load, busy] = albacore_simulator::days(&scenario, hour, &mut |_| ()).unwrap();
    let sum =
        |day: &albacore_simulator::Day| (day.bad_rate(), day.worker_seconds(), day.lag_seconds());
    println!("load {:?} busy {:?}", sum(&load), sum(&busy));
    assert!(load.worker_seconds() < 0.9 * busy.worker_seconds());
    assert!(load.bad_rate() < 1.1 * busy.bad_rate());
}

#[test]
fn an_hpa_by_the_load_factor_settles_on_a_steady_load() {
    let text = copies(12, 1, "alpha: 1.053, beta: 5.072, slo: 25");
    let scenario = scenario(&text, &["policy=auto", "prefer=idle_workers"]).at_rate(6000.0);
    let length = albacore_batching::Nanos(2_400_000_000_000);
    for share in [0.25, 0.4, 0.55, 0.62, 0.78] {
        let day = albacore_simulator::steady_by_factor(&scenario, share, length).unwrap();
        let mut sizes: Vec<_> = day.intervals.iter().map(|i| i.workers).collect();
        sizes.dedup();
        println!("{share}: {sizes:?}, {:.3} % bad", day.bad_rate() * 100.0);
        let has_grown = sizes.windows(2).any(|pair| pair[1] > pair[0]);
        assert!(!has_grown && sizes.len() > 1, "{share}: {sizes:?}");
        assert!(day.bad_rate() < 0.005, "{share}: {}", day.bad_rate());
    }
}

/// Sets: scenario, keys, and the best goodput of any policy and drop rule on it.
fn sets() -> Vec<(String, Vec<&'static str>, f64)> {
    let bursts = vec!["arrivals.process=gamma", "arrivals.shape=0.05"];
    let zipf = vec!["arrivals.popularity=zipf", "arrivals.exponent=0.9"];
    let fig6a = |beta| {
        copies(
            32,
            10,
            &format!("alpha: 1, beta: {beta}, slo: {}", 2 * (8 + beta)),
        )
    };
    let zoo = |file| format!("workers: 64\nprofiles: {file}.csv");
    let twenty = |slo| copies(32, 20, &format!("alpha: 1.053, beta: 5.072, slo: {slo}"));
    vec![
        (resnet(), vec![], 5332.0),
        (inception(), vec![], 951.0),
        (fig6a(1), vec![], 29_455.0),
        (fig6a(7), vec![], 21_443.0),
        (fig6a(15), vec![], 17_669.0),
        (flat(), vec![], 21_085.0),
        (zoo("a100"), vec![], 18_211.0),
        (zoo("a100"), zipf.clone(), 43_104.0),
        (zoo("1080ti"), vec![], 7621.0),
        (zoo("1080ti"), zipf, 15_289.0),
        (twenty(15), bursts.clone(), 11_831.0),
        (twenty(25), bursts.clone(), 18_578.0),
        (twenty(100), bursts, 27_296.0),
    ]
}

/// Keys of `auto` with this preference.
fn auto(prefer: &'static str) -> [&'static str; 3] {
    ["policy=auto", prefer, "drop.target=auto"]
}

const IDLE_WORKERS: &str = "prefer=idle_workers";
const SHORT_WAITS: &str = "prefer=short_waits";

fn assert_auto_has_goodput(prefer: &'static str, share: f64) {
    for (text, mut keys, best) in sets() {
        keys.extend(auto(prefer));
        keys.push("requests=1500000");
        let scenario = scenario(&text, &keys);
        assert!(
            is_good_at(&scenario, best * share, &mut |_| ()),
            "{keys:?}: below {best}"
        );
    }
}

#[test]
fn auto_that_prefers_idle_workers_has_the_goodput_of_the_best_rule_on_every_set() {
    assert_auto_has_goodput(IDLE_WORKERS, 0.99);
}

#[test]
fn auto_that_prefers_short_waits_has_the_goodput_of_the_best_rule_on_every_set() {
    assert_auto_has_goodput(SHORT_WAITS, 0.985);
}

#[test]
fn auto_that_prefers_short_waits_answers_as_soon_as_eager_does_at_low_loads() {
    for (text, keys, best) in sets() {
        for share in [0.1, 0.3] {
            let keys = |more: &[&'static str]| [&keys[..], more].concat();
            let auto = at(&text, &keys(&auto(SHORT_WAITS)), best * share);
            let eager = keys(&["policy=eager", "drop.target=half"]);
            let eager = at(&text, &eager, best * share);
            let (p50, other) = (auto.queue_p50.0 as f64, eager.queue_p50.0 as f64);
            assert!(p50 <= 1.1 * other, "{share} of {best}: {eager:?} {auto:?}");
            assert!(auto.bad_rate < 0.01, "{share} of {best}: {auto:?}");
        }
    }
}

#[test]
fn auto_that_prefers_idle_workers_has_as_many_as_deferred_below_the_peak() {
    for (text, keys, best) in sets().into_iter().filter(|(_, keys, _)| keys.is_empty()) {
        for share in [0.2, 0.5, 0.8] {
            let auto = at(&text, &auto(IDLE_WORKERS), best * share);
            let deferred = at(&text, &keys, best * share);
            let less = deferred.idle_share - auto.idle_share;
            assert!(less < 0.03, "{share} of {best}: {deferred:?} {auto:?}");
        }
    }
}

/// Figures of closed-loop clients under a policy: the small model has an objective far above the
/// time of a batch.
fn closed(clients: u32, policy: &str, drop: &str) -> Figures {
    let small = copies(2, 1, "alpha: 0.01, beta: 0.4, slo: 25");
    let folder = |_: &str| Err("none".to_owned());
    let text = format!("{small}\narrivals: {{process: closed, clients: {clients}, think: 0.2}}");
    let sets = [
        format!("policy={policy}"),
        format!("drop.target={drop}"),
        format!("requests={}", 10_000 * clients.max(20)),
    ];
    run(&Scenario::read(&text, &sets, &folder).unwrap())
}

#[test]
fn auto_serves_closed_loop_clients_as_fast_and_as_many_as_eager_does() {
    for clients in [1, 2, 8, 32, 200] {
        let eager = closed(clients, "eager", "half");
        let auto = closed(clients, "auto", "auto");
        let (p50, other) = (auto.queue_p50.0 as f64, eager.queue_p50.0 as f64);
        assert!(p50 <= 1.05 * other, "{clients}: {p50} beside {other} ns");
        let rates = (auto.good_per_second, eager.good_per_second);
        assert!(rates.0 > 0.9 * rates.1, "{clients}: {rates:?}");
    }
    let deferred = closed(8, "deferred", "own");
    assert!(deferred.queue_p50.0 > 20_000_000, "{deferred:?}");
}
