//! Lines that are found, forgotten, and never out of bounds.

use proptest::prelude::*;

use super::*;

fn learned(samples: impl IntoIterator<Item = (usize, f64)>) -> LatencyLine {
    let mut model = LatencyModel::default();
    for (rows, took) in samples {
        model.observe(rows, Nanos(took as u64));
    }
    model.line().unwrap()
}

fn is_near(value: f64, wanted: f64, within: f64) -> bool {
    (value - wanted).abs() <= within * wanted.abs().max(1.0)
}

#[test]
fn nothing_is_known_before_the_first_batch() {
    assert_eq!(LatencyModel::default().line(), None);
}

#[test]
fn one_size_is_a_line_through_the_origin_until_there_are_two() {
    let line = learned([(10, 5000.0); 3]);
    assert!(is_near(line.alpha, 500.0, 1e-9) && line.beta.abs() < 1e-6);
    let line = learned([(10, 5000.0), (10, 5000.0), (20, 6000.0)]);
    assert!(is_near(line.alpha, 100.0, 1e-6) && is_near(line.beta, 4000.0, 1e-6));
}

#[test]
fn a_slope_outlives_a_time_of_equal_sizes_and_the_level_follows() {
    let both = (0..600).map(|at| (1 + at % 50, 1000.0 + 100.0 * (1 + at % 50) as f64));
    let equal = std::iter::repeat_n((7, 1700.0), 20_000);
    let dearer = std::iter::repeat_n((7, 2700.0), 5_000);
    let line = learned(both.chain(equal).chain(dearer));
    assert!(is_near(line.alpha, 100.0, 0.01), "{line:?}");
    assert!(is_near(line.beta, 2000.0, 0.01), "{line:?}");
}

#[test]
fn a_change_is_learned() {
    let before = (0..5000).map(|at| (1 + at % 64, 1000.0 + 50.0 * (1 + at % 64) as f64));
    let after = (0..2000).map(|at| (1 + at % 64, 3000.0 + 200.0 * (1 + at % 64) as f64));
    let line = learned(before.chain(after));
    assert!(
        is_near(line.alpha, 200.0, 0.02) && is_near(line.beta, 3000.0, 0.05),
        "{line:?}"
    );
    assert!(line.deviation < 300.0, "{line:?}");
}

#[test]
fn a_falling_cloud_is_flat_and_a_line_below_the_origin_goes_through_it() {
    let line = learned((1..100).map(|b| (b, 10_000.0 - 50.0 * b as f64)));
    assert_eq!(line.alpha, 0.0);
    let line = learned((50..100).map(|b| (b, 100.0 * b as f64 - 4000.0)));
    assert_eq!(line.beta, 0.0);
    assert!(line.alpha > 0.0);
}

proptest! {
    #[test]
    fn an_exact_line_is_found_from_any_sizes(
        alpha in 1_u32..100_000,
        beta in 0_u32..10_000_000,
        sizes in proptest::collection::vec(1_usize..4096, 8..600),
    ) {
        let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
        prop_assume!(most - least > most / 4);
        let (alpha, beta) = (f64::from(alpha), f64::from(beta));
        // The ends stay in memory, so that sizes differ at every time.
        let ends = sizes.iter().flat_map(|&b| [b, *least, *most]);
        let line = learned(ends.map(|b| (b, alpha * b as f64 + beta)));
        prop_assert!(is_near(line.alpha, alpha, 1e-3), "{:?}", line);
        let wanted = alpha * 1000.0 + beta;
        prop_assert!(is_near(line.predict(1000).0 as f64, wanted, 1e-3), "{:?}", line);
        prop_assert!(line.deviation <= 1e-3 * wanted.max(1e3) , "{:?}", line);
    }

    #[test]
    fn whatever_comes_no_coefficient_is_negative_or_no_number(
        samples in proptest::collection::vec((0_usize..1 << 24, any::<u64>()), 1..300)
    ) {
        let mut model = LatencyModel::default();
        for (rows, took) in samples {
            model.observe(rows, Nanos(took));
            let line = model.line().unwrap();
            for value in [line.alpha, line.beta, line.deviation] {
                prop_assert!(value >= 0.0 && value.is_finite(), "{:?}", line);
            }
        }
    }

    #[test]
    fn noise_averages_out(seed in any::<u32>()) {
        let mut state = u64::from(seed) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let line = learned((0..3000).map(|_| {
            let b = 1 + (next() % 256) as usize;
            let noise = (next() % 2001) as f64 - 1000.0;
            (b, 20_000.0 + 150.0 * b as f64 + noise)
        }));
        prop_assert!(is_near(line.alpha, 150.0, 0.05), "{:?}", line);
        prop_assert!(is_near(line.beta, 20_000.0, 0.05), "{:?}", line);
        prop_assert!((400.0..800.0).contains(&line.deviation), "{:?}", line);
    }
}
