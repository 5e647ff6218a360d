//! The closed forms compared with the paper's figures and with a search.

use super::*;

fn model(alpha_ms: f64, beta_ms: f64, objective_ms: u64, workers: usize) -> QueueingModel {
    let cost = Cost::new(alpha_ms * 1e6, beta_ms * 1e6);
    QueueingModel {
        cost,
        mean_cost: cost,
        objective: Nanos(objective_ms * 1_000_000),
        workers,
        rows_max: u64::MAX,
        window: None,
        rate: 1000.0,
        rows_per_request: 1.0,
        front: None,
    }
}

#[test]
fn table_2_of_the_paper_is_reproduced() {
    let resnet = Forecast::of(&model(1.053, 5.072, 25, 8));
    assert_eq!((resnet.deferred_rows, resnet.eager_rows), (16, 7));
    assert_eq!(resnet.deferred_goodput.round(), 5839.0);
    assert_eq!(resnet.eager_goodput.round(), 4501.0);
    let inception = Forecast::of(&model(5.090, 18.368, 70, 8));
    assert_eq!((inception.deferred_rows, inception.eager_rows), (8, 3));
    assert_eq!(inception.deferred_goodput.round(), 1083.0);
    assert_eq!(inception.eager_goodput.round(), 713.0);
}

#[test]
fn one_worker_gains_nothing_and_neither_does_a_front_end_at_its_limit() {
    assert_eq!(
        Forecast::of(&model(1.053, 5.072, 25, 1)).goodput_gain(),
        0.0
    );
    let front = Some(FrontCost {
        per_request: Nanos(500_000),
        threads: 2,
    });
    let limited = QueueingModel {
        front,
        ..model(1.053, 5.072, 25, 8)
    };
    let limited = Forecast::of(&limited);
    assert_eq!(limited.eager_goodput, 4000.0);
    assert_eq!(limited.goodput_gain(), 0.0);
    assert!(limited.is_front_limit);
}

#[test]
fn a_margin_makes_batches_smaller_and_not_workers_slower() {
    let sure = model(1.053, 5.072, 25, 8);
    let with_margin = QueueingModel {
        cost: Cost::new(1.2 * 1.053e6, 1.2 * 5.072e6),
        ..sure
    };
    let forecast = Forecast::of(&with_margin);
    assert_eq!((forecast.deferred_rows, forecast.eager_rows), (12, 5));
    let batch = 5.0 * 1.053e-3 + 5.072e-3;
    assert!((forecast.eager_goodput - 8.0 * 5.0 / batch).abs() < 1e-6);
}

#[test]
fn the_batches_are_the_largest_that_meet_the_equations() {
    for (alpha, beta, objective, workers) in [
        (1.053, 5.072, 25, 8),
        (0.054, 10.546, 21, 64),
        (7.353, 0.222, 59, 3),
        (0.3, 0.0, 40, 2),
    ] {
        let model = model(alpha, beta, objective, workers);
        let forecast = Forecast::of(&model);
        let l = |rows: u64| alpha * rows as f64 + beta;
        let largest = |factor: f64| {
            let fits = |&rows: &u64| l(rows) * factor <= objective as f64 + 1e-9;
            (1..2000).filter(fits).max().unwrap_or(1)
        };
        let staggered = 1.0 + 1.0 / workers as f64;
        assert_eq!(forecast.deferred_rows, largest(staggered), "{model:?}");
        assert_eq!(forecast.eager_rows, largest(2.0), "{model:?}");
        assert!(forecast.goodput_gain() >= 0.0);
    }
}

#[test]
fn a_rare_request_waits_for_its_objective_and_frees_nothing() {
    let rare = QueueingModel {
        rate: 1.0,
        ..model(1.0, 5.0, 100, 4)
    };
    let forecast = Forecast::of(&rare);
    assert_eq!(forecast.gathered_rows, 1);
    assert_eq!(forecast.p50_cost, Nanos(94_000_000));
    assert_eq!(forecast.idle_workers_gain, 0.0);
    // Of 4 workers 0.5 * (6 - 1.2) become idle: batches of 1 take 6 ms per row, of 25 1.2 ms.
    let often = QueueingModel {
        rate: 350.0,
        ..rare
    };
    let forecast = Forecast::of(&often);
    assert_eq!(forecast.gathered_rows, 24);
    assert!((forecast.idle_workers_gain - (2.1 - 0.35 * 29.0 / 24.0)).abs() < 1e-3);
}

#[test]
fn a_window_bounds_what_deferring_gathers_and_never_below_eager_batches() {
    let within = |millis: u64| {
        Forecast::of(&QueueingModel {
            window: Some(Nanos(millis * 1_000_000)),
            ..model(1.053, 5.072, 25, 8)
        })
    };
    let free = Forecast::of(&model(1.053, 5.072, 25, 8));
    assert_eq!(within(25), free, "a longer window bounds nothing");
    // At 1,000 rows per second 4 arrive within 4 ms; l(b) <= 8 x 4 ms holds for all 16.
    let short = within(4);
    assert_eq!((short.gathered_rows, short.deferred_rows), (4, 16));
    assert!(short.p50_cost < free.p50_cost && short.idle_workers_gain < free.idle_workers_gain);
    // l(b) <= 8 x 1 ms holds for 2, but batches of 7 still form while all workers are busy.
    let least = within(1);
    assert_eq!((least.gathered_rows, least.deferred_rows), (1, 7));
    assert_eq!(least.goodput_gain(), 0.0);
}

#[test]
fn requests_may_be_larger_than_half_of_an_objective_allows() {
    for rows_per_request in [9.999_999_999_999_998, 10.000_000_000_000_036, 400.5] {
        for rate in [1.0, 1000.0, 1e6] {
            let model = QueueingModel {
                rows_per_request,
                rate,
                ..model(1.053, 1.0, 25, 2)
            };
            let forecast = Forecast::of(&model);
            assert!(forecast.eager_goodput.is_finite(), "{forecast:?}");
        }
    }
}
