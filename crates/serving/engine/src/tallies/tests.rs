//! Counters of the event loops.

use albacore_batching::{BatchingParams, Config, Policy};

use super::*;
use crate::inbox::tests::request;
use crate::state::{NewRequest, State};
use crate::{KindSet, RequestFailure};

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLISECOND;

fn ended(slot: usize, kind: Kind, failure: Option<RequestFailure>) -> PendingBox {
    let mut ended = Pending::new(NewRequest {
        model: slot,
        kinds: KindSet::only(kind),
        ..request(1)
    });
    ended.failure = failure;
    ended
}

/// Two models, and the tallies of two loops.
fn counters() -> (Counters, Tallies) {
    let mut counters = Counters::new();
    counters.start_slot(0, "a");
    counters.start_slot(1, "b");
    (counters, Tallies::new(2))
}

/// Counts a request; the tally of the loop must not hold counts of another span.
fn count(tallies: &Tallies, event_loop: usize, ended: &PendingBox, at: u64) {
    let ended = std::slice::from_ref(ended);
    let other_span = || panic!("the tally is of another span");
    tallies.count(LoopIndex(event_loop), ended, Nanos(at), other_span);
}

#[test]
fn tallies_of_all_loops_are_drained_once_by_model_and_kind() {
    let (mut counters, tallies) = counters();
    count(&tallies, 0, &ended(0, Kind::Value, None), MILLISECOND);
    count(&tallies, 1, &ended(0, Kind::Value, None), 3 * MILLISECOND);
    let failure = Some(RequestFailure::Stopped);
    count(&tallies, 1, &ended(0, Kind::Leaf, failure), MILLISECOND);
    count(&tallies, 1, &ended(1, Kind::Contribs, None), MILLISECOND);
    for _ in 0..2 {
        tallies.drain_into(&mut counters);
        let [a, b] = [0, 1].map(|slot| counters.model(slot).unwrap().clone());
        assert_eq!((a.answered_total, a.failed_total), (2, 1));
        assert_eq!((b.answered_total, b.failed_total), (1, 0));
        let kinds = a.kinds.iter();
        let kinds: Vec<_> = kinds.map(|of| (of.kind, of.outcomes.good)).collect();
        assert_eq!(kinds, [(Kind::Value, 2), (Kind::Leaf, 0)]);
        let total = &a.kinds[0].total_nanos;
        assert_eq!((total.count, total.sum), (2, 4 * MILLISECOND));
        let (windows, _) = &counters.windows(Nanos(SECOND))[0];
        assert_eq!(windows[0].latencies.max(), 3000);
        assert_eq!(windows[1].outcomes.failed, 1);
    }
}

#[test]
fn a_request_counts_in_the_span_of_its_completion_even_if_drained_late() {
    let (mut counters, tallies) = counters();
    let request = ended(0, Kind::Value, None);
    count(&tallies, 0, &request, 4 * SECOND);
    // A minute later, the place of that span holds a newer one.
    count(&tallies, 1, &request, 63 * SECOND);
    let good = |counters: &mut Counters| {
        tallies.drain_into(counters);
        let (windows, _) = &counters.windows(Nanos(64 * SECOND))[0];
        (windows[0].outcomes.good, windows[0].newest.good)
    };
    assert_eq!(good(&mut counters), (1, 1));
    count(&tallies, 1, &request, 3 * SECOND);
    assert_eq!(good(&mut counters), (1, 1), "it was over a minute ago");
    // A loop that enters the next span drains all tallies first.
    count(&tallies, 0, &request, 44 * SECOND);
    let drain = || tallies.drain_into(&mut counters);
    tallies.count(LoopIndex(0), &[request], Nanos(64 * SECOND), drain);
    assert_eq!(counters.model(0).unwrap().answered_total, 4);
    assert_eq!(good(&mut counters), (3, 2));
}

#[test]
fn a_request_whose_client_went_away_is_not_counted_as_answered() {
    let (mut counters, tallies) = counters();
    let mut request = ended(0, Kind::Value, None);
    request.has_client = false;
    count(&tallies, 0, &request, 1);
    tallies.drain_into(&mut counters);
    assert_eq!(counters.model(0).unwrap().answered_total, 0);
}

#[test]
fn a_request_is_late_after_its_objective_or_its_own_time() {
    let mut request = ended(0, Kind::Value, None);
    assert!(!request.is_late(Nanos(u64::MAX)));
    request.objective = Some(Nanos(10));
    assert!(!request.is_late(Nanos(10)) && request.is_late(Nanos(11)));
    request.time_left = Some(Nanos(5));
    assert!(request.is_late(Nanos(6)));
    let (mut counters, tallies) = counters();
    count(&tallies, 0, &request, 5);
    count(&tallies, 0, &request, 6);
    tallies.drain_into(&mut counters);
    let stats = counters.model(0).unwrap();
    assert_eq!((stats.answered_total, stats.late_total), (2, 1));
    let outcomes = stats.kinds[0].outcomes;
    assert_eq!((outcomes.good, outcomes.late), (1, 1));
}

#[test]
fn counts_of_a_model_are_not_added_to_the_next_model_of_its_slot() {
    let config = Config {
        queues: 0,
        workers: 1,
        batching: BatchingParams {
            policy: Policy::Eager,
            batch_rows_max: 4,
            window: None,
            queue_rows_max: 64,
        },
        batch_requests_max: 8,
    };
    let mut state = State::new(config, 1, 1, 0);
    assert_eq!(state.declare("a", None), Ok(0));
    let request = ended(0, Kind::Value, None);
    count(&state.tallies(), 0, &request, SECOND);
    state.catalog.keep_only(&[]);
    assert_eq!(state.declare("b", None), Ok(0));
    count(&state.tallies(), 0, &request, SECOND);
    state.take_tallies();
    let stats = state.model_stats(0).unwrap();
    assert_eq!((stats.name.as_str(), stats.answered_total), ("b", 1));
}
