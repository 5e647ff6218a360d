//! Pacing of errors, and counters that do not need the state.

use albacore_batching::deadlines::Cost;
use albacore_batching::{BatchingParams, Config, Profile, Scheduler};

use super::*;

const SLOT: usize = 3;

fn admission(error_period: Option<Nanos>) -> Admission {
    let admission = Admission::new(1);
    let share = FrontShare {
        within_share: [false, true, false],
        may_be_within_share: false,
        error_period,
    };
    admission.publish_share(SLOT, &share);
    admission
}

#[test]
fn errors_are_paced_and_none_is_held_for_long() {
    const PERIOD: u64 = 100_000;
    let admission = admission(Some(Nanos(PERIOD)));
    let start = 1_000_000_000;
    let mut left = Vec::new();
    for number in 0..500_u64 {
        let now = start + number * 10_000;
        let held = admission.error_reply_delay(SLOT, true, Nanos(now));
        assert!(held <= HOLD_MAX);
        left.push(now + held.as_nanos() as u64);
    }
    // The maximum hold is not reached in these 5 ms.
    let last = left[left.len() - 1] - start;
    let allowed = last / PERIOD + ERRORS_AT_ONCE + 1;
    assert!(left.len() as u64 <= allowed, "{} of {allowed}", left.len());
    let other = admission.error_reply_delay(SLOT + 1, true, Nanos(start));
    assert_eq!(other, Duration::ZERO, "another model's errors");
    for _ in 0..10_000 {
        assert!(admission.error_reply_delay(SLOT, true, Nanos(start)) <= HOLD_MAX);
    }
    assert_eq!(
        admission.error_reply_delay(SLOT, true, Nanos(start)),
        HOLD_MAX
    );
}

#[test]
fn counts_are_taken_once_by_kind_and_class() {
    let admission = admission(None);
    assert_eq!(
        admission.error_reply_delay(SLOT, false, Nanos(0)),
        Duration::ZERO
    );
    admission.count_shed(SLOT, Some(Kind::Contribs));
    admission.count_shed(SLOT, Some(Kind::Contribs));
    admission.count_shed(SLOT, None);
    let counted = admission.take_counts(SLOT);
    assert_eq!((counted.unread, counted.requests), (1, [0; CLASSES]));
    assert_eq!(counted.shed, [(Some(Kind::Contribs), 2), (None, 1)]);
    let again = admission.take_counts(SLOT);
    assert_eq!((again.unread, again.shed), (0, Vec::new()));
    let within_share = [0, 1, 2].map(|class| admission.is_within_share(SLOT, 1 << class));
    assert_eq!(within_share, [false, true, false]);
    assert!(!admission.is_within_share(SLOT, MAY_BE_WITHIN_SHARE));
}

#[test]
fn a_closed_engine_or_a_slot_without_queues_rejects_requests() {
    let admission = admission(None);
    let request = AdmissionRequest {
        slot: SLOT,
        rows: 1,
        kinds: KindSet::only(Kind::Value),
        terms: RequestTerms {
            arrival: Nanos(0),
            deadline: None,
            priority: Priority::Normal,
        },
    };
    let reply_latency = ReplyLatency::default();
    let admit = || admission.admit(LoopIndex(0), &request, &reply_latency, Nanos(0));
    assert_eq!(admit(), Err(Refusal::Draining));
}

#[test]
fn the_front_is_judged_by_the_objective_not_by_deadlines_that_clients_choose() {
    const MS: u64 = 1_000_000;
    let admission = admission(None);
    let kinds = KindSet::only(Kind::Contribs);
    let queue = queue_of(SLOT, kinds);
    assert!(admission.is_within_front_share(SLOT, kinds));
    let mut scheduler = Scheduler::new(Config {
        queues: queue.0 + 1,
        workers: 1,
        batching: BatchingParams::default(),
        batch_requests_max: 16,
    });
    let cost = Some(Cost::new(5.0 * MS as f64, 0.0));
    let profile = Profile {
        cost,
        mean_cost: cost,
        objective: Some(Nanos(25 * MS)),
    };
    scheduler.set_profile(queue, profile);
    admission.add_queue(queue.0, scheduler.queue_admission(queue).unwrap());
    let refuse = |deadline: Option<u64>, now: u64| {
        let request = AdmissionRequest {
            slot: SLOT,
            rows: 1,
            kinds,
            terms: RequestTerms {
                arrival: Nanos(0),
                deadline: deadline.map(|ms| Nanos(ms * MS)),
                priority: Priority::Normal,
            },
        };
        let latency = ReplyLatency::default();
        let refused = admission.admit(LoopIndex(0), &request, &latency, Nanos(now * MS));
        assert!(matches!(refused, Err(Refusal::Late { .. })), "{refused:?}");
        let before = admission.front_time_limit.share();
        admission.front_time_limit.adapt(Nanos(now * 1000 * MS));
        admission.front_time_limit.share() / before
    };
    assert_eq!(
        refuse(Some(14), 10),
        1.0,
        "in time but for its own deadline"
    );
    assert!(refuse(None, 21) < 0.51, "it would have been in time");
}
