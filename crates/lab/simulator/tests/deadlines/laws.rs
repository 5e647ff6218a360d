//! Invariants of every trace, under all rules.

use std::collections::BTreeMap;

use albacore_batching::Nanos;
use albacore_batching::RequestKey;
use albacore_batching::deadlines::{
    Cost, DeadlineRequest, Delays, QueueParams, Release, RequestQueue,
};
use albacore_simulator::{DropRule, Target};
use proptest::prelude::*;

use crate::driver::{Driver, Input};
use crate::oracle::Done;

fn releases() -> impl Strategy<Value = Release> {
    prop_oneof![
        Just(Release::Eager),
        (0_u64..5_000_000, prop::option::of(0_u64..5_000_000)).prop_map(|(early, window)| {
            Release::Deferred {
                early: Nanos(early),
                window: window.map(Nanos),
            }
        }),
        (0_u64..5_000_000).prop_map(|delay| Release::Timeout {
            delay: Nanos(delay)
        }),
    ]
}

fn drop_rules() -> impl Strategy<Value = DropRule> {
    let window = |target| DropRule::Window { target };
    prop_oneof![
        Just(DropRule::Head),
        Just(window(Target::Own)),
        Just(window(Target::Half)),
        (1_u64..30).prop_map(move |rows| window(Target::Rows(rows))),
    ]
}

prop_compose! {
    fn rules()(
        alpha in 1_000_f64..3e6,
        beta in 0_f64..8e6,
        objective in 1_000_000_u64..60_000_000,
        release in releases(),
        drop in drop_rules(),
        rate in 0_f64..5_000.0,
        rows_max in prop_oneof![Just(u64::MAX), 1_u64..40],
        requests_max in prop_oneof![Just(usize::MAX), 1_usize..20],
    ) -> QueueParams {
        let (cost, objective) = (Cost::new(alpha, beta), Nanos(objective));
        let target_rows = drop.target_rows(&cost, objective, rate);
        QueueParams { cost, objective, release, target_rows, rows_max, requests_max }
    }
}

proptest! {
    #[test]
    fn a_batch_starts_in_its_window_and_requests_keep_their_order(
        rules in prop::collection::vec(rules(), 1..5),
        workers in 1_usize..6,
        control in 0_u64..300_000,
        data in 0_u64..50_000,
        gaps in prop::collection::vec((0_u64..3_000_000, 0_usize..5, 1_u32..4), 1..120),
    ) {
        let delays = Delays { control: Nanos(control), data: Nanos(data) };
        let mut driver = Driver::new(&rules, workers, delays);
        let (mut now, mut arrived) = (0, BTreeMap::new());
        for (key, &(gap, queue, rows)) in gaps.iter().enumerate() {
            let (key, queue) = (key as u64, queue % rules.len());
            now += gap;
            arrived.insert(key, (queue, now, rows));
            driver.run_until(Nanos(now));
            driver.take(&Input::Arrival { queue, key, rows }, Nanos(now));
        }
        driver.run_until(Nanos::MAX);
        let (mut last, mut seen) = (vec![None; rules.len()], Vec::new());
        let mut free = vec![0_i128; workers];
        for done in &driver.done {
            if let Done::Drop { key, queue, .. } = done {
                prop_assert_eq!(arrived[key].0, *queue);
                seen.push(*key);
            }
            let Done::Batch { start, end, worker, queue, keys, at } = done else { continue };
            let (cost, objective) = (&rules[*queue].cost, rules[*queue].objective);
            let rows: u64 = keys.iter().map(|key| u64::from(arrived[key].2)).sum();
            let first = arrived[&keys[0]].1;
            let deadline = i128::from(first + objective.0);
            let latest = deadline - i128::from(cost.of(rows).0);
            prop_assert!(*start <= latest, "late: {done:?}, latest {latest}");
            prop_assert_eq!(*end, *start + i128::from(cost.of(rows).0));
            prop_assert!(*start >= *at + i128::from(delays.of(rows).0), "before it can arrive");
            prop_assert!(free[*worker] <= *start, "the worker is busy");
            free[*worker] = *end;
            let bounds = &rules[*queue];
            let is_bounded = bounds.rows_max < u64::MAX || bounds.requests_max < usize::MAX;
            prop_assert!(keys.len() <= bounds.requests_max);
            if let (Release::Timeout { delay }, false) = (bounds.release, is_bounded) {
                prop_assert!(*start >= i128::from(first + delay.0), "before its time");
            }
            for key in keys {
                prop_assert!(last[*queue].is_none_or(|last| last < *key), "order");
                last[*queue] = Some(*key);
                seen.push(*key);
            }
        }
        seen.sort_unstable();
        prop_assert_eq!(seen, arrived.keys().copied().collect::<Vec<_>>());
    }

    #[test]
    fn windows_are_not_inverted_and_open_at_frontrun(
        rules in rules(),
        early in 0_u64..5_000_000,
        gaps in prop::collection::vec((0_u64..2_000_000, 1_u32..4), 1..60),
        wait in 0_u64..20_000_000,
    ) {
        let release = Release::Deferred { early: Nanos(early), window: None };
        let rules = QueueParams { release, ..rules };
        let mut part = RequestQueue::new(rules, Delays::default());
        let (mut now, mut dropped) = (0, Vec::new());
        for (key, &(gap, rows)) in gaps.iter().enumerate() {
            now += gap;
            let (key, arrival) = (RequestKey(key as u64), Nanos(now));
            let request = DeadlineRequest { key, arrival, rows };
            part.push(request);
            if let Some(candidate) = part.candidate(Nanos(now), &mut dropped) {
                prop_assert!(candidate.exec.0 >= now && candidate.exec <= candidate.latest);
                prop_assert!(candidate.wakes.0 >= now);
            }
        }
        if let Some(candidate) = part.candidate(Nanos(now + wait), &mut dropped) {
            let latest = candidate.latest.0;
            let frontrun = (latest + rules.cost.of(candidate.rows).0)
                .saturating_sub(rules.cost.of(candidate.rows + 1).0 + early);
            let opens = candidate.exec.0;
            prop_assert!(opens == (now + wait) || opens == frontrun, "{candidate:?}");
        }
        prop_assert_eq!(part.len() + dropped.len(), gaps.len());
    }
}
