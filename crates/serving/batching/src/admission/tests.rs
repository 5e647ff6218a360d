//! Bounds of rows by share, and of concurrent admissions.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::deadlines::Cost;
use crate::{BatchingParams, Config, Policy, QueueIndex, Scheduler};

const MS: u64 = 1_000_000;

fn batching(queue_rows_max: usize) -> BatchingParams {
    BatchingParams {
        policy: Policy::Eager,
        batch_rows_max: 16,
        window: None,
        queue_rows_max,
    }
}

/// Queues with a weight each, and no worker; a row takes 1 ms.
fn scheduler(queues: usize, rows_max: usize) -> Scheduler {
    let mut scheduler = Scheduler::new(Config {
        queues,
        workers: 1,
        batching: batching(rows_max),
        batch_requests_max: 16,
    });
    let cost = Some(Cost::new(MS as f64, 0.0));
    let profile = Profile {
        cost,
        mean_cost: cost,
        objective: Some(Nanos(100 * MS)),
    };
    (0..queues).for_each(|queue| scheduler.set_profile(QueueIndex(queue), profile));
    scheduler
}

fn queue_admission(scheduler: &Scheduler, queue: usize) -> Arc<QueueAdmission> {
    Arc::clone(scheduler.queue_admission(QueueIndex(queue)).unwrap())
}

fn full(rows: usize, queued_rows: usize, rows_max: usize) -> Result<(), QueueFull> {
    Err(QueueFull {
        rows,
        queued_rows,
        rows_max,
    })
}

#[test]
fn waiting_rows_are_bounded_by_share_once_other_queues_are_active() {
    let mut scheduler = scheduler(2, 100);
    scheduler.set_weight(QueueIndex(1), 300);
    let [few, many] = [0, 1].map(|queue| queue_admission(&scheduler, queue));
    few.record_request(Nanos(0));
    scheduler.refresh(Nanos(0));
    assert_eq!(few.reserve(70), Ok(()), "nobody else asks");
    many.record_request(Nanos(0));
    scheduler.refresh(Nanos(0));
    // Its share is 25, and none of the 75 of the other queue are used.
    assert_eq!(few.reserve(1), full(1, 70, 25));
    assert_eq!(many.reserve(30), Ok(()));
    assert_eq!(many.reserve(1), full(1, 100, 100));
    few.release(70);
    assert_eq!(many.reserve(45), Ok(()));
    assert_eq!(many.reserve(1), full(1, 75, 75), "25 are kept");
    assert_eq!(few.reserve(25), Ok(()));
    assert!(few.reserve(101).is_err() && few.reserve(usize::MAX).is_err());
    // A request larger than a share passes if its queue is empty.
    few.release(25);
    many.release(75);
    assert_eq!(few.reserve(90), Ok(()));
    assert_eq!((few.rows(), few.all_rows()), (90, 90));
    // A share that results from another bound applies at once.
    scheduler.set_params(batching(1000));
    assert_eq!(few.reserve(160), Ok(()));
    assert_eq!(few.reserve(1), full(1, 250, 250));
}

#[test]
fn requests_recorded_without_the_scheduler_activate_a_queue_at_the_next_refresh() {
    let mut scheduler = scheduler(2, 100);
    let asking = queue_admission(&scheduler, 0);
    asking.record_request(Nanos(5 * MS));
    assert!(!asking.is_active());
    scheduler.refresh(Nanos(6 * MS));
    assert!(asking.is_active() && !queue_admission(&scheduler, 1).is_active());
    scheduler.refresh(Nanos(11_000 * MS));
    assert!(!asking.is_active(), "it has not asked again");
    asking.record_request(Nanos(11_001 * MS));
    scheduler.refresh(Nanos(11_002 * MS));
    assert!(asking.is_active());
}

#[test]
fn concurrent_threads_overshoot_by_at_most_one_request_each_and_by_no_row() {
    const THREADS: u64 = 8;
    for _ in 0..50 {
        let scheduler = scheduler(2, 64);
        let (admitted, reserved) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let (timed, sized) = (
                        queue_admission(&scheduler, 0),
                        queue_admission(&scheduler, 1),
                    );
                    // Each row takes 1 ms; the scheduler makes no step in between.
                    for _ in 0..40 {
                        let in_time = timed.admit(1, RowsAhead::InTime, Nanos(20 * MS), Nanos(0));
                        if in_time.is_ok() && timed.reserve(1).is_ok() {
                            admitted.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    for _ in 0..10 {
                        if sized.reserve(3).is_ok() {
                            reserved.fetch_add(3, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let (admitted, reserved) = (admitted.into_inner(), reserved.into_inner());
        assert!((20..20 + THREADS).contains(&admitted), "{admitted}");
        assert!(admitted + reserved <= 64 && admitted + reserved > 61);
        assert_eq!(scheduler.queued_rows() as u64, admitted + reserved);
    }
}
