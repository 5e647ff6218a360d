//! Invariants of shares, on a scheduler whose batches take as long as predicted.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::deadlines::Cost;
use crate::{
    Actions, Arrival, BatchingParams, Config, Event, Policy, Position, Profile, QueueIndex,
    RequestKey, RowsAhead, Scheduler, WorkerIndex,
};

const MS: u64 = 1_000_000;

const BATCH_ROWS_MAX: usize = 16;

/// A queue of single rows.
#[derive(Clone, Copy, Debug)]
struct Kind {
    alpha_us: u64,
    beta_us: u64,
    objective_ms: Option<u64>,
}

impl Kind {
    fn cost(self) -> Cost {
        Cost::new(self.alpha_us as f64 * 1e3, self.beta_us as f64 * 1e3)
    }

    /// Service time of a batch in nanoseconds.
    fn takes(self, rows: usize) -> u64 {
        self.cost().of(rows as u64).0
    }
}

struct World {
    scheduler: Scheduler,
    actions: Actions,
    kinds: Vec<Kind>,
    /// When the batch of each worker ends.
    ends: Vec<Option<u64>>,
    /// Worker time received by each queue.
    served: Vec<u64>,
    /// The longest batch of each queue.
    longest: Vec<u64>,
    arrivals: HashMap<u64, u64>,
    /// Longest wait for dispatch in each queue.
    waited: Vec<u64>,
    waiting: Vec<usize>,
    now: u64,
}

impl World {
    /// Groups of kinds with their weights.
    fn new(workers: usize, groups: &[(u32, &[Kind])]) -> Self {
        let mut scheduler = Scheduler::new(Config {
            queues: 0,
            workers,
            batching: BatchingParams {
                policy: Policy::Eager,
                batch_rows_max: BATCH_ROWS_MAX,
                queue_rows_max: 1 << 30,
                window: None,
            },
            batch_requests_max: 1024,
        });
        let mut kinds = Vec::new();
        for &(weight, of_group) in groups {
            let first = scheduler.add_queue();
            scheduler.set_weight(first, weight);
            for (at, kind) in of_group.iter().enumerate() {
                let queue = match at {
                    0 => first,
                    _ => scheduler.add_sibling(first),
                };
                let cost = Some(kind.cost());
                let objective = kind.objective_ms.map(|ms| Nanos(ms * MS));
                let profile = Profile {
                    cost,
                    mean_cost: cost,
                    objective,
                };
                scheduler.set_profile(queue, profile);
                kinds.push(*kind);
            }
        }
        let queues = kinds.len();
        let mut world = Self {
            scheduler,
            actions: Actions::default(),
            kinds,
            ends: vec![None; workers],
            served: vec![0; queues],
            longest: vec![0; queues],
            arrivals: HashMap::new(),
            waited: vec![0; queues],
            waiting: vec![0; queues],
            now: 0,
        };
        for worker in 0..workers {
            let worker = WorkerIndex::at(worker);
            world.step(Event::WorkerReady { worker });
        }
        world
    }

    fn step(&mut self, event: Event) {
        self.scheduler
            .step(event, Nanos(self.now), &mut self.actions);
        for dispatch in &self.actions.dispatches {
            let queue = dispatch.queue.0;
            let service_time = self.kinds[queue].takes(dispatch.rows);
            self.ends[dispatch.worker.position()] = Some(self.now + service_time);
            self.served[queue] += service_time;
            self.longest[queue] = self.longest[queue].max(service_time);
            self.waiting[queue] -= dispatch.rows;
            for key in self.actions.requests(dispatch) {
                let waited = self.now - self.arrivals.remove(&key.0).unwrap();
                self.waited[queue] = self.waited[queue].max(waited);
            }
        }
    }

    fn arrive(&mut self, queue: usize) {
        let key = self.arrivals.len() as u64 + self.served.iter().sum::<u64>() + (self.now << 20);
        let key = (key..)
            .find(|key| !self.arrivals.contains_key(key))
            .unwrap();
        self.arrivals.insert(key, self.now);
        self.waiting[queue] += 1;
        self.scheduler.reserve(QueueIndex(queue), 1).unwrap();
        let arrival = Arrival {
            queue: QueueIndex(queue),
            key: RequestKey(key),
            rows: 1,
            position: Position::ByDeadline(None),
        };
        self.step(Event::Arrived(arrival));
    }

    /// Keeps the queue backlogged.
    fn fill(&mut self, queue: usize) {
        while self.waiting[queue] < 5 * BATCH_ROWS_MAX {
            self.arrive(queue);
        }
    }

    /// Runs until the next batch ends; returns false if none ends by `until`.
    fn run_batch(&mut self, until: u64) -> bool {
        let ends = self.ends.iter().enumerate();
        let next = ends.filter_map(|(worker, end)| Some(((*end)?, worker)));
        let Some((end, worker)) = next.min().filter(|&(end, _)| end <= until) else {
            self.now = self.now.max(until);
            return false;
        };
        self.now = end;
        self.ends[worker] = None;
        let worker = WorkerIndex::at(worker);
        self.step(Event::BatchDone { worker });
        true
    }
}

fn kind_strategy() -> impl Strategy<Value = Kind> {
    let objective = prop::option::of(20..200_u64);
    (10..300_u64, 0..1000_u64, objective).prop_map(|(alpha_us, beta_us, objective_ms)| Kind {
        alpha_us,
        beta_us,
        objective_ms,
    })
}

fn patience_of(kind: Kind) -> u64 {
    let objective = kind.objective_ms.map(|ms| Nanos(ms * MS));
    tolerated_delay(objective.unwrap_or(ASSUMED_OBJECTIVE)).0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn queues_that_always_wait_are_served_by_weight(
        workers in 1..5_usize,
        (first, second) in (kind_strategy(), kind_strategy()),
        weights in (1..=10_000_u32, 1..=10_000_u32),
    ) {
        let mut world = World::new(workers, &[(weights.0, &[first]), (weights.1, &[second])]);
        for queue in [0, 1] {
            world.fill(queue);
        }
        // Until here the workers were free and were assigned in arrival order.
        let before = world.served.clone();
        let weights = [f64::from(weights.0), f64::from(weights.1)];
        // Less than the time after which a late request is overdue.
        while world.now < 900 * MS {
            prop_assert!(world.run_batch(900 * MS) || world.now >= 900 * MS);
            for queue in [0, 1] {
                world.fill(queue);
            }
            for (one, other) in [(0, 1), (1, 0)] {
                let service = |queue: usize| (world.served[queue] - before[queue]) as f64;
                let due = service(other) / weights[other] * weights[one];
                let lead = patience_of(world.kinds[other]) * workers as u64;
                let batches = world.longest[one] * workers as u64 + world.longest[one];
                let bound = due + (lead + batches) as f64;
                prop_assert!(service(one) <= bound, "{one}: {} of {bound}", service(one));
            }
        }
    }

    #[test]
    fn no_worker_is_free_while_anything_waits(
        workers in 1..4_usize,
        kinds in prop::collection::vec((kind_strategy(), 1..=10_000_u32), 1..4),
        events in prop::collection::vec((0..4_usize, 0..3_000_u64), 1..300),
    ) {
        let groups: Vec<_> = kinds.iter().map(|(kind, weight)| (*weight, [*kind])).collect();
        let groups: Vec<(u32, &[Kind])> = groups.iter().map(|(w, kind)| (*w, &kind[..])).collect();
        let mut world = World::new(workers, &groups);
        for (queue, wait_us) in events {
            let until = world.now + wait_us * 1000;
            while world.run_batch(until) {
                let waiting: usize = world.waiting.iter().sum();
                prop_assert!(waiting == 0 || world.scheduler.idle_workers() == 0);
            }
            world.arrive(queue % kinds.len());
        }
    }

    #[test]
    fn a_queue_within_its_share_waits_for_a_part_of_its_objective_and_is_never_refused(
        workers in 1..5_usize,
        flood in kind_strategy(),
        objective_ms in 20..100_u64,
        gap_us in 3000..8000_u64,
        weight in 1..=100_u32,
    ) {
        let victim = Kind { alpha_us: 50, beta_us: 100, objective_ms: Some(objective_ms) };
        let mut world = World::new(workers, &[(100, &[victim]), (weight, &[flood])]);
        let bound = 3 * patience_of(victim) + flood.takes(1) + victim.takes(2);
        while world.now < 900 * MS {
            let until = world.now + gap_us * 1000;
            world.fill(1);
            while world.run_batch(until) {
                world.fill(1);
            }
            let now = Nanos(world.now);
            let time = Nanos(objective_ms * MS);
            world.scheduler.note_request(QueueIndex(0), now);
            let queue_admission = world.scheduler.queue_admission(QueueIndex(0)).unwrap();
            let admitted = queue_admission.admit(1, RowsAhead::InTime, time, now);
            prop_assert_eq!(admitted, Ok(()));
            world.arrive(0);
        }
        prop_assert!(world.waited[0] <= bound, "{} of {bound}", world.waited[0]);
    }
}

const SHORT: Kind = Kind {
    alpha_us: 100,
    beta_us: 100,
    objective_ms: Some(50),
};

fn served(groups: &[(u32, &[Kind])]) -> Vec<f64> {
    let mut world = World::new(2, groups);
    let queues = world.kinds.len();
    while world.now < 900 * MS {
        (0..queues).for_each(|queue| world.fill(queue));
        world.run_batch(900 * MS);
    }
    let all: u64 = world.served.iter().sum();
    let shares = world.served.iter();
    shares.map(|&time| time as f64 / all as f64).collect()
}

#[test]
fn kinds_of_one_model_share_its_weight_equally() {
    for (groups, expected) in [
        (
            &[(100, &[SHORT, SHORT][..]), (100, &[SHORT])][..],
            [0.25, 0.25, 0.5],
        ),
        (
            &[(300, &[SHORT, SHORT]), (100, &[SHORT])],
            [0.375, 0.375, 0.25],
        ),
    ] {
        let served = served(groups);
        for (share, expected) in served.iter().zip(expected) {
            assert!((share - expected).abs() < 0.05, "{served:?}");
        }
    }
}

#[test]
fn a_queue_without_an_objective_gets_its_share_despite_urgent_ones() {
    let patient = Kind {
        objective_ms: None,
        ..SHORT
    };
    let served = served(&[(100, &[SHORT]), (100, &[patient])]);
    assert!((served[1] - 0.5).abs() < 0.05, "{served:?}");
}

#[test]
fn a_long_batch_is_cut_unless_another_worker_is_free_soon() {
    let long = Kind {
        alpha_us: 2000,
        beta_us: 0,
        objective_ms: Some(200),
    };
    for (workers, expected) in [(1, 12), (2, 32)] {
        let mut world = World::new(workers, &[(100, &[SHORT]), (100, &[long])]);
        world.arrive(0);
        for _ in 0..4 {
            world.fill(1);
            world.run_batch(u64::MAX);
        }
        // A quarter of 50 ms is 12.5 ms, six rows.
        assert_eq!(world.longest[1], expected * MS, "{workers} workers");
    }
}
