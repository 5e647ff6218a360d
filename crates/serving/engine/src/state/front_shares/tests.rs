//! Shares of models and kinds, and the pace of errors.

use albacore_batching::{BatchingParams, Config};

use super::*;
use crate::front_cost::FrontCpu;
use crate::limits::{ERROR_RATE_WINDOW, ERROR_SHARE_MAX};

const COST: FrontCost = FrontCost {
    per_request: Nanos(20_000),
    threads: 2,
};

fn shares(weights: &[u32]) -> FrontShares {
    let mut shares = FrontShares::default();
    for (slot, &weight) in weights.iter().enumerate() {
        shares.start_slot(slot);
        shares.set_weight(slot, weight);
    }
    shares
}

/// The queue of a model's predictions.
const fn queue(slot: usize) -> QueueIndex {
    QueueIndex(slot * CLASSES)
}

#[test]
fn a_model_is_within_its_share_by_weight_and_alone_it_never_is() {
    let mut shares = shares(&[100, 300]);
    assert!(shares.may_be_within_share(0), "nothing is known");
    shares.record(queue(1), 30, 0, Nanos(0));
    assert!(!shares.is_within_share(queue(1)), "alone");
    assert!(shares.is_within_share(queue(0)));
    shares.record(queue(0), 9, 0, Nanos(0));
    let within_share =
        |shares: &FrontShares| [0, 1].map(|slot| shares.is_within_share(queue(slot)));
    assert_eq!(within_share(&shares), [true, false], "9 of 39");
    shares.record(queue(0), 2, 0, Nanos(0));
    assert_eq!(within_share(&shares), [false, true], "11 of 41");
    shares.record(queue(1), 0, 100 * BYTES_PER_REQUEST, Nanos(0));
    assert_eq!(within_share(&shares), [true, false], "bytes are work, too");
    let later = Nanos(20 * FRONT_WINDOW.0);
    shares.record(queue(0), 1, 0, later);
    assert!(
        !shares.is_within_share(queue(0)),
        "what was long ago is forgotten"
    );
}

#[test]
fn a_kind_within_its_part_of_the_share_is_not_refused_for_another_of_its_model() {
    let (few, many) = (QueueIndex(0), QueueIndex(1));
    let mut shares = shares(&[100]);
    (0..100).for_each(|_| shares.record(many, 1, 0, Nanos(0)));
    assert!(!shares.is_within_share(many) && !shares.may_be_within_share(0));
    shares.record(few, 10, 0, Nanos(0));
    assert!(shares.is_within_share(few) && !shares.is_within_share(many));
    assert!(shares.may_be_within_share(0), "its body has to be read");
    shares.record_unread(0, 50, Nanos(0));
    assert!(shares.is_within_share(few) && !shares.is_within_share(many));
    shares.record(few, 200, 0, Nanos(0));
    assert!(!shares.is_within_share(few) && shares.is_within_share(many));
}

#[test]
fn errors_may_take_a_part_of_a_models_share_of_the_front() {
    let mut shares = shares(&[100, 300]);
    shares.record(queue(0), 10, 0, Nanos(0));
    let period = |shares: &FrontShares| shares.front_share(0, Some(COST)).error_period;
    assert_eq!(period(&shares), None, "there are none");
    shares.record_errors(0, 100_000, Some(COST), Nanos(0));
    // Errors could be sent at 100,000 a second.
    let alone = Nanos((10_000.0 / ERROR_SHARE) as u64);
    assert_eq!(period(&shares), Some(alone));
    shares.record(queue(1), 10, 0, Nanos(0));
    assert_eq!(
        period(&shares),
        Some(Nanos(4 * alone.0)),
        "a quarter of that"
    );
    assert_eq!(shares.front_share(0, None).error_period, None);
}

#[test]
fn errors_beside_long_replies_are_judged_by_the_cost_of_a_request_without_results() {
    let config = Config {
        queues: 0,
        workers: 1,
        batching: BatchingParams::default(),
        batch_requests_max: 8,
    };
    let mut state = State::new(config, 1, 1, 0);
    assert_eq!(state.declare("m", None), Ok(0));
    let measure = |state: &mut State, second: u64| {
        let now = Nanos(second * 1_000_000_000);
        let (process, loops) = (now, Vec::new());
        state.measure_front(now, || Some(FrontCpu { process, loops }));
        now
    };
    measure(&mut state, 1);
    // 100 us per request; half of them have replies that take as long as seven errors.
    state.front_cost.count(10_000);
    let bytes = 5_000 * 7 * BYTES_PER_REQUEST;
    state.front_shares.record(queue(0), 10_000, bytes, Nanos(0));
    let now = measure(&mut state, 2);
    let costs = [state.front_cost.cost(), state.front_cost.error_cost()];
    let [mean, error] = costs.map(|cost| cost.unwrap().requests_per_second());
    assert_eq!((mean as u64, error as u64), (10_000, 45_000));
    let errors =
        |per_second: f64| (per_second * ERROR_SHARE_MAX * ERROR_RATE_WINDOW.as_secs_f64()) as usize;
    for _ in 0..2 * errors(mean) {
        state.admission.error_reply_delay(0, false, now);
    }
    state.take_admission_counts(now);
    assert!(!state.front_shares.are_errors_held(0));
    for _ in 0..errors(error) {
        state.admission.error_reply_delay(0, false, now);
    }
    state.take_admission_counts(now);
    assert!(state.front_shares.are_errors_held(0));
}
