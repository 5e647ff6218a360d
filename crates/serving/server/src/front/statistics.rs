//! Counters of infer calls by model, for the statistics extension of Triton.
//!
//! The time of a call has four phases: parsing it into shared memory (input), waiting for a worker
//! (queue), computing (infer), writing the reply (output).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use albacore_engine::Timing;

/// An infer call that was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnsweredCall {
    pub(super) rows: usize,
    /// From the end of the body to rows in shared memory.
    pub(super) parsing: Duration,
    /// Waiting and computing in the engine.
    pub(super) timing: Timing,
    /// When the results were available.
    pub(super) computed_at: Instant,
}

/// A count and a sum of durations in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Total {
    pub(super) count: u64,
    pub(super) nanos: u64,
}

#[derive(Debug, Default)]
struct AtomicTotal {
    count: AtomicU64,
    nanos: AtomicU64,
}

impl AtomicTotal {
    fn add(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    fn load(&self) -> Total {
        Total {
            count: self.count.load(Ordering::Relaxed),
            nanos: self.nanos.load(Ordering::Relaxed),
        }
    }
}

#[derive(Debug, Default)]
struct Counters {
    success: AtomicTotal,
    fail: AtomicTotal,
    queue: AtomicTotal,
    input: AtomicTotal,
    infer: AtomicTotal,
    output: AtomicTotal,
    rows: AtomicU64,
    last_unix_ms: AtomicU64,
}

/// The counters of one model since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ModelTotals {
    /// Answered calls, from arrival to reply.
    pub(super) success: Total,
    /// Calls that were refused or failed.
    pub(super) fail: Total,
    pub(super) queue: Total,
    pub(super) input: Total,
    pub(super) infer: Total,
    pub(super) output: Total,
    /// Rows of answered calls.
    pub(super) rows: u64,
    /// Time of the last reply, milliseconds since 1970; 0 for none.
    pub(super) last_unix_ms: u64,
}

/// The counters of all models that were called since the server started.
#[derive(Debug, Default)]
pub(super) struct Statistics(RwLock<BTreeMap<String, Arc<Counters>>>);

impl Statistics {
    /// Counts a call of a model that exists; `answered` is `None` if it was refused or failed.
    pub(super) fn count(&self, model: &str, took: Duration, answered: Option<&AnsweredCall>) {
        let counters = self.counters(model);
        let Some(answered) = answered else {
            counters.fail.add(took);
            return;
        };
        counters.success.add(took);
        counters.input.add(answered.parsing);
        counters.queue.add(answered.timing.queue);
        counters.infer.add(answered.timing.compute);
        counters.output.add(answered.computed_at.elapsed());
        counters
            .rows
            .fetch_add(answered.rows as u64, Ordering::Relaxed);
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let millis = since.map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        });
        counters.last_unix_ms.fetch_max(millis, Ordering::Relaxed);
    }

    fn counters(&self, model: &str) -> Arc<Counters> {
        let models = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(counters) = models.get(model) {
            return Arc::clone(counters);
        }
        drop(models);
        let mut models = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(models.entry(model.to_owned()).or_default())
    }

    /// The counters of `model`.
    pub(super) fn totals(&self, model: &str) -> ModelTotals {
        let models = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(counters) = models.get(model) else {
            return ModelTotals::default();
        };
        ModelTotals {
            success: counters.success.load(),
            fail: counters.fail.load(),
            queue: counters.queue.load(),
            input: counters.input.load(),
            infer: counters.infer.load(),
            output: counters.output.load(),
            rows: counters.rows.load(Ordering::Relaxed),
            last_unix_ms: counters.last_unix_ms.load(Ordering::Relaxed),
        }
    }
}
