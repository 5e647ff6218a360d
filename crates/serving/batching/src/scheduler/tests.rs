//! Queues with deadlines, admission, split batches and ranks: behavior that the reference model
//! does not cover.

use super::*;
use crate::BLAME_MAX;
use crate::Prefer;
use crate::admit_early;
use crate::deadlines::Cost;
use std::time::Duration;

/// l(b) = b + 5, in milliseconds, with an objective of 12.
const MS: u64 = 1_000_000;

fn scheduler(policy: Policy, workers: usize) -> Scheduler {
    let mut scheduler = Scheduler::new(Config {
        queues: 2,
        workers,
        batching: BatchingParams {
            policy,
            batch_rows_max: 64,
            window: None,
            queue_rows_max: 1000,
        },
        batch_requests_max: 16,
    });
    let cost = Some(Cost::new(MS as f64, 5.0 * MS as f64));
    let profile = Profile {
        cost,
        mean_cost: cost,
        objective: Some(Nanos(12 * MS)),
    };
    scheduler.set_profile(QueueIndex(0), profile);
    scheduler
}

struct Driver {
    scheduler: Scheduler,
    actions: Actions,
    keys: u64,
}

fn queue_admission(driver: &Driver, queue: usize) -> &QueueAdmission {
    driver.scheduler.queue_admission(QueueIndex(queue)).unwrap()
}

impl Driver {
    fn new(policy: Policy, workers: usize) -> Self {
        let mut driver = Self {
            scheduler: scheduler(policy, workers),
            actions: Actions::default(),
            keys: 0,
        };
        for worker in 0..workers {
            let worker = WorkerIndex::at(worker);
            driver.step(Event::WorkerReady { worker }, 0);
        }
        driver
    }

    /// Times are in tenths of a millisecond; returns the workers and keys of the dispatches.
    fn step(&mut self, event: Event, at: u64) -> Vec<(usize, Vec<u64>)> {
        let now = Nanos(at * MS / 10);
        self.scheduler.step(event, now, &mut self.actions);
        let keys = |d| self.actions.requests(d).iter().map(|key| key.0).collect();
        let dispatches = self.actions.dispatches.iter();
        dispatches.map(|d| (d.worker.position(), keys(d))).collect()
    }

    fn arrive_at(&mut self, queue: usize, position: Position, at: u64) -> Vec<(usize, Vec<u64>)> {
        self.scheduler.reserve(QueueIndex(queue), 1).unwrap();
        self.keys += 1;
        let arrival = Arrival {
            queue: QueueIndex(queue),
            key: RequestKey(self.keys),
            rows: 1,
            position,
        };
        self.step(Event::Arrived(arrival), at)
    }

    fn arrive(&mut self, queue: usize, at: u64) -> Vec<(usize, Vec<u64>)> {
        self.arrive_at(queue, Position::ByDeadline(None), at)
    }

    fn arrive_within(&mut self, within: u64, at: u64) -> Vec<(usize, Vec<u64>)> {
        let within = Nanos(within * MS);
        self.arrive_at(0, Position::ByDeadline(Some(within)), at)
    }

    fn ahead(&mut self, queue: usize, head_start: u64, at: u64) -> Vec<(usize, Vec<u64>)> {
        self.arrive_at(queue, Position::Ahead(Nanos(head_start * MS)), at)
    }

    fn behind(&mut self, at: u64) -> Vec<(usize, Vec<u64>)> {
        self.arrive_at(0, Position::Behind, at)
    }

    fn done(&mut self, worker: usize, at: u64) -> Vec<(usize, Vec<u64>)> {
        let worker = WorkerIndex::at(worker);
        self.step(Event::BatchDone { worker }, at)
    }

    fn lost(&mut self, worker: usize, blame: u32) -> Vec<(usize, Vec<u64>)> {
        let worker = WorkerIndex::at(worker);
        self.step(
            Event::WorkerLost {
                worker,
                blame,
                is_hung: false,
            },
            0,
        );
        self.step(Event::WorkerReady { worker }, 0)
    }
}

#[test]
fn deferred_batches_leave_when_one_more_would_not_fit() {
    let mut driver = Driver::new(Policy::Deferred, 1);
    assert_eq!(driver.arrive(0, 0), []);
    assert_eq!(driver.arrive(0, 10), []);
    // Frontrun is 12 - l(3) = 4, the window opens a twentieth of the objective earlier.
    assert_eq!(driver.actions.timer, Some(Nanos(34 * MS / 10)));
    assert_eq!(driver.step(Event::Timer, 34), [(0, vec![1, 2])]);
    assert_eq!(driver.scheduler.queued_rows(), 0);
    assert_eq!(driver.arrive(1, 35), [], "the worker is busy");
    assert_eq!(driver.done(0, 100), [(0, vec![3])], "no objective: at once");
}

#[test]
fn enqueued_arrivals_are_dispatched_as_one_batch_at_the_timer() {
    for event in [
        Event::Timer,
        Event::WorkerReady {
            worker: WorkerIndex(1),
        },
    ] {
        let mut driver = Driver::new(Policy::Eager, 2);
        for key in 1..=3 {
            driver.scheduler.reserve(QueueIndex(0), 1).unwrap();
            let arrival = Arrival {
                queue: QueueIndex(0),
                key: RequestKey(key),
                rows: 1,
                position: Position::ByDeadline(None),
            };
            driver.scheduler.enqueue(arrival, Nanos(0));
        }
        assert_eq!(driver.scheduler.busy_workers(), 0);
        assert_eq!(driver.step(event, 1), [(0, vec![1, 2, 3])]);
        assert_eq!(driver.step(Event::Timer, 1), []);
    }
}

#[test]
fn a_request_with_less_time_overtakes_and_hastens_the_batch() {
    let mut driver = Driver::new(Policy::Deferred, 1);
    assert_eq!(driver.arrive(0, 1000), []);
    assert_eq!(driver.arrive(0, 1010), []);
    // Its deadline is 110, the others have 112 and 113: frontrun is 110 - l(4) = 101, now.
    assert_eq!(driver.arrive_within(9, 1010), [(0, vec![3, 1, 2])]);
    assert_eq!(driver.arrive(0, 1020), []);
    assert_eq!(
        driver.arrive_within(60, 1030),
        [],
        "it has no more than the others"
    );
    let (queue, key) = (QueueIndex(0), RequestKey(4));
    driver.step(Event::Withdrawn { queue, key }, 1031);
    assert_eq!(driver.scheduler.queued_rows(), 1);
    assert_eq!(driver.done(0, 1090), [(0, vec![5])]);
}

/// Simulates `clients` clients on one worker, each of which sends its next request half a
/// millisecond after a reply. Returns the latencies of the last 1,000 of `answers` replies in
/// tenths of a millisecond, sorted, and the time that these took together.
fn answers_of_clients(policy: Policy, clients: u64, answers: usize) -> (Vec<u64>, u64) {
    let mut driver = Driver::new(policy, 1);
    let mut arrivals: Vec<u64> = (0..clients).map(|n| 7 * n).collect();
    let (mut arrived_at, mut latencies) = (std::collections::BTreeMap::new(), Vec::new());
    let mut running: Option<(u64, Vec<u64>)> = None;
    let (mut now, mut begin) = (0, 0);
    while latencies.len() < answers {
        let next_arrival = arrivals.iter().min().copied();
        let timer = driver.actions.timer.map(|timer| timer.0.div_ceil(MS / 10));
        let done = running.as_ref().map(|(end, _)| *end);
        let at = [next_arrival, timer, done]
            .into_iter()
            .flatten()
            .min()
            .unwrap();
        now = now.max(at);
        let dispatched = if done == Some(now) {
            for key in running.take().unwrap().1 {
                latencies.push(now - arrived_at.remove(&key).unwrap());
                arrivals.push(now + 5);
            }
            driver.done(0, now)
        } else if next_arrival.is_some_and(|next_arrival| next_arrival <= now) {
            arrivals.swap_remove(
                arrivals
                    .iter()
                    .position(|&at| Some(at) == next_arrival)
                    .unwrap(),
            );
            arrived_at.insert(driver.keys + 1, now);
            driver.arrive(0, now)
        } else {
            driver.step(Event::Timer, now)
        };
        for (_, keys) in dispatched {
            running = Some((now + 10 * (keys.len() as u64 + 5), keys));
        }
        if latencies.len() <= answers - 1000 {
            begin = now;
        }
    }
    let mut last = latencies.split_off(answers - 1000);
    last.sort_unstable();
    (last, now - begin)
}

#[test]
fn auto_answers_clients_that_wait_as_soon_as_eager_does() {
    for clients in [1, 2, 3] {
        let (eager, eager_time) = answers_of_clients(Policy::Eager, clients, 20_000);
        let (auto, auto_time) = answers_of_clients(Policy::default(), clients, 20_000);
        let (deferred, _) = answers_of_clients(Policy::Deferred, clients, 2_000);
        assert!(auto[500] <= eager[500], "{clients}: the median");
        // Several clients on one worker wait for each other in any case.
        let is_shown = deferred[500] > eager[500] || clients > 1;
        assert!(is_shown, "{clients}: deferred is as good");
        assert!(auto_time as f64 <= 1.1 * eager_time as f64, "{clients}");
    }
}

#[test]
fn auto_is_eager_at_low_load() {
    let mut driver = Driver::new(Policy::default(), 1);
    for n in 0..3000 {
        let at = n * 5000;
        assert_eq!(driver.arrive(0, at), [(0, vec![n + 1])], "{n}");
        driver.done(0, at + 60);
    }
}

#[test]
fn late_requests_run_behind_those_that_can_be_in_time() {
    let mut driver = Driver::new(Policy::Eager, 1);
    assert_eq!(driver.arrive(1, 0), [(0, vec![1])]);
    driver.arrive(0, 1);
    driver.arrive(0, 100);
    // At 11 ms the first of the two can no longer be in time; the other can.
    assert_eq!(driver.done(0, 110), [(0, vec![3])]);
    assert_eq!(driver.scheduler.queued_rows(), 1);
    assert_eq!(driver.done(0, 170), [(0, vec![2])], "it was accepted");
    assert_eq!(driver.scheduler.queued_rows(), 0);
    driver.done(0, 180);
    assert_eq!(driver.arrive(1, 190), [(0, vec![4])]);
    driver.arrive(0, 200);
    driver.step(Event::Timer, 400);
    let queue = QueueIndex(0);
    let key = RequestKey(5);
    driver.step(Event::Withdrawn { queue, key }, 401);
    assert_eq!(driver.scheduler.queued_rows(), 0, "late or not");
    assert_eq!(driver.done(0, 402), []);
}

#[test]
fn a_late_batch_takes_at_most_half_of_the_objective() {
    let mut driver = Driver::new(Policy::Eager, 1);
    driver.arrive(1, 0);
    (0..4).for_each(|_| drop(driver.arrive(0, 1)));
    // One row takes 6 ms of the 12; all four would take 9 and delay requests that arrive meanwhile.
    assert_eq!(driver.done(0, 300), [(0, vec![2])]);
    assert_eq!(driver.arrive(0, 310), []);
    assert_eq!(driver.done(0, 360), [(0, vec![6])], "it can be in time");
    assert_eq!(driver.done(0, 420), [(0, vec![3])]);
}

#[test]
fn admission_rejects_requests_that_would_be_late_but_never_the_only_one() {
    let mut driver = Driver::new(Policy::Eager, 2);
    let admit = |driver: &Driver, rows, ms| {
        let (queue, time) = (QueueIndex(0), Nanos(12 * MS));
        let now = Nanos(ms * MS);
        queue_admission(driver, queue.0).admit(rows, RowsAhead::InTime, time, now)
    };
    assert_eq!(admit(&driver, 100, 0), Ok(()), "nothing is known for sure");
    driver.arrive(0, 0);
    driver.arrive(0, 0);
    // Two batches of 6 ms run on two workers.
    assert_eq!(admit(&driver, 1, 0), Ok(()));
    assert_eq!(admit(&driver, 2, 0), Err(Nanos(MS)));
    assert_eq!(admit(&driver, 2, 1), Ok(()), "they have run for a while");
    driver.arrive(0, 10);
    assert_eq!(admit(&driver, 1, 1), Err(Nanos(2 * MS)));
    // With ten more, half of the waiting and running work is 13 ms for each worker: a request with
    // a later deadline cannot be answered sooner. A request due at 12 ms might overtake it; this is
    // unknown before its rows are read.
    (0..10).for_each(|_| drop(driver.arrive(0, 10)));
    let early = |ms| {
        admit_early(
            [queue_admission(&driver, 0)].into_iter(),
            Nanos(ms * MS),
            Nanos(MS),
        )
    };
    assert_eq!((early(12), early(11)), (Err(Nanos(MS)), Ok(())));
    assert_eq!((early(5), early(4)), (Ok(()), Err(Nanos(MS))), "two run");
    let free = Ok(());
    let other = queue_admission(&driver, 1).admit(1, RowsAhead::All, Nanos(1), Nanos(0));
    assert_eq!(other, free, "nothing is known of its costs");
}

#[test]
fn admission_counts_running_batches_but_not_waiting_requests_of_other_queues() {
    let mut driver = Driver::new(Policy::Eager, 1);
    let profile = driver.scheduler.profile(QueueIndex(0));
    driver.scheduler.set_profile(QueueIndex(1), profile);
    for _ in 0..11 {
        driver.arrive(1, 0);
    }
    let admit = |queue, ms| {
        queue_admission(&driver, queue).admit(1, RowsAhead::InTime, Nanos(ms * MS), Nanos(0))
    };
    // 6 ms run; ten rows of queue 1 wait, 15 ms.
    assert_eq!((admit(0, 12), admit(0, 11)), (Ok(()), Err(Nanos(MS))));
    assert_eq!((admit(1, 27), admit(1, 26)), (Ok(()), Err(Nanos(MS))));
    let early = |driver: &Driver, queues: &[usize], ms| {
        let queues = queues.iter().map(|&queue| queue_admission(driver, queue));
        admit_early(queues, Nanos(ms * MS), Nanos(0))
    };
    let late = Err(Nanos(MS));
    assert_eq!(
        (early(&driver, &[1], 21), early(&driver, &[1], 20)),
        (Ok(()), late)
    );
    // Queue 0 got no requests, so a request of either is assumed to be for queue 1.
    assert_eq!(early(&driver, &[0, 1], 20), late);
    driver.scheduler.note_request(QueueIndex(0), Nanos(0));
    let admitted = early(&driver, &[0, 1], 6);
    assert_eq!(admitted, Ok(()), "it may be for queue 0");
}

#[test]
fn a_queue_within_its_share_is_judged_by_what_it_costs_on_average() {
    let mut driver = Driver::new(Policy::Eager, 1);
    let ms = |ms: u64| Some(Cost::new((ms * MS) as f64, 0.0));
    for queue in [0, 1].map(QueueIndex) {
        let profile = Profile {
            cost: ms(22),
            mean_cost: ms(1),
            objective: Some(Nanos(25 * MS)),
        };
        driver.scheduler.set_profile(queue, profile);
    }
    let admit = |driver: &Driver, queue, at| {
        let (time, now) = (Nanos(25 * MS), Nanos(at * MS));
        queue_admission(driver, queue).admit(1, RowsAhead::InTime, time, now)
    };
    driver.scheduler.note_request(QueueIndex(1), Nanos(0));
    driver.arrive(1, 0);
    let late = Err(Nanos(19 * MS));
    assert_eq!(admit(&driver, 1, 0), late, "alone: 22 ms run");
    // It uses the worker for 2.2 s, then queue 0 gets a request.
    for batch in 1..=100 {
        driver.scheduler.refresh(Nanos(22 * batch * MS));
        driver.done(0, 220 * batch);
        driver.arrive(1, 220 * batch);
    }
    driver
        .scheduler
        .note_request(QueueIndex(0), Nanos(2_200 * MS));
    driver.scheduler.refresh(Nanos(2_210 * MS));
    assert!(admit(&driver, 1, 2_200).is_err(), "over its share");
    assert_eq!(admit(&driver, 0, 2_200), Ok(()), "1 ms behind 22");
    let early = admit_early(
        [queue_admission(&driver, 0)].into_iter(),
        Nanos(23 * MS),
        Nanos(2_200 * MS),
    );
    assert_eq!(early, Ok(()));
}

#[test]
fn a_request_ahead_overtakes_by_its_head_start_and_no_more() {
    for queue in [0, 1] {
        let mut driver = Driver::new(Policy::Eager, 1);
        driver.scheduler.set_params(BatchingParams {
            policy: Policy::Eager,
            batch_rows_max: 1,
            window: None,
            queue_rows_max: 1000,
        });
        driver.arrive(queue, 0);
        driver.arrive(queue, 10);
        driver.arrive(queue, 40);
        // As if it had arrived at 2 ms, before the third and after the second.
        driver.ahead(queue, 3, 50);
        assert_eq!(driver.done(0, 51), [(0, vec![2])]);
        assert_eq!(driver.done(0, 52), [(0, vec![4])]);
        assert_eq!(driver.done(0, 53), [(0, vec![3])]);
        assert_eq!(driver.scheduler.queued_rows(), 0);
    }
}

#[test]
fn a_request_of_low_priority_yields_blocks_no_other_and_eventually_runs() {
    let mut driver = Driver::new(Policy::Eager, 1);
    driver.arrive(0, 0);
    for _ in 0..10 {
        driver.behind(1);
    }
    let (queue, time) = (QueueIndex(0), Nanos(12 * MS));
    let admit = |after| queue_admission(&driver, queue.0).admit(1, after, time, Nanos(0));
    assert_eq!(admit(RowsAhead::InTime), Ok(()));
    assert!(admit(RowsAhead::All).is_err(), "its like wait before it");
    let key = RequestKey(2);
    driver.step(Event::Withdrawn { queue, key }, 2);
    assert_eq!(driver.scheduler.queued_rows(), 9);
    let mut at = 0;
    for batch in 0..400 {
        at += 60;
        driver.arrive(0, at - 1);
        let dispatched = driver.done(0, at);
        if dispatched[0].1.starts_with(&[3]) {
            assert!(at > 10_000 && at < 10_400, "{batch} {at}");
            return;
        }
    }
    panic!("it starved");
}

#[test]
fn a_batch_that_kills_is_halved_until_the_one_that_kills_is_alone() {
    let mut driver = Driver::new(
        Policy::Timeout {
            delay: Duration::from_nanos(MS),
        },
        1,
    );
    for _ in 0..6 {
        driver.arrive(1, 0);
    }
    let mut batches = driver.step(Event::Timer, 10);
    let (mut answered, mut exits) = (Vec::new(), 0);
    // Request 5 crashes every worker that runs it.
    for _ in 0..20 {
        let Some((_, keys)) = batches.pop() else {
            break;
        };
        batches = if keys.contains(&5) {
            exits += 1;
            let worker = WorkerIndex(0);
            let blame = BLAME_MAX / 2;
            driver.step(
                Event::WorkerLost {
                    worker,
                    blame,
                    is_hung: false,
                },
                20,
            );
            let abandoned = driver.actions.abandoned.iter();
            let abandoned: Vec<_> = abandoned.map(|a| (a.key.0, a.losses)).collect();
            if keys.len() == 1 {
                assert_eq!(abandoned, [(5, 5)]);
            } else {
                assert_eq!(abandoned, []);
            }
            driver.step(Event::WorkerReady { worker }, 30)
        } else {
            answered.extend(keys);
            driver.done(0, 40)
        };
    }
    answered.sort_unstable();
    assert_eq!(answered, [1, 2, 3, 4, 6]);
    assert_eq!(exits, 5, "two of six, one of three, of two and alone");
    assert_eq!(driver.scheduler.queued_rows(), 0);
}

#[test]
fn a_batch_that_others_killed_stays_whole() {
    let mut driver = Driver::new(
        Policy::Timeout {
            delay: Duration::from_nanos(MS),
        },
        1,
    );
    driver.arrive(1, 0);
    driver.arrive(1, 0);
    assert_eq!(driver.step(Event::Timer, 10), [(0, vec![1, 2])]);
    for _ in 0..BLAME_MAX - 1 {
        assert_eq!(driver.lost(0, 1), [(0, vec![1, 2])]);
    }
}

#[test]
fn requests_of_low_priority_run_although_all_others_are_urgent() {
    let mut driver = Driver::new(Policy::Eager, 1);
    driver.arrive(0, 0);
    driver.behind(0);
    let mut at = 0;
    for batch in 0..400 {
        at += 60;
        driver.arrive(0, at - 1);
        let dispatched = driver.done(0, at);
        assert_eq!(dispatched.len(), 1);
        if dispatched == [(0, vec![2])] {
            // A second, and three batches.
            assert!(at > 10_000 && at < 10_400, "{batch} {at}");
            return;
        }
    }
    panic!("it never ran");
}

/// Serves `count` requests, 20 ms apart, from number `first`; returns whether the last one was
/// dispatched on arrival.
fn is_eager(driver: &mut Driver, first: u64, count: u64) -> bool {
    let mut is_eager = true;
    for number in first..first + count {
        let mut at = number * 200;
        let mut dispatched = driver.arrive(0, at);
        is_eager = !dispatched.is_empty();
        if !is_eager {
            at = (driver.actions.timer.unwrap().0 * 10).div_ceil(MS);
            dispatched = driver.step(Event::Timer, at);
        }
        driver.done(dispatched[0].0, at + 60);
    }
    is_eager
}

#[test]
fn auto_defers_if_idle_workers_are_preferred_and_applies_changes_at_once() {
    let mut driver = Driver::new(Policy::Auto(Prefer::IdleWorkers), 2);
    assert!(is_eager(&mut driver, 0, 10), "nothing is known yet");
    assert!(!is_eager(&mut driver, 10, 100));
    let choice = driver.scheduler.choice(QueueIndex(0)).unwrap();
    assert!(choice.is_deferred, "{choice}");
    assert_eq!(driver.scheduler.next_changed_choice(), Some(QueueIndex(0)));
    assert_eq!(driver.scheduler.next_changed_choice(), None);
    for (prefer, expected) in [(Prefer::ShortWaits, true), (Prefer::IdleWorkers, false)] {
        let params = BatchingParams {
            policy: Policy::Auto(prefer),
            ..driver.scheduler.config.batching
        };
        driver.scheduler.set_params(params);
        let first = 110 + 2 * driver.keys;
        assert_eq!(is_eager(&mut driver, first, 2), expected, "{prefer:?}");
        assert_eq!(driver.scheduler.next_changed_choice(), Some(QueueIndex(0)));
    }
    let eager = BatchingParams {
        policy: Policy::Eager,
        ..driver.scheduler.config.batching
    };
    driver.scheduler.set_params(eager);
    assert_eq!(driver.scheduler.choice(QueueIndex(0)), None);
}

#[test]
fn a_window_ends_the_wait_of_a_deferred_batch() {
    let mut driver = Driver::new(Policy::Deferred, 1);
    let set = |window: Option<u64>, driver: &mut Driver| {
        driver.scheduler.set_params(BatchingParams {
            window: window.map(Duration::from_millis),
            ..driver.scheduler.config.batching
        });
    };
    set(Some(2), &mut driver);
    assert_eq!(driver.arrive(0, 0), []);
    assert_eq!(driver.arrive(0, 10), []);
    assert_eq!(driver.actions.timer, Some(Nanos(2 * MS)));
    assert_eq!(driver.step(Event::Timer, 20), [(0, vec![1, 2])]);
    driver.done(0, 90);
    // Frontrun, less a twentieth of the objective, is earlier than a window of 10 ms.
    set(Some(10), &mut driver);
    assert_eq!(driver.arrive(0, 100), []);
    assert_eq!(driver.actions.timer, Some(Nanos(144 * MS / 10)));
    // A change applies to waiting requests.
    set(Some(1), &mut driver);
    assert_eq!(driver.step(Event::Timer, 109), []);
    assert_eq!(driver.actions.timer, Some(Nanos(11 * MS)));
    assert_eq!(driver.step(Event::Timer, 110), [(0, vec![3])]);
}

#[test]
fn own_batching_of_a_queue_overrides_the_common_one_until_removed() {
    let mut driver = Driver::new(Policy::Eager, 1);
    let own = ModelBatching {
        policy: Policy::Timeout {
            delay: Duration::from_millis(3),
        },
        batch_rows_max: 2,
        window: None,
    };
    let (first, second) = (QueueIndex(0), QueueIndex(1));
    driver.scheduler.set_own_batching(first, Some(own));
    assert_eq!(driver.scheduler.batching(first), own);
    assert_eq!(driver.arrive(0, 0), []);
    assert_eq!(driver.arrive(1, 1), [(0, vec![2])], "the other is eager");
    driver.done(0, 2);
    assert_eq!(driver.arrive(0, 5), [(0, vec![1, 3])], "two rows are full");
    driver.done(0, 6);
    // Global parameters do not affect a queue with its own; without its own it follows them.
    driver.scheduler.set_params(BatchingParams {
        batch_rows_max: 7,
        ..driver.scheduler.config.batching
    });
    assert_eq!(driver.scheduler.batching(first), own);
    assert_eq!(driver.scheduler.batching(second).batch_rows_max, 7);
    assert_eq!(driver.arrive(0, 10), []);
    driver.scheduler.set_own_batching(first, None);
    assert_eq!(driver.step(Event::Timer, 11), [(0, vec![4])], "eager now");
    assert_eq!(driver.scheduler.batching(first).batch_rows_max, 7);
}

#[test]
fn each_queue_uses_its_own_preference() {
    let mut driver = Driver::new(Policy::Eager, 2);
    assert!(is_eager(&mut driver, 0, 100));
    assert_eq!(driver.scheduler.choice(QueueIndex(0)), None);
    let own = ModelBatching {
        policy: Policy::Auto(Prefer::IdleWorkers),
        ..driver.scheduler.config.batching.of_models()
    };
    driver.scheduler.set_own_batching(QueueIndex(0), Some(own));
    assert!(!is_eager(&mut driver, 100, 100));
    let choice = driver.scheduler.choice(QueueIndex(0)).unwrap();
    assert!(choice.is_deferred, "{choice}");
    assert_eq!(driver.scheduler.choice(QueueIndex(1)), None);
    let windowed = ModelBatching {
        window: Some(Duration::from_millis(1)),
        ..own
    };
    driver
        .scheduler
        .set_own_batching(QueueIndex(0), Some(windowed));
    driver.arrive(0, 40_010);
    assert_eq!(driver.actions.timer, Some(Nanos(4_002 * MS)));
}

#[test]
fn batches_under_load_have_the_rows_that_take_half_of_the_objective() {
    let mut scheduler = scheduler(Policy::Eager, 1);
    let queue = QueueIndex(0);
    // Half of the objective is 6 ms: one row, of 6 ms.
    assert_eq!(scheduler.rows_under_load(queue), 1);
    let known = scheduler.profile(queue);
    let long = Profile {
        objective: Some(Nanos(30 * MS)),
        ..known
    };
    scheduler.set_profile(queue, long);
    assert_eq!(scheduler.rows_under_load(queue), 10);
    let none = Profile {
        objective: None,
        ..known
    };
    scheduler.set_profile(queue, none);
    assert_eq!(scheduler.rows_under_load(queue), 64, "as many as may be");
    assert_eq!(
        scheduler.rows_under_load(QueueIndex(1)),
        64,
        "costs not known"
    );
}
