//! The scheduler compared with a slow but obvious reference model, and single behaviors.

use proptest::prelude::*;
use std::time::Duration;

use crate::*;

fn config(policy: Policy) -> Config {
    Config {
        queues: 1,
        workers: 2,
        batching: BatchingParams {
            policy,
            batch_rows_max: 8,
            window: None,
            queue_rows_max: 32,
        },
        batch_requests_max: 4,
    }
}

fn reference_config(policy: Policy, queues: usize) -> Config {
    let mut config = config(policy);
    (config.queues, config.workers) = (queues, 3);
    config.batching.queue_rows_max = 64;
    config
}

/// Drives a scheduler and collects `(worker, keys)` of each dispatch.
struct Driver {
    scheduler: Scheduler,
    actions: Actions,
    next_key: u64,
}

impl Driver {
    fn set_params(&mut self, policy: Policy, batch_rows_max: usize, queue_rows_max: usize) {
        self.scheduler.set_params(BatchingParams {
            policy,
            batch_rows_max,
            window: None,
            queue_rows_max,
        });
    }

    fn new(config: Config) -> Self {
        let scheduler = Scheduler::new(config);
        Self {
            scheduler,
            actions: Actions::default(),
            next_key: 0,
        }
    }

    /// All queues share one weight: the bound of rows per share is tested with the shares.
    fn with_siblings(config: &Config) -> Self {
        let mut driver = Self::new(Config {
            queues: 1,
            ..config.clone()
        });
        for _ in 1..config.queues {
            driver.scheduler.add_sibling(QueueIndex(0));
        }
        driver
    }

    fn step(&mut self, event: Event, now: u64) -> Vec<(usize, Vec<u64>)> {
        self.scheduler.step(event, Nanos(now), &mut self.actions);
        let dispatches = self.actions.dispatches.iter();
        dispatches
            .map(|d| {
                (
                    d.worker.position(),
                    self.actions.requests(d).iter().map(|key| key.0).collect(),
                )
            })
            .collect()
    }

    fn ready(&mut self, worker: usize, now: u64) -> Vec<(usize, Vec<u64>)> {
        let worker = WorkerIndex::at(worker);
        self.step(Event::WorkerReady { worker }, now)
    }

    fn done(&mut self, worker: usize, now: u64) -> Vec<(usize, Vec<u64>)> {
        let worker = WorkerIndex::at(worker);
        self.step(Event::BatchDone { worker }, now)
    }

    fn lost(&mut self, worker: usize, now: u64) -> Vec<(usize, Vec<u64>)> {
        let worker = WorkerIndex::at(worker);
        self.step(
            Event::WorkerLost {
                worker,
                blame: BLAME_MAX / 2,
                is_hung: false,
            },
            now,
        )
    }

    fn arrive(&mut self, rows: usize, now: u64) -> Vec<(usize, Vec<u64>)> {
        self.scheduler.reserve(QueueIndex(0), rows).unwrap();
        let key = RequestKey(self.next_key);
        self.next_key += 1;
        self.step(
            Event::Arrived(Arrival {
                queue: QueueIndex(0),
                key,
                rows,
                position: Position::ByDeadline(None),
            }),
            now,
        )
    }
}

#[test]
fn eager_takes_the_lowest_numbered_free_worker_at_once() {
    let mut driver = Driver::new(config(Policy::Eager));
    driver.ready(1, 0);
    driver.ready(0, 0);
    assert_eq!(driver.arrive(1, 1), [(0, vec![0])]);
    assert_eq!(driver.arrive(1, 2), [(1, vec![1])]);
    assert_eq!(driver.arrive(1, 3), []);
    assert_eq!(driver.arrive(1, 4), []);
    assert_eq!(driver.done(1, 5), [(1, vec![2, 3])]);
    assert_eq!(driver.scheduler.queued_rows(), 0);
}

#[test]
fn timeout_waits_for_the_oldest_request_or_for_a_full_batch() {
    let mut driver = Driver::new(config(Policy::Timeout {
        delay: Duration::from_nanos(100),
    }));
    driver.ready(0, 0);
    assert_eq!(driver.arrive(2, 10), []);
    assert_eq!(driver.actions.timer, Some(Nanos(110)));
    assert_eq!(driver.arrive(2, 50), []);
    assert_eq!(
        driver.actions.timer,
        Some(Nanos(110)),
        "the oldest request decides"
    );
    assert_eq!(driver.step(Event::Timer, 110), [(0, vec![0, 1])]);
    assert_eq!(driver.actions.timer, None);
    driver.ready(1, 111);
    assert_eq!(driver.arrive(7, 120), []);
    assert_eq!(
        driver.arrive(7, 121),
        [(1, vec![2])],
        "the second does not fit"
    );
}

#[test]
fn a_batch_holds_rows_and_requests_up_to_its_bounds() {
    let mut driver = Driver::new(config(Policy::default()));
    for rows in [3, 5, 1, 1, 1, 1, 1, 19] {
        driver.arrive(rows, 0);
    }
    assert_eq!(driver.ready(0, 1), [(0, vec![0, 1])]);
    assert_eq!(driver.done(0, 2), [(0, vec![2, 3, 4, 5])]);
    assert_eq!(driver.done(0, 3), [(0, vec![6])]);
    assert_eq!(
        driver.done(0, 4),
        [(0, vec![7])],
        "larger than a batch: alone"
    );
}

#[test]
fn a_batch_of_a_lost_worker_is_replayed_first_and_abandoned_after_two_losses() {
    let mut driver = Driver::new(config(Policy::Eager));
    driver.ready(0, 0);
    driver.arrive(1, 1);
    driver.arrive(1, 2);
    assert_eq!(driver.lost(0, 3), []);
    assert_eq!(driver.ready(1, 4), [(1, vec![0])], "before what waits");
    assert_eq!(driver.actions.dispatches[0].losses, 1);
    assert_eq!(driver.lost(1, 5), []);
    let abandoned = AbandonedRequest {
        key: RequestKey(0),
        losses: 2,
    };
    assert_eq!(driver.actions.abandoned, [abandoned]);
    assert_eq!(driver.ready(0, 6), [(0, vec![1])]);
}

#[test]
fn a_batch_that_is_not_to_blame_runs_until_it_is_done() {
    let mut driver = Driver::new(config(Policy::Eager));
    driver.arrive(1, 0);
    for death in 0..100 {
        assert_eq!(driver.ready(0, death), [(0, vec![0])]);
        let dispatch = &driver.actions.dispatches[0];
        assert_eq!(u64::from(dispatch.losses), death);
        assert_eq!(u64::from(dispatch.hangs), death.div_ceil(10));
        driver.step(
            Event::WorkerLost {
                worker: WorkerIndex(0),
                blame: 0,
                is_hung: death % 10 == 0,
            },
            death,
        );
    }
}

#[test]
fn withdrawn_requests_are_neither_dispatched_nor_replayed() {
    let withdraw = |key| Event::Withdrawn {
        queue: QueueIndex(0),
        key: RequestKey(key),
    };
    let mut driver = Driver::new(config(Policy::Eager));
    driver.ready(0, 0);
    for _ in 0..4 {
        driver.arrive(1, 1);
    }
    driver.step(withdraw(2), 2);
    assert_eq!(driver.scheduler.queued_rows(), 2);
    driver.step(withdraw(0), 3);
    driver.lost(0, 4);
    assert_eq!(driver.ready(1, 5), [(1, vec![1, 3])]);
    driver.lost(1, 6);
    driver.step(withdraw(1), 7);
    assert_eq!(driver.ready(0, 8), [(0, vec![3])]);
}

#[test]
fn the_queue_is_bounded_in_rows() {
    let mut driver = Driver::new(config(Policy::Eager));
    driver.arrive(30, 0);
    let full = QueueFull {
        rows: 3,
        queued_rows: 30,
        rows_max: 32,
    };
    assert_eq!(driver.scheduler.reserve(QueueIndex(0), 3), Err(full));
    assert_eq!(driver.scheduler.reserve(QueueIndex(0), 2), Ok(()));
    assert!(driver.scheduler.reserve(QueueIndex(0), usize::MAX).is_err());
    driver.scheduler.unreserve(QueueIndex(0), 2);
    driver.ready(0, 1);
    assert_eq!(
        driver.scheduler.reserve(QueueIndex(0), 32),
        Ok(()),
        "rows that run do not count"
    );
}

#[test]
fn a_busy_or_unknown_worker_cannot_become_ready_twice() {
    let mut driver = Driver::new(config(Policy::Eager));
    driver.ready(0, 0);
    driver.arrive(1, 1);
    driver.arrive(1, 1);
    assert_eq!(driver.ready(0, 2), []);
    assert_eq!(driver.ready(7, 3), []);
    assert_eq!(driver.done(1, 4), [], "it has no batch");
}

#[test]
fn a_held_worker_finishes_its_batch_and_gets_no_other() {
    let mut driver = Driver::new(config(Policy::Eager));
    let held = |worker| Event::WorkerHeld {
        worker: WorkerIndex::at(worker),
    };
    driver.ready(0, 0);
    assert_eq!(driver.arrive(1, 1), [(0, vec![0])]);
    driver.step(held(0), 2);
    assert!(driver.scheduler.is_present(WorkerIndex(0)), "it runs");
    assert_eq!(driver.arrive(1, 3), []);
    assert_eq!(driver.done(0, 4), [], "it is held");
    assert!(!driver.scheduler.is_present(WorkerIndex(0)));
    assert_eq!(driver.ready(0, 5), [(0, vec![1])]);
    driver.step(held(0), 6);
    driver.ready(0, 7);
    assert_eq!(driver.arrive(1, 8), []);
    assert_eq!(driver.done(0, 9), [(0, vec![2])], "it is held no longer");
    driver.step(held(0), 10);
    assert_eq!(driver.lost(0, 11), []);
    assert_eq!(
        driver.ready(1, 12),
        [(1, vec![2])],
        "its batch runs elsewhere"
    );
    driver.step(held(7), 13);
}

#[test]
fn new_parameters_apply_to_waiting_requests_and_queues_can_be_added() {
    let mut driver = Driver::new(config(Policy::Timeout {
        delay: Duration::from_nanos(100),
    }));
    driver.ready(0, 0);
    assert_eq!(driver.arrive(6, 10), []);
    driver.set_params(Policy::Eager, 4, 5);
    assert_eq!(
        driver.step(Event::Timer, 11),
        [(0, vec![0])],
        "larger than a batch"
    );
    assert!(driver.scheduler.reserve(QueueIndex(0), 6).is_err());
    let queue = driver.scheduler.add_queue();
    assert_eq!(queue, QueueIndex(1));
    driver.scheduler.reserve(QueueIndex(0), 1).unwrap();
    let key = RequestKey(9);
    driver.step(
        Event::Arrived(Arrival {
            queue,
            key,
            rows: 1,
            position: Position::ByDeadline(None),
        }),
        12,
    );
    assert_eq!(driver.done(0, 13), [(0, vec![9])]);
}

/// A request of the reference model.
#[derive(Clone, Debug)]
struct ReferenceRequest {
    key: u64,
    queue: usize,
    rows: usize,
    arrival: u64,
    state: RequestState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestState {
    Waiting,
    /// In the batch with this number, which waits for another worker.
    Replay(usize),
    /// In the running batch with this number.
    Running(usize),
    Gone,
}

/// The same rules, implemented with lists and linear searches only.
struct ReferenceModel {
    config: Config,
    requests: Vec<ReferenceRequest>,
    /// Per worker: absent, free, or the number of its batch.
    workers: Vec<Option<Option<usize>>>,
    /// Per worker: absent after its batch.
    held: Vec<bool>,
    /// Per batch number. Replays run in the order of `replays`.
    blames: Vec<u32>,
    replays: Vec<usize>,
}

type Outcome = (Vec<(usize, Vec<u64>)>, Vec<u64>, Option<u64>);

impl ReferenceModel {
    fn requests_in(&self, state: RequestState) -> Vec<usize> {
        (0..self.requests.len())
            .filter(|&i| self.requests[i].state == state)
            .collect()
    }

    fn waiting_rows(&self) -> usize {
        self.requests_in(RequestState::Waiting)
            .iter()
            .map(|&i| self.requests[i].rows)
            .sum()
    }

    fn lose(&mut self, worker: usize, blame: u32) -> Vec<u64> {
        let mut abandoned = Vec::new();
        self.held[worker] = false;
        if let Some(Some(batch)) = self.workers[worker].take() {
            self.blames[batch] += blame;
            let members = self.requests_in(RequestState::Running(batch));
            match (self.blames[batch] >= 8, members.len()) {
                (_, 0) => {}
                (true, 1) => {
                    self.requests[members[0]].state = RequestState::Gone;
                    abandoned.push(self.requests[members[0]].key);
                }
                (true, _) => {
                    for half in [&members[..members.len() / 2], &members[members.len() / 2..]] {
                        self.blames.push(4);
                        self.replay(self.blames.len() - 1, half);
                    }
                }
                (false, _) => self.replay(batch, &members),
            }
        }
        abandoned
    }

    fn replay(&mut self, batch: usize, members: &[usize]) {
        self.replays.push(batch);
        for &i in members {
            self.requests[i].state = RequestState::Replay(batch);
        }
    }

    fn event(&mut self, event: Event, now: u64) -> Outcome {
        let mut abandoned = Vec::new();
        match event {
            Event::Arrived(Arrival {
                queue, key, rows, ..
            }) => self.requests.push(ReferenceRequest {
                key: key.0,
                queue: queue.0,
                rows,
                arrival: now,
                state: RequestState::Waiting,
            }),
            Event::Withdrawn { key, .. } => {
                for request in self.requests.iter_mut().filter(|r| r.key == key.0) {
                    request.state = RequestState::Gone;
                }
                let replays = std::mem::take(&mut self.replays);
                self.replays = replays
                    .into_iter()
                    .filter(|&b| !self.requests_in(RequestState::Replay(b)).is_empty())
                    .collect();
            }
            Event::WorkerReady { worker } => {
                self.workers[worker.position()].get_or_insert(None);
                self.held[worker.position()] = false;
            }
            Event::WorkerHeld { worker } => match self.workers[worker.position()] {
                Some(Some(_)) => self.held[worker.position()] = true,
                Some(None) => self.workers[worker.position()] = None,
                None => {}
            },
            Event::BatchDone { worker } => {
                if let Some(Some(batch)) = self.workers[worker.position()] {
                    let is_held = std::mem::take(&mut self.held[worker.position()]);
                    self.workers[worker.position()] = (!is_held).then_some(None);
                    for i in self.requests_in(RequestState::Running(batch)) {
                        self.requests[i].state = RequestState::Gone;
                    }
                }
            }
            Event::WorkerLost { worker, blame, .. } => {
                abandoned = self.lose(worker.position(), blame)
            }
            Event::Timer => {}
        }
        let (dispatches, timer) = self.matches(now);
        (dispatches, abandoned, timer)
    }

    /// The prefix of a queue that fits, whether requests were left out or the batch is at a bound,
    /// and the oldest arrival.
    fn prefix(&self, queue: usize) -> Option<(Vec<usize>, bool, u64)> {
        let waiting: Vec<usize> = self
            .requests_in(RequestState::Waiting)
            .into_iter()
            .filter(|&i| self.requests[i].queue == queue)
            .collect();
        let mut prefix = vec![*waiting.first()?];
        let mut rows = self.requests[waiting[0]].rows;
        for &i in &waiting[1..] {
            rows += self.requests[i].rows;
            if rows > self.config.batching.batch_rows_max
                || prefix.len() == self.config.batch_requests_max
            {
                break;
            }
            prefix.push(i);
        }
        let rows: usize = prefix.iter().map(|&i| self.requests[i].rows).sum();
        let is_full = prefix.len() < waiting.len()
            || rows >= self.config.batching.batch_rows_max
            || prefix.len() == self.config.batch_requests_max;
        let oldest = self.requests[prefix[0]].arrival;
        Some((prefix, is_full, oldest))
    }

    fn matches(&mut self, now: u64) -> (Vec<(usize, Vec<u64>)>, Option<u64>) {
        let mut dispatches = Vec::new();
        loop {
            let Some(worker) = self.workers.iter().position(|w| *w == Some(None)) else {
                return (dispatches, None);
            };
            let (batch, members) = if !self.replays.is_empty() {
                let batch = self.replays.remove(0);
                (batch, self.requests_in(RequestState::Replay(batch)))
            } else {
                let mut open = Vec::new();
                let mut opens = Vec::new();
                for queue in 0..self.config.queues {
                    let Some((prefix, is_full, oldest)) = self.prefix(queue) else {
                        continue;
                    };
                    let exec = match self.config.batching.policy {
                        Policy::Timeout { delay } if !is_full => oldest + delay.as_nanos() as u64,
                        _ => oldest,
                    };
                    if exec <= now {
                        open.push((oldest, queue, prefix));
                    } else {
                        opens.push(exec);
                    }
                }
                let Some((_, _, prefix)) = open.into_iter().min() else {
                    return (dispatches, opens.into_iter().min());
                };
                self.blames.push(0);
                (self.blames.len() - 1, prefix)
            };
            self.workers[worker] = Some(Some(batch));
            for &i in &members {
                self.requests[i].state = RequestState::Running(batch);
            }
            dispatches.push((
                worker,
                members.iter().map(|&i| self.requests[i].key).collect(),
            ));
        }
    }
}

fn event_strategy() -> impl Strategy<Value = (u8, usize, usize, u64)> {
    (0..10_u8, 0..4_usize, 1..12_usize, 0..60_u64)
}

fn policy_strategy() -> impl Strategy<Value = Policy> {
    prop_oneof![
        Just(Policy::default()),
        Just(Policy::Deferred),
        Just(Policy::Eager),
        (0..150_u64).prop_map(|delay| Policy::Timeout {
            delay: Duration::from_nanos(delay)
        }),
    ]
}

/// Applies the event to both; their observable states are equal.
fn step_both(
    driver: &mut Driver,
    reference: &mut ReferenceModel,
    event: Event,
    now: u64,
) -> Result<(), TestCaseError> {
    let dispatches = driver.step(event, now);
    let abandoned: Vec<u64> = driver.actions.abandoned.iter().map(|a| a.key.0).collect();
    let timer = driver.actions.timer.map(|timer| timer.0);
    prop_assert!(timer.is_none_or(|timer| timer > now), "in the past");
    let (expected, expected_abandoned, expected_timer) = reference.event(event, now);
    prop_assert_eq!((dispatches, abandoned), (expected, expected_abandoned));
    // An early timer only triggers another decision.
    prop_assert!(expected_timer.is_none_or(|expected| timer.is_some_and(|t| t <= expected)));
    prop_assert_eq!(driver.scheduler.queued_rows(), reference.waiting_rows());
    prop_assert!(driver.scheduler.queued_rows() <= 64);
    let idle = reference
        .workers
        .iter()
        .filter(|worker| **worker == Some(None));
    prop_assert_eq!(driver.scheduler.idle_workers(), idle.count());
    Ok(())
}

fn run_both(policy: Policy, events: Vec<(u8, usize, usize, u64)>) -> Result<(), TestCaseError> {
    // The order of two windows that open at once is decided and tested in the core.
    let queues = match policy {
        Policy::Timeout { .. } => 1,
        Policy::Auto(_) | Policy::Deferred | Policy::Eager => 2,
    };
    let config = reference_config(policy, queues);
    let mut driver = Driver::with_siblings(&config);
    let mut reference = ReferenceModel {
        workers: vec![None; config.workers],
        held: vec![false; config.workers],
        config,
        requests: Vec::new(),
        blames: Vec::new(),
        replays: Vec::new(),
    };
    let (mut now, mut keys) = (0, 0);
    for (event_kind, index, size, wait) in events {
        now += wait;
        if let Some(timer) = driver.actions.timer.filter(|timer| timer.0 < now) {
            now = timer.0;
        }
        let worker = WorkerIndex::at(index % 3);
        let queue = QueueIndex(index % queues);
        let event = match event_kind {
            0..=2 => {
                let is_room = reference.waiting_rows() + size <= 64;
                prop_assert_eq!(
                    driver.scheduler.reserve(QueueIndex(0), size).is_ok(),
                    is_room
                );
                if !is_room {
                    continue;
                }
                keys += 1;
                Event::Arrived(Arrival {
                    queue,
                    key: RequestKey(keys),
                    rows: size,
                    position: Position::ByDeadline(None),
                })
            }
            3 if keys > 0 => {
                let key = keys.saturating_sub(size as u64).max(1);
                let known = reference.requests.iter().find(|r| r.key == key);
                let queue = QueueIndex(known.map_or(0, |request| request.queue));
                Event::Withdrawn {
                    queue,
                    key: RequestKey(key),
                }
            }
            4 => Event::WorkerReady { worker },
            5 | 6 => Event::BatchDone { worker },
            7 if size < 6 => Event::WorkerLost {
                worker,
                blame: size as u32,
                is_hung: size % 2 == 1,
            },
            8 => Event::WorkerHeld { worker },
            9 => {
                reference.config.batching.batch_rows_max = size;
                driver.set_params(reference.config.batching.policy, size, 64);
                Event::Timer
            }
            _ => Event::Timer,
        };
        step_both(&mut driver, &mut reference, event, now)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn the_scheduler_agrees_with_the_reference_model(
        policy in policy_strategy(),
        events in proptest::collection::vec(event_strategy(), 0..120),
    ) {
        run_both(policy, events)?;
    }
}
