//! Tests of what event loops count.

use std::sync::Arc;

use albacore_os::SharedMemory;
use albacore_worker::EditionId;
use tokio::sync::oneshot;

use super::*;
use crate::admission::RequestTerms;
use crate::model::{Edition, Usage};
use crate::state::NewRequest;
use crate::{Failure, KindSet, ModelInfo, Priority};

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLISECOND;

fn ended(slot: usize, kind: Kind, failure: Option<Failure>) -> Box<Pending> {
    let memory = SharedMemory::create("test", 4096).unwrap();
    let (input, results) = memory.map_extent().unwrap().split_at(64);
    let mut ended = Pending::new(NewRequest {
        model: slot,
        edition: Arc::new(Edition {
            id: EditionId(1),
            slot,
            info: ModelInfo::default(),
            kernels: Vec::new(),
            image: SharedMemory::holding("test", b"image").unwrap(),
            usage: Usage::default(),
        }),
        event_loop: LoopIndex(0),
        first_key: 0,
        submitted: Nanos(0),
        kinds: KindSet::only(kind),
        is_double: false,
        rows: 1,
        input,
        results,
        reply: oneshot::channel().0,
        terms: RequestTerms {
            arrival: Nanos(0),
            deadline: None,
            priority: Priority::Normal,
        },
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

fn count(tallies: &Tallies, event_loop: usize, ended: &Pending, at: u64) {
    tallies.of(LoopIndex(event_loop)).count(ended, Nanos(at));
}

#[test]
fn what_every_loop_counts_of_each_model_and_kind_is_taken_over_once() {
    let (mut counters, tallies) = counters();
    count(&tallies, 0, &ended(0, Kind::Value, None), MILLISECOND);
    count(&tallies, 1, &ended(0, Kind::Value, None), 3 * MILLISECOND);
    let failure = Some(Failure::Stopped);
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
fn a_request_counts_in_the_span_in_which_it_was_over_however_late_it_is_taken_over() {
    let (mut counters, tallies) = counters();
    let request = ended(0, Kind::Value, None);
    count(&tallies, 0, &request, 4 * SECOND);
    assert!(!tallies.of(LoopIndex(0)).is_of_other_span(Nanos(4 * SECOND)));
    assert!(tallies.of(LoopIndex(0)).is_of_other_span(Nanos(5 * SECOND)));
    // A minute later, when the place of that span has a newer one.
    count(&tallies, 1, &request, 63 * SECOND);
    let mut good = |at| {
        tallies.drain_into(&mut counters);
        let (windows, _) = &counters.windows(Nanos(at))[0];
        (windows[0].outcomes.good, windows[0].newest.good)
    };
    assert_eq!(good(64 * SECOND), (1, 1));
    count(&tallies, 1, &request, 44 * SECOND);
    assert_eq!(good(64 * SECOND), (2, 1));
    count(&tallies, 1, &request, 3 * SECOND);
    assert_eq!(good(64 * SECOND), (2, 1), "over for a minute");
    assert_eq!(counters.model(0).unwrap().answered_total, 4);
}

#[test]
fn a_request_is_late_after_its_objective_or_its_own_time() {
    let mut request = ended(0, Kind::Value, None);
    assert!(!request.is_late(Nanos(u64::MAX)));
    request.objective = Some(Nanos(10));
    assert!(!request.is_late(Nanos(10)) && request.is_late(Nanos(11)));
    request.within = Some(Nanos(5));
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
