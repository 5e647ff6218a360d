//! The rule by examples, and its invariants over random histories.

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn at(seconds: u64) -> Nanos {
    Nanos(seconds * SECOND)
}

fn load(pods: u32, bad_rate: f64, idle_share: f64) -> Load {
    Load {
        pods,
        requests: 1_000_000,
        bad: (bad_rate * 1e6) as u64,
        recent_requests: 0,
        recent_bad: 0,
        idle_share,
        bad_rate_allowed: 0.01,
    }
}

#[test]
fn a_few_bad_requests_of_thousands_do_not_keep_idle_pods() {
    assert!((load_factor(&load(10, 0.001, 0.84)) - 0.2).abs() < 1e-9);
    let above = load_factor(&load(10, 0.0021, 0.84));
    assert!((above - 1.0 / 0.9979).abs() < 1e-9, "the objective is kept");
    let strict = Load {
        bad_rate_allowed: 0.001,
        ..load(10, 0.001, 0.84)
    };
    assert!(load_factor(&strict) > 1.1, "its objective allows fewer");

    let mut autoscaler = Autoscaler::default();
    let minutes = |n: u64| Nanos(n * 60_000_000_000);
    let sizes = (0..10).map(|n| autoscaler.advise(minutes(n), &BOUNDS, 10, &load(10, 0.001, 0.8)));
    let last = sizes.last().unwrap();
    assert_eq!((last.replicas, last.cause), (3, Cause::Idle));
}

#[test]
fn the_factor_leaves_idle_what_few_workers_need() {
    let factor = |idle_share| load_factor(&load(10, 0.0, idle_share));
    assert_eq!(
        (factor(0.0), factor(SPARE_OF_FEW), factor(1.0)),
        (1.0, 1.0, 0.0)
    );
    assert!((factor(0.6) - 0.5).abs() < 1e-9);
}

const BOUNDS: ReplicaBounds = ReplicaBounds { min: 1, max: 100 };

#[test]
fn a_first_advice_follows_the_rule() {
    for (pods, bad_rate, idle, replicas, cause) in [
        (4, 0.5, 0.0, 8, Cause::BadRate),
        (10, 0.2, 0.0, 13, Cause::BadRate),
        (10, 0.95, 0.0, 20, Cause::BadRate), // ten times as many, but a step doubles at most
        (1, 0.9, 0.0, 5, Cause::BadRate),    // or adds four
        (10, 0.02, 0.0, 12, Cause::BadRate), // beyond the objective: outside the dead band
        (10, 0.006, 0.5, 12, Cause::BadRate), // and near it
        (10, 0.004, 0.5, 10, Cause::Steady),
        (10, 0.0, 0.09, 10, Cause::Steady),
        (10, 0.0, 0.5, 10, Cause::Stabilizing),
        (90, 0.5, 0.0, 100, Cause::BadRate),
        (100, 0.5, 0.0, 100, Cause::Steady),
    ] {
        let found = Autoscaler::default().advise(at(0), &BOUNDS, pods, &load(pods, bad_rate, idle));
        assert_eq!(
            found,
            Advice { replicas, cause },
            "{pods} {bad_rate} {idle}"
        );
    }
}

#[test]
fn one_overload_is_answered_once_a_window() {
    let mut rule = Autoscaler::default();
    let mut size = 4;
    let mut grown = Vec::new();
    for second in (0..130).step_by(10) {
        let advice = rule.advise(at(second), &BOUNDS, size, &load(4, 0.4, 0.0));
        if advice.replicas > size {
            grown.push((second, advice.replicas));
        }
        size = advice.replicas;
    }
    // Four pods report all the time: the pods that they require exist after the first step.
    assert_eq!(grown, [(0, 7)]);
    let advice = rule.advise(at(140), &BOUNDS, 7, &load(7, 0.4, 0.0));
    assert_eq!(
        (advice.replicas, advice.cause),
        (7, Cause::Growing),
        "the window is older than they"
    );
    let advice = rule.advise(at(200), &BOUNDS, 7, &load(7, 0.4, 0.0));
    assert_eq!((advice.replicas, advice.cause), (12, Cause::BadRate));
    let advice = rule.advise(at(210), &BOUNDS, 12, &load(7, 0.9, 0.0));
    assert_eq!((advice.replicas, advice.cause), (12, Cause::Growing));
}

#[test]
fn a_surge_is_judged_by_the_newest_part_of_the_window() {
    let rush = |pods, bad| Load {
        recent_requests: 10_000,
        recent_bad: bad,
        ..load(pods, 0.1, 0.0)
    };
    let mut rule = Autoscaler::default();
    let mut advise = |second, size, load: Load| {
        let advice = rule.advise(at(second), &BOUNDS, size, &load);
        (advice.replicas, advice.cause)
    };
    assert_eq!(advise(0, 6, rush(6, 0)), (6, Cause::Steady));
    assert_eq!(advise(10, 6, rush(6, 5000)), (12, Cause::BadRate));
    // While the new pods start, six still report: the pods that they require are not requested
    // twice.
    assert_eq!(advise(20, 12, rush(6, 5000)), (14, Cause::BadRate));
    assert_eq!(advise(25, 14, rush(6, 5000)), (14, Cause::Steady));
    assert_eq!(advise(30, 14, rush(6, 6000)), (17, Cause::BadRate));
    // They are there; the bad requests are from before.
    assert_eq!(advise(40, 17, rush(17, 3000)), (17, Cause::Growing));
    assert_eq!(advise(60, 17, rush(17, 3000)), (17, Cause::Growing));
    assert_eq!(advise(70, 17, rush(17, 0)), (17, Cause::Steady));
    // A pod that did not report once is not a new pod.
    assert_eq!(advise(80, 17, rush(16, 0)), (17, Cause::Steady));
    assert_eq!(advise(90, 17, rush(17, 3000)), (27, Cause::BadRate));
}

#[test]
fn idle_time_at_which_requests_were_bad_becomes_required_spare_time() {
    let small = |pods, bad_rate, idle| Load {
        recent_requests: 10_000,
        recent_bad: (bad_rate * 1e4) as u64,
        ..load(pods, bad_rate, idle)
    };
    let shrunk = |first: Load| {
        let mut rule = Autoscaler::default();
        rule.advise(at(0), &BOUNDS, 10, &first);
        let last = (10..=400).step_by(10).map(|second| {
            let advice = rule.advise(at(second), &BOUNDS, 10, &small(10, 0.0, 0.5));
            advice.replicas
        });
        last.last()
    };
    assert_eq!(shrunk(small(10, 0.0, 0.2)), Some(6));
    assert_eq!(shrunk(small(10, 0.006, 0.2)), Some(7), "0.23 stay idle");
    assert_eq!(
        shrunk(small(10, 0.006, 0.5)),
        Some(6),
        "it was not the load"
    );
    let mut rule = Autoscaler::default();
    let mut advise = |second, load| rule.advise(at(second), &BOUNDS, 10, &load).cause;
    assert_eq!(advise(0, small(10, 0.003, 0.2)), Cause::Steady);
    assert_eq!(advise(10, small(10, 0.006, 0.2)), Cause::BadRate);
    assert_eq!(advise(100, small(10, 0.003, 0.2)), Cause::BadRate);
    assert_eq!(advise(200, small(10, 0.003, 0.4)), Cause::Steady);
}

#[test]
fn pods_are_removed_after_five_idle_minutes_down_to_their_maximum_need() {
    let mut rule = Autoscaler::default();
    for second in (0..300).step_by(10) {
        let idle = if second == 100 { 0.4 } else { 0.8 };
        let advice = rule.advise(at(second), &BOUNDS, 10, &load(10, 0.0, idle));
        assert_eq!((advice.replicas, advice.cause), (10, Cause::Stabilizing));
    }
    let advice = rule.advise(at(300), &BOUNDS, 10, &load(10, 0.0, 0.8));
    // Six would have no idle time at all.
    assert_eq!((advice.replicas, advice.cause), (7, Cause::Idle));
    let advice = rule.advise(at(310), &BOUNDS, 7, &load(7, 0.0, 0.67));
    assert_eq!((advice.replicas, advice.cause), (7, Cause::Stabilizing));
    let advice = rule.advise(at(410), &BOUNDS, 7, &load(7, 0.0, 0.67));
    assert_eq!((advice.replicas, advice.cause), (3, Cause::Idle));
}

#[test]
fn no_pod_is_removed_while_a_report_is_missing_or_malformed() {
    let mut rule = Autoscaler::default();
    for second in (0..1000).step_by(10) {
        let reported = if second % 20 == 0 { 9 } else { 0 };
        let advice = rule.advise(at(second), &BOUNDS, 10, &load(reported, 0.0, 0.9));
        assert_eq!(advice.replicas, 10);
        let mut broken = load(10, 0.0, f64::NAN);
        broken.requests = 0;
        let advice = rule.advise(at(second), &BOUNDS, 10, &broken);
        assert_eq!((advice.replicas, advice.cause), (10, Cause::Steady));
    }
}

#[test]
fn a_size_outside_its_bounds_is_clamped_at_once() {
    let bounds = ReplicaBounds { min: 2, max: 5 };
    for (current, replicas) in [(0, 2), (1, 2), (9, 5)] {
        let advice = Autoscaler::default().advise(at(0), &bounds, current, &load(0, 0.0, 0.0));
        assert_eq!((advice.replicas, advice.cause), (replicas, Cause::Bounds));
    }
}

fn any_load() -> impl Strategy<Value = Load> {
    let counts = (0..1000u64, 0..1200u64, 0..2000u64, 0..30u64);
    (0..50u32, counts, -0.5..1.5f64, 0.0..0.5f64).prop_map(
        |(pods, (requests, bad, recent_requests, recent_bad), idle_share, bad_rate_allowed)| Load {
            pods,
            requests,
            bad,
            recent_requests,
            recent_bad,
            idle_share,
            bad_rate_allowed,
        },
    )
}

proptest! {
    #[test]
    fn every_history_keeps_the_bounds_the_steps_and_the_pauses(
        min in 1..20u32,
        more in 0..50u32,
        history in prop::collection::vec((any_load(), 1..40u64), 1..200),
    ) {
        let bounds = ReplicaBounds { min, max: min + more };
        let (mut rule, mut now, mut size) = (Autoscaler::default(), 0, min);
        let (mut grown, mut last): (Option<u64>, Option<u32>) = (None, None);
        for (mut load, pause) in history {
            now += pause;
            load.pods = load.pods.min(size);
            let has_more = last.is_some() && load.pods > rule.max_pods.min(size);
            last = (load.pods > 0).then_some(load.pods).or(last);
            let advice = rule.advise(at(now), &bounds, size, &load);
            prop_assert!((bounds.min..=bounds.max).contains(&advice.replicas));
            prop_assert!(advice.replicas <= (2 * size).max(size + GROWTH_PODS_FREE));
            if advice.replicas > size {
                prop_assert!(load.bad > 0 || load.recent_bad > 0);
                let is_by_newest = load.is_recent_enough();
                let pause = grown.is_none_or(|then| at(now - then) >= GROWTH_PAUSE);
                prop_assert!(is_by_newest || pause);
                // Bad requests from before new pods were there do not cause another growth.
                prop_assert!(!has_more);
                grown = Some(now);
            }
            if advice.replicas < size {
                prop_assert!(load.pods == size && load.idle_share > DEAD_BAND);
                prop_assert!(at(now) >= SHRINK_DELAY);
            }
            prop_assert!(rule.sufficient.len() <= 61, "the memory is bounded");
            size = advice.replicas;
        }
    }

    #[test]
    fn more_bad_requests_never_need_fewer_pods(pods in 1..50u32, a in 0.0..1.0f64, b in 0.0..1.0f64) {
        let (less, more) = (a.min(b), a.max(b));
        let advise = |r| Autoscaler::default().advise(at(0), &BOUNDS, pods, &load(pods, r, 0.0));
        prop_assert!(advise(less).replicas <= advise(more).replicas);
    }

    #[test]
    fn the_factor_is_a_number_within_its_bounds(load in any_load()) {
        let factor = load_factor(&load);
        prop_assert!((0.0..=10.0 + 1e-9).contains(&factor), "{factor}");
    }
}
