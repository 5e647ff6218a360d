//! The rule by examples, and its invariants over random histories.

use proptest::prelude::*;

use super::*;

const DELAY: Nanos = Nanos(120_000_000_000);

fn at(seconds: u64) -> Nanos {
    Nanos(seconds * 1_000_000_000)
}

fn load(ready: u32, serving: u32, work: f64) -> Consolidation {
    Consolidation {
        ready,
        serving,
        least: 1,
        work,
        factor: 0.5,
    }
}

/// The numbers of serving pods over time under constant work, evaluated every 10 s.
fn history(rule: &mut Consolidator, begin: u64, ready: u32, from: u32, work: f64) -> Vec<u32> {
    let mut serving = from;
    let advise = |second| {
        let advice = rule.advise(at(second), DELAY, &load(ready, serving, work));
        serving = advice.serving;
        serving
    };
    let mut sizes: Vec<u32> = (begin..begin + 3000).step_by(10).map(advise).collect();
    sizes.dedup();
    sizes
}

#[test]
fn pods_are_taken_out_step_by_step_until_the_rest_is_utilized() {
    for (ready, work, sizes) in [
        (3, 0.3, vec![3, 2, 1]),
        (3, 0.7, vec![3, 2]),
        (3, 1.3, vec![3]),
        (2, 0.0, vec![2, 1]),
        (1, 0.0, vec![1]),
        (20, 2.0, vec![20, 15, 12, 9, 7, 6, 5, 4]),
    ] {
        let found = history(&mut Consolidator::default(), 0, ready, ready, work);
        assert_eq!(found, sizes, "{ready} pods, {work}");
    }
}

#[test]
fn a_step_waits_for_the_whole_delay_after_the_last_one_and_after_each_break() {
    let mut rule = Consolidator::default();
    let mut advise = |second, serving, work| {
        let advice = rule.advise(at(second), DELAY, &load(3, serving, work));
        (advice.serving, advice.cause)
    };
    assert_eq!(advise(0, 3, 0.3), (3, ServingCause::Measuring));
    assert_eq!(advise(119, 3, 0.3), (3, ServingCause::Measuring));
    assert_eq!(advise(120, 3, 0.3), (2, ServingCause::Idle));
    assert_eq!(advise(130, 2, 0.3), (2, ServingCause::Measuring));
    assert_eq!(advise(240, 2, 0.7), (2, ServingCause::Steady));
    assert_eq!(advise(250, 2, 0.3), (2, ServingCause::Measuring));
    assert_eq!(advise(369, 2, 0.3), (2, ServingCause::Measuring));
    assert_eq!(advise(370, 2, 0.3), (1, ServingCause::Idle));
}

#[test]
fn more_load_brings_pods_back_at_once_and_bad_requests_all_of_them() {
    let mut rule = Consolidator::default();
    let of = load(6, 2, 1.6);
    assert_eq!(rule.advise(at(0), DELAY, &of).serving, 2);
    let of = load(6, 2, 1.7);
    let busy = ServingAdvice {
        serving: 3,
        cause: ServingCause::Busy,
    };
    assert_eq!(rule.advise(at(1), DELAY, &of), busy);
    for factor in [FACTOR_MISSED, 4.0, f64::NAN] {
        let of = Consolidation { factor, ..of };
        let bad = ServingAdvice {
            serving: 6,
            cause: ServingCause::BadRate,
        };
        assert_eq!(rule.advise(at(2), DELAY, &of), bad);
    }
}

#[test]
fn a_few_bad_requests_take_no_pod_out_and_bring_none_back() {
    let mut rule = Consolidator::default();
    let of = Consolidation {
        factor: 1.004,
        ..load(4, 3, 0.3)
    };
    for second in (0..1000).step_by(10) {
        let steady = ServingAdvice {
            serving: 3,
            cause: ServingCause::Steady,
        };
        assert_eq!(rule.advise(at(second), DELAY, &of), steady);
    }
}

#[test]
fn a_utilization_with_bad_requests_is_avoided_for_an_hour() {
    let mut rule = Consolidator::default();
    assert_eq!(history(&mut rule, 0, 4, 4, 0.5), [4, 3, 2, 1]);
    let burst = Consolidation {
        factor: 2.0,
        ..load(4, 1, 0.5)
    };
    assert_eq!(rule.advise(at(3000), DELAY, &burst).serving, 4);
    // 0.5 of a pod's time was too much, so 0.45 is the limit.
    assert_eq!(history(&mut rule, 3010, 4, 4, 0.5), [4, 3, 2]);
    assert_eq!(history(&mut rule, 6700, 4, 2, 0.5), [2, 1]);
}

#[test]
fn without_a_serving_pod_all_ready_pods_serve() {
    let mut rule = Consolidator::default();
    assert_eq!(rule.advise(at(0), DELAY, &load(3, 0, 0.0)).serving, 3);
    assert_eq!(rule.advise(at(0), DELAY, &load(0, 0, 0.0)).serving, 0);
}

proptest! {
    #[test]
    fn never_fewer_than_the_work_needs_and_never_a_step_within_the_delay(
        reports in prop::collection::vec((1_u64..60, 0_u32..9, 0.0..1.2_f64, 0.0..1.3_f64), 1..200),
        least in 0_u32..4,
    ) {
        let mut rule = Consolidator::default();
        let (mut now, mut serving, mut changed) = (0, 0_u32, 0);
        for (pause, ready, busy, factor) in reports {
            now += pause;
            serving = serving.min(ready);
            let work = busy * f64::from(ready);
            let of = Consolidation { ready, serving, least, work, factor };
            let advice = rule.advise(at(now), DELAY, &of);
            prop_assert!(advice.serving <= ready);
            prop_assert!(advice.serving >= ready.min(1));
            if advice.serving < serving {
                prop_assert!(work / f64::from(advice.serving) <= BUSY_TARGET + 1e-6);
                prop_assert!(factor < 1.0);
                prop_assert!(advice.serving >= least);
                prop_assert!(now - changed >= 120, "{} after {}", now, changed);
                prop_assert!(serving - advice.serving <= (serving / 4).max(1));
            }
            if factor >= FACTOR_MISSED {
                prop_assert_eq!(advice.serving, ready);
            }
            if advice.serving != serving {
                changed = now;
            }
            serving = advice.serving;
        }
    }

    #[test]
    fn a_constant_load_converges_to_a_constant_number(
        ready in 1_u32..40, busy in 0.0..1.0_f64, from in 1_u32..40,
    ) {
        let sizes = history(
            &mut Consolidator::default(), 0, ready, from.min(ready), busy * f64::from(ready),
        );
        let falls = sizes.windows(2).filter(|pair| pair[1] < pair[0]).count();
        let rises = sizes.windows(2).filter(|pair| pair[1] > pair[0]).count();
        prop_assert!(falls == 0 || rises == 0, "{:?}", sizes);
    }
}
