//! A work queue of keys: each key is processed by one worker at a time, and failed keys are retried
//! with a backoff that depends on the class of the error.
//!
//! A key that is added while it is queued is processed once; a key that is added while it is
//! processed is processed again. So the queue is never longer than the number of objects, and no
//! addition is lost. As in client-go's workqueue.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::future::Future;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::jitter::{backoff, with_jitter};
use crate::limits::{
    DRAIN_TIME_MAX, FORBIDDEN_PAUSE_MAX, FORBIDDEN_PAUSE_MIN, KIND_UNKNOWN_PAUSE_MAX,
    KIND_UNKNOWN_TRIES, RETRY_PAUSE_MAX, RETRY_PAUSE_MIN,
};
use crate::metrics::{MetricsRegistry, NameLabel};
use crate::{ErrorClass, Shutdown};

/// The result of processing a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkOutcome {
    /// Nothing to do until the key is added again.
    Done,
    /// Requeue the key after this time.
    After(Duration),
    /// It failed; the class of the error determines when it is retried.
    Failed(ErrorClass),
}

impl WorkOutcome {
    /// The pause until the key is retried; `failures` is the number of consecutive failures
    /// including this one.
    fn pause(self, failures: u32) -> Option<Duration> {
        let times = failures.saturating_sub(1);
        match self {
            Self::Done | Self::Failed(ErrorClass::Invalid) => None,
            Self::After(pause) => Some(pause),
            Self::Failed(ErrorClass::Throttled(after)) => Some(with_jitter(after)),
            Self::Failed(ErrorClass::Forbidden) => {
                Some(backoff(FORBIDDEN_PAUSE_MIN, FORBIDDEN_PAUSE_MAX, times))
            }
            // The API server discovers new kinds within half a minute; after that another cause is
            // likely.
            Self::Failed(ErrorClass::KindUnknown) if times < KIND_UNKNOWN_TRIES => {
                Some(backoff(RETRY_PAUSE_MIN, KIND_UNKNOWN_PAUSE_MAX, times))
            }
            Self::Failed(
                ErrorClass::Conflict
                | ErrorClass::NotFound
                | ErrorClass::KindUnknown
                | ErrorClass::Transient
                | ErrorClass::Bug,
            ) => Some(backoff(RETRY_PAUSE_MIN, RETRY_PAUSE_MAX, times)),
        }
    }
}

#[derive(Debug)]
struct QueuedKey {
    /// When it is due, with a sequence number to break ties; `None` while it is processed and was
    /// not added again.
    due: Option<(Instant, u64)>,
    is_running: bool,
    /// Consecutive failures.
    failures: u32,
}

#[derive(Debug)]
struct WorkQueueState<T> {
    entries: HashMap<T, QueuedKey>,
    /// Queued keys in the order in which they are due.
    order: BTreeMap<(Instant, u64), T>,
    /// Number of keys added so far, used as sequence number: of keys due at the same time, the
    /// first added runs first.
    number: u64,
}

impl<T: Clone + Eq + Hash> WorkQueueState<T> {
    fn add(&mut self, key: T, at: Instant) {
        self.number += 1;
        let due = (at, self.number);
        let entry = self.entries.entry(key.clone()).or_insert(QueuedKey {
            due: None,
            is_running: false,
            failures: 0,
        });
        if entry.due.is_some_and(|before| before.0 <= at) {
            return;
        }
        let before = entry.due.replace(due);
        if !entry.is_running {
            if let Some(before) = before {
                self.order.remove(&before);
            }
            self.order.insert(due, key);
        }
    }

    /// Takes the next key that is due; if none is, returns when the next one will be.
    fn take_due(&mut self, now: Instant) -> Result<T, Option<Instant>> {
        let Some(first) = self.order.first_entry() else {
            return Err(None);
        };
        if first.key().0 > now {
            return Err(Some(first.key().0));
        }
        let key = first.remove();
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.due = None;
            entry.is_running = true;
        }
        Ok(key)
    }

    /// Records the result of a key; returns true if the key runs again without being added.
    fn finish(&mut self, key: T, outcome: WorkOutcome, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(&key) else {
            return false;
        };
        entry.is_running = false;
        entry.failures = match outcome {
            WorkOutcome::Failed(_) => entry.failures.saturating_add(1),
            WorkOutcome::Done | WorkOutcome::After(_) => 0,
        };
        let pause = outcome.pause(entry.failures);
        match (entry.due, pause) {
            (None, None) => {
                self.entries.remove(&key);
            }
            (Some(due), None) => {
                self.order.insert(due, key);
            }
            (before, Some(pause)) => {
                entry.due = None;
                let at = now + pause;
                let at = before.map_or(at, |(before, _)| before.min(at));
                self.add(key, at);
            }
        }
        pause.is_some()
    }
}

/// A work queue. Clones share it.
#[derive(Debug)]
pub struct WorkQueue<T> {
    name: &'static str,
    state: Arc<Mutex<WorkQueueState<T>>>,
    changed: Arc<Notify>,
    metrics: MetricsRegistry,
}

impl<T> Clone for WorkQueue<T> {
    fn clone(&self) -> Self {
        Self {
            name: self.name,
            state: self.state.clone(),
            changed: self.changed.clone(),
            metrics: self.metrics.clone(),
        }
    }
}

impl<T: Clone + Display + Eq + Hash + Send + 'static> WorkQueue<T> {
    /// An empty queue with this name in metrics.
    pub fn new(name: &'static str, metrics: &MetricsRegistry) -> Self {
        let state = WorkQueueState {
            entries: HashMap::new(),
            order: BTreeMap::new(),
            number: 0,
        };
        Self {
            name,
            state: Arc::new(Mutex::new(state)),
            changed: Arc::new(Notify::new()),
            metrics: metrics.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, WorkQueueState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues the key for immediate processing.
    pub fn add(&self, key: T) {
        self.add_after(key, Duration::ZERO);
    }

    /// Queues the key to run after `pause`, or earlier if it is already queued for an earlier time.
    pub fn add_after(&self, key: T, pause: Duration) {
        self.lock().add(key, Instant::now() + pause);
        let name = NameLabel { name: self.name };
        self.metrics.own().added.get_or_create(&name).inc();
        self.changed.notify_one();
    }

    /// Processes at most `workers` keys concurrently until shutdown, then waits for the keys in
    /// progress. A panic is a bug related to one key: it is logged, and the key is retried later.
    pub async fn run<W, F>(&self, workers: usize, shutdown: &Shutdown, work: W)
    where
        W: Fn(T) -> F,
        F: Future<Output = WorkOutcome> + Send + 'static,
    {
        let mut running = JoinSet::new();
        // bound: until shutdown; each turn starts or finishes a key, or waits.
        while !shutdown.is_triggered() {
            let next = match running.len() < workers {
                true => self.lock().take_due(Instant::now()),
                false => Err(None),
            };
            self.set_waiting();
            match next {
                Ok(key) => {
                    let (queue, work) = (self.clone(), work(key.clone()));
                    running.spawn(async move { queue.run_one(key, work).await });
                }
                Err(due) => self.wait(due, &mut running, shutdown).await,
            }
        }
        let drained = async { while running.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_TIME_MAX, drained).await.is_err() {
            let queue = self.name;
            tracing::warn!(queue, "work did not end in time and is abandoned");
        }
    }

    /// Processes one key and records its result.
    async fn run_one(&self, key: T, work: impl Future<Output = WorkOutcome> + Send + 'static) {
        let outcome = tokio::spawn(work).await.unwrap_or_else(|error| {
            let (queue, key) = (self.name, key.to_string());
            tracing::error!(queue, key, %error, "work on a key panicked");
            WorkOutcome::Failed(ErrorClass::Bug)
        });
        let is_again = self.lock().finish(key, outcome, Instant::now());
        let (metrics, name) = (self.metrics.own(), NameLabel { name: self.name });
        metrics.worked.get_or_create(&name).inc();
        if is_again {
            metrics.worked_again.get_or_create(&name).inc();
        }
        self.changed.notify_one();
    }

    async fn wait(&self, due: Option<Instant>, running: &mut JoinSet<()>, shutdown: &Shutdown) {
        let is_due = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = is_due => {}
            () = self.changed.notified() => {}
            Some(_) = running.join_next() => {}
            () = shutdown.triggered() => {}
        }
    }

    fn set_waiting(&self) {
        let waiting = self.lock().order.len();
        let name = NameLabel { name: self.name };
        let gauge = self.metrics.own().waiting.get_or_create(&name);
        gauge.set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests;
