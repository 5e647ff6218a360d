//! Lines that are found, and disturbances that do not affect them.

use super::*;

/// Numbers from 0 to 1.
struct Units(u64);

impl Units {
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn assert_line(learner: &CostLearner, alpha: f64, beta: f64, share: f64) {
    let estimate = learner.estimate().unwrap();
    for rows in [estimate.observed_rows.0, estimate.observed_rows.1] {
        let (is, found) = (alpha * rows as f64 + beta, estimate.line.of(rows).0 as f64);
        assert!(
            (found / is - 1.0).abs() < share,
            "{rows}: {found}, not {is}"
        );
    }
}

#[test]
fn an_exact_line_is_fitted_without_error() {
    let mut learner = CostLearner::new(0.95);
    for n in 0..400_u64 {
        let rows = 1 + n * 7 % 60;
        learner.observe(rows, Nanos(350 * rows + 9000));
    }
    assert_line(&learner, 350.0, 9000.0, 0.01);
    let estimate = learner.estimate().unwrap();
    assert!(
        estimate.error < 0.01 && estimate.margin < 1.02,
        "{estimate:?}"
    );
    assert_eq!(estimate.observed_rows, (1, 60));
}

#[test]
fn stalls_do_not_bend_the_line() {
    let (mut learner, mut units) = (CostLearner::new(0.9), Units(1));
    for _ in 0..4000 {
        let rows = 1 + (units.next() * 64.0) as u64;
        let noise = 0.95 + 0.1 * units.next();
        let stall = if units.next() < 0.03 { 30.0 } else { 1.0 };
        let time = (500.0 * rows as f64 + 20_000.0) * noise * stall;
        learner.observe(rows, Nanos(time as u64));
    }
    assert_line(&learner, 500.0, 20_000.0, 0.06);
}

#[test]
fn a_rare_size_counts_beside_a_frequent_one() {
    let (mut learner, mut units) = (CostLearner::new(0.9), Units(2));
    for n in 0..5000 {
        let rows = if n % 200 == 0 { 100 } else { 4 };
        let time = (1000.0 * rows as f64 + 50_000.0) * (0.9 + 0.2 * units.next());
        learner.observe(rows, Nanos(time as u64));
    }
    assert_line(&learner, 1000.0, 50_000.0, 0.06);
}

#[test]
fn the_margin_holds_for_the_share_it_is_chosen_for() {
    let (mut learner, mut units) = (CostLearner::new(0.95), Units(3));
    let (mut kept, mut all) = (0, 0);
    for n in 0..20_000_u64 {
        let rows = 1 + n % 30;
        let time = (800.0 * rows as f64 + 10_000.0) * (0.8 + 0.4 * units.next());
        if n > 2000 {
            all += 1;
            let safe = learner.estimate().unwrap().safe.of(rows).0;
            kept += u64::from(time <= safe as f64);
        }
        learner.observe(rows, Nanos(time as u64));
    }
    let share = kept as f64 / f64::from(all);
    assert!((share - 0.95).abs() < 0.02, "{share}");
}

#[test]
fn the_error_is_the_mean_distance_from_the_line_and_observed_sizes_are_recorded() {
    for noise in [0.02, 0.1, 0.3] {
        let (mut learner, mut units) = (CostLearner::new(0.9), Units(4));
        let (mut estimated, mut measured) = (0.0, 0.0);
        for n in 0..6000_u64 {
            let rows = 3 + n % 20;
            let time = (700.0 * rows as f64 + 9000.0) * (1.0 + noise * (2.0 * units.next() - 1.0));
            if n >= 2000 {
                let estimate = learner.estimate().unwrap();
                estimated += estimate.error;
                measured += (time / estimate.line.of(rows).0 as f64 - 1.0).abs();
            }
            learner.observe(rows, Nanos(time as u64));
        }
        let ratio = estimated / measured;
        assert!((ratio - 1.0).abs() < 0.05, "{noise}: {ratio}");
        // The mean distance of uniform noise is half of its maximum.
        assert!(
            (estimated / 4000.0 / (noise / 2.0) - 1.0).abs() < 0.1,
            "{noise}: {estimated}"
        );
        assert_eq!(learner.estimate().unwrap().observed_rows, (3, 22));
    }
}

#[test]
fn the_estimate_adapts_to_a_change_of_speed() {
    let mut learner = CostLearner::new(0.9);
    let mut run = |factor: u64| {
        for n in 0..1500_u64 {
            let rows = 1 + n % 16;
            learner.observe(rows, Nanos(factor * (1000 * rows + 8000)));
        }
        learner.clone()
    };
    assert_line(&run(1), 1000.0, 8000.0, 0.01);
    assert_line(&run(3), 3000.0, 24_000.0, 0.02);
    assert_line(&run(1), 1000.0, 8000.0, 0.02);
}

#[test]
fn one_size_alone_gives_a_line_through_the_origin() {
    let mut learner = CostLearner::new(0.9);
    assert!(learner.estimate().is_none());
    learner.observe(0, Nanos(5));
    assert!(learner.estimate().is_none());
    (0..50).for_each(|_| learner.observe(10, Nanos(5000)));
    assert_eq!(learner.estimate().unwrap().line, Cost::new(500.0, 0.0));
}

#[test]
fn classes_grow_with_the_sizes() {
    let classes: Vec<usize> = (1..100_000).map(class_of).collect();
    assert!(classes.windows(2).all(|pair| pair[0] <= pair[1]));
    assert_eq!(class_of(u64::MAX), CLASSES - 1);
}

#[test]
fn chance_in_small_batches_does_not_decide_what_large_ones_cost() {
    let mut costs: Vec<f64> = Vec::new();
    for seed in 1..=50 {
        let mut units = Units(seed);
        let mut learner = CostLearner::new(0.95);
        for n in 0..400_u64 {
            let rows = 1 + u64::from(n % 20 == 19);
            let noise = 0.7 + 0.6 * units.next();
            learner.observe(rows, Nanos(((1000 * rows + 2000) as f64 * noise) as u64));
        }
        let line = learner.prior_line().unwrap();
        costs.push(line.of(1000).0 as f64 / 1000.0);
    }
    let within = |cost: &f64| (500.0..2000.0).contains(cost);
    assert!(costs.iter().all(within), "{costs:?}");
}

#[test]
fn what_batches_of_all_sizes_say_outweighs_the_prior() {
    for (alpha, beta) in [(350, 9000), (1000, 0), (5, 4000)] {
        let mut learner = CostLearner::new(0.95);
        for n in 0..400_u64 {
            let rows = 1 + n * 7 % 60;
            learner.observe(rows, Nanos(alpha * rows + beta));
        }
        let line = learner.prior_line().unwrap();
        let (is, found) = ((alpha * 60 + beta) as f64, line.of(60).0 as f64);
        assert!(
            (found / is - 1.0).abs() < 0.1,
            "{alpha} {beta}: {found}, not {is}"
        );
    }
}

#[test]
fn large_batches_decide_where_they_cost_more_per_row() {
    // A tenth of a cpu: ten rows are done before the quota runs out, more are throttled.
    let mut learner = CostLearner::new(0.95);
    (0..100).for_each(|_| learner.observe(10, Nanos(1_000_000)));
    for rows in [60, 100, 130] {
        learner.observe(rows, Nanos(1_000_000 * rows));
    }
    let line = learner.estimate().unwrap().line;
    for rows in [60, 130] {
        let ratio = line.of(rows).0 as f64 / (1_000_000 * rows) as f64;
        assert!((0.85..1.1).contains(&ratio), "{rows}: {ratio}");
    }
}

#[test]
fn rare_large_batches_that_waited_for_a_cpu_do_not_decide() {
    let mut learner = CostLearner::new(0.95);
    for n in 0..2000_u64 {
        // Requests accumulate while the batch before them waits, and their batch waits as well.
        let rows = if n % 50 == 49 { 2 + n / 50 % 3 } else { 1 };
        learner.observe(rows, Nanos(50_000 * rows * rows));
    }
    let line = learner.estimate().unwrap().line;
    let ratio = line.of(1).0 as f64 / 50_000.0;
    assert!((0.95..1.6).contains(&ratio), "{ratio}");
}

#[test]
fn a_batch_that_is_fast_by_chance_does_not_bend_the_line() {
    let mut learner = CostLearner::new(0.95);
    for rows in [10, 20, 30, 60, 40] {
        learner.observe(rows, Nanos(1_000_000 * rows));
    }
    // The first of its class.
    learner.observe(50, Nanos(3_000_000));
    let line = learner.estimate().unwrap().line;
    let ratio = line.of(60).0 as f64 / 60_000_000.0;
    assert!((0.6..1.05).contains(&ratio), "{ratio}");
}

#[test]
fn of_the_first_times_of_a_size_the_median_counts() {
    for times in [
        vec![7, 1, 9],
        vec![50, 7, 6],
        vec![9, 7],
        vec![1, 7, 7, 90, 8],
    ] {
        let mut learner = CostLearner::new(0.95);
        times
            .iter()
            .for_each(|&time| learner.observe(1, Nanos(time * 1000)));
        let line = learner.estimate().unwrap().line;
        assert_eq!(line.of(1).0, 7000, "{times:?}");
    }
}
