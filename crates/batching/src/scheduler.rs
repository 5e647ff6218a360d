//! Matchmaking of queues and workers.
//!
//! **Problem.** Requests of several queues, workers that run one batch at a time and may die: each
//! request must run once, in the order of its queue, as early as the release rule allows.
//!
//! **Approach.** Every event updates the state, then free workers are matched: first with batches
//! whose worker died, then with the queue whose window is open and ends first (ties: the oldest
//! request, then the lowest index). The lowest-numbered free worker takes the batch, so that idle
//! workers stay idle and can be seen to be. If none is open, a timer says when the next one opens.
//!
//! **Proof sketch.** A request is in exactly one place: its queue, a replay, or the batch of one
//! worker; every transition moves it and none copies it. It leaves for good when its batch is done,
//! when it is withdrawn while waiting, or when its batch is abandoned. Inside a queue batches are
//! prefixes, so order is kept. After a step either no worker is free, or no window is open and the
//! timer is the earliest opening: so nothing waits without a next event.
//!
//! **Limits.** One matching costs O(queues); queues are models, and few. A worker runs one batch at
//! a time.

use std::collections::VecDeque;

use crate::batch::Batch;
use crate::limits::BLAME_MAX;
use crate::queue::{Entry, Queue};
use crate::{Abandoned, Actions, Nanos, Policy, QueueIndex, RequestKey, WorkerIndex};

/// What does not change while the scheduler lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Number of queues.
    pub queues: usize,
    /// Number of workers; all are absent at first.
    pub workers: usize,
    /// The release rule of every queue.
    pub policy: Policy,
    /// Rows of a batch; a request with more is a batch of its own.
    pub batch_rows_max: usize,
    /// Requests of a batch.
    pub batch_requests_max: usize,
    /// Rows reserved or waiting.
    pub queue_rows_max: usize,
}

/// Something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request arrived whose rows are reserved.
    Arrived {
        /// Where it waits.
        queue: QueueIndex,
        /// Its name: greater than that of every request before.
        key: RequestKey,
        /// Its rows, at least one.
        rows: usize,
    },
    /// Nobody wants this request any more. One that runs is not stopped.
    Withdrawn {
        /// Where it waited.
        queue: QueueIndex,
        /// Its name.
        key: RequestKey,
    },
    /// A worker is up and free, or is held no longer.
    WorkerReady {
        /// Which.
        worker: WorkerIndex,
    },
    /// A worker is done with its batch and free.
    BatchDone {
        /// Which.
        worker: WorkerIndex,
    },
    /// A worker takes no further batch until it is ready again; one that runs is run to its end.
    WorkerHeld {
        /// Which.
        worker: WorkerIndex,
    },
    /// A worker is dead, with or without a batch.
    WorkerLost {
        /// Which.
        worker: WorkerIndex,
        /// How far its batch is to blame: from 0, it had not begun, to [`crate::BLAME_MAX`].
        blame: u32,
    },
    /// The time of [`Actions::timer`] has come.
    Timer,
}

/// The rows do not fit the queue's bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{queued_rows} of {rows_max} rows are queued: {rows} more do not fit")]
pub struct QueueFull {
    /// Rows that were asked for.
    pub rows: usize,
    /// Rows reserved or waiting.
    pub queued_rows: usize,
    /// The bound.
    pub rows_max: usize,
}

#[derive(Debug)]
enum Worker {
    Absent,
    Free,
    Busy(Batch),
    /// Busy, and absent after that.
    Held(Batch),
}

/// The state of the scheduler.
#[derive(Debug)]
pub struct Scheduler {
    config: Config,
    queues: Vec<Queue>,
    workers: Vec<Worker>,
    /// Batches whose worker died, oldest first. A worker takes a new batch only while this is
    /// empty, so these and the running ones are together at most as many as the workers.
    replays: VecDeque<Batch>,
    /// Rows reserved or waiting, replays not among them.
    queued_rows: usize,
    /// Workers that are free.
    idle: usize,
    /// Empty vectors of finished batches, so that the steady state does not allocate.
    spare: Vec<Vec<Entry>>,
    now: Nanos,
}

impl Scheduler {
    /// No request, and every worker absent.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            queues: (0..config.queues).map(|_| Queue::default()).collect(),
            workers: (0..config.workers).map(|_| Worker::Absent).collect(),
            replays: VecDeque::with_capacity(config.workers),
            queued_rows: 0,
            idle: 0,
            spare: Vec::with_capacity(config.workers),
            now: Nanos(0),
            config,
        }
    }

    /// Another release rule and other bounds from the next step on. What waits stays, also rows
    /// beyond a lower bound and requests beyond a smaller batch, which run as batches of their own.
    pub fn set_rules(&mut self, policy: Policy, batch_rows_max: usize, queue_rows_max: usize) {
        self.config.policy = policy;
        self.config.batch_rows_max = batch_rows_max;
        self.config.queue_rows_max = queue_rows_max;
    }

    /// One queue more; the others keep their names.
    pub fn add_queue(&mut self) -> QueueIndex {
        self.queues.push(Queue::default());
        self.config.queues = self.queues.len();
        QueueIndex(self.queues.len() - 1)
    }

    /// Takes room for rows that may arrive later.
    ///
    /// # Errors
    /// They would exceed the bound; nothing is taken then.
    pub fn reserve(&mut self, rows: usize) -> Result<(), QueueFull> {
        let rows_max = self.config.queue_rows_max;
        match self.queued_rows.checked_add(rows) {
            Some(sum) if sum <= rows_max => {
                self.queued_rows = sum;
                Ok(())
            }
            _ => Err(QueueFull {
                rows,
                queued_rows: self.queued_rows,
                rows_max,
            }),
        }
    }

    /// Gives back room for rows that will not arrive.
    pub fn unreserve(&mut self, rows: usize) {
        self.queued_rows = self.queued_rows.saturating_sub(rows);
    }

    /// Rows reserved or waiting.
    #[must_use]
    pub fn queued_rows(&self) -> usize {
        self.queued_rows
    }

    /// Workers that run a batch.
    #[must_use]
    pub fn busy_workers(&self) -> usize {
        self.workers
            .iter()
            .filter(|worker| matches!(worker, Worker::Busy(_) | Worker::Held(_)))
            .count()
    }

    /// Workers that are up and free.
    #[must_use]
    pub fn idle_workers(&self) -> usize {
        self.idle
    }

    /// Whether this worker is up.
    #[must_use]
    pub fn is_present(&self, worker: WorkerIndex) -> bool {
        let state = self.workers.get(worker.0);
        state.is_some_and(|state| !matches!(state, Worker::Absent))
    }

    /// Workers that are up.
    #[must_use]
    pub fn present_workers(&self) -> usize {
        self.workers
            .iter()
            .filter(|worker| !matches!(worker, Worker::Absent))
            .count()
    }

    /// Takes an event in at `now` (a time before the last one counts as the last one) and writes
    /// what is to be done into `actions`.
    pub fn step(&mut self, event: Event, now: Nanos, actions: &mut Actions) {
        actions.clear();
        self.now = self.now.max(now);
        match event {
            Event::Arrived { queue, key, rows } => {
                let entry = Entry {
                    key,
                    rows,
                    arrival: self.now,
                };
                let is_queued = self.queues.get_mut(queue.0).is_some_and(|q| q.push(entry));
                debug_assert!(is_queued, "{queue:?} {key:?} with {rows} rows");
            }
            Event::Withdrawn { queue, key } => self.withdraw(queue, key),
            Event::WorkerReady { worker } => self.welcome(worker),
            Event::WorkerHeld { worker } => self.hold(worker),
            Event::BatchDone { worker } => self.finish(worker),
            Event::WorkerLost { worker, blame } => self.lose(worker, blame, actions),
            Event::Timer => {}
        }
        self.match_workers(actions);
    }

    fn withdraw(&mut self, queue: QueueIndex, key: RequestKey) {
        match self.queues.get_mut(queue.0).and_then(|q| q.withdraw(key)) {
            Some(rows) => self.unreserve(rows),
            // What runs is not stopped, but if its worker dies it is not run again.
            None => {
                let running = self.workers.iter_mut().filter_map(|worker| match worker {
                    Worker::Busy(batch) | Worker::Held(batch) => Some(batch),
                    Worker::Absent | Worker::Free => None,
                });
                for batch in self.replays.iter_mut().chain(running) {
                    if batch.queue == queue {
                        batch.withdraw(key);
                    }
                }
                self.replays.retain(|batch| !batch.entries.is_empty());
            }
        }
    }

    fn welcome(&mut self, worker: WorkerIndex) {
        let Some(state) = self.workers.get_mut(worker.0) else {
            return;
        };
        *state = match std::mem::replace(state, Worker::Free) {
            Worker::Absent => {
                self.idle += 1;
                Worker::Free
            }
            Worker::Held(batch) => Worker::Busy(batch),
            state @ (Worker::Free | Worker::Busy(_)) => state,
        };
    }

    fn hold(&mut self, worker: WorkerIndex) {
        let Some(state) = self.workers.get_mut(worker.0) else {
            return;
        };
        *state = match std::mem::replace(state, Worker::Absent) {
            Worker::Free => {
                self.idle -= 1;
                Worker::Absent
            }
            Worker::Busy(batch) => Worker::Held(batch),
            state @ (Worker::Absent | Worker::Held(_)) => state,
        };
    }

    fn finish(&mut self, worker: WorkerIndex) {
        let Some(state) = self.workers.get_mut(worker.0) else {
            return;
        };
        match std::mem::replace(state, Worker::Absent) {
            Worker::Busy(batch) => {
                *state = Worker::Free;
                self.idle += 1;
                self.recycle(batch.entries);
            }
            Worker::Held(batch) => self.recycle(batch.entries),
            other @ (Worker::Absent | Worker::Free) => *state = other,
        }
    }

    fn lose(&mut self, worker: WorkerIndex, blame: u32, actions: &mut Actions) {
        let Some(state) = self.workers.get_mut(worker.0) else {
            return;
        };
        let lost = std::mem::replace(state, Worker::Absent);
        self.idle -= usize::from(matches!(lost, Worker::Free));
        if let Worker::Busy(mut batch) | Worker::Held(mut batch) = lost {
            batch.losses = batch.losses.saturating_add(1);
            batch.blame = batch.blame.saturating_add(blame);
            if batch.blame < BLAME_MAX && !batch.entries.is_empty() {
                self.replays.push_back(batch);
                return;
            }
            let losses = batch.losses;
            actions
                .abandoned
                .extend(batch.entries.iter().map(|entry| Abandoned {
                    key: entry.key,
                    losses,
                }));
            self.recycle(batch.entries);
        }
    }

    fn recycle(&mut self, mut entries: Vec<Entry>) {
        if self.spare.len() < self.config.workers {
            entries.clear();
            self.spare.push(entries);
        }
    }

    fn match_workers(&mut self, actions: &mut Actions) {
        for index in 0..self.workers.len() {
            if !matches!(self.workers[index], Worker::Free) {
                continue;
            }
            let batch = match self.replays.pop_front() {
                Some(batch) => batch,
                None => match self.next_batch(actions) {
                    Some(batch) => batch,
                    None => return,
                },
            };
            actions.dispatch(
                WorkerIndex(index),
                batch.queue,
                &batch.entries,
                batch.losses,
            );
            self.workers[index] = Worker::Busy(batch);
            self.idle -= 1;
        }
        // No worker is free: the next one to be free looks at every queue again.
        actions.timer = None;
    }

    /// The batch whose window is open and ends first; if there is none, sets the timer.
    fn next_batch(&mut self, actions: &mut Actions) -> Option<Batch> {
        let (rows_max, requests_max) = (self.config.batch_rows_max, self.config.batch_requests_max);
        let mut best = None;
        let mut opens = Nanos::MAX;
        for (index, queue) in self.queues.iter().enumerate() {
            let Some(candidate) = queue.candidate(rows_max, requests_max) else {
                continue;
            };
            let window = self.config.policy.window(&candidate);
            if window.exec > self.now {
                opens = opens.min(window.exec);
                continue;
            }
            let order = (window.latest, candidate.oldest, index);
            if best.is_none_or(|best| order < best) {
                best = Some(order);
            }
        }
        let Some((_, _, index)) = best else {
            actions.timer = (opens < Nanos::MAX).then_some(opens);
            return None;
        };
        let mut entries = self.spare.pop().unwrap_or_default();
        let rows = self
            .queues
            .get_mut(index)?
            .take(rows_max, requests_max, &mut entries);
        self.unreserve(rows);
        Some(Batch {
            queue: QueueIndex(index),
            entries,
            losses: 0,
            blame: 0,
        })
    }
}
