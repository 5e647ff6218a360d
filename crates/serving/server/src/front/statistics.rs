//! Counters of infer calls by model, for the statistics extension of Triton.
//!
//! The time of a call has four phases: parsing it into shared memory (input), waiting for a worker
//! (queue), computing (infer), writing the reply (output).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use albacore_engine::Timing;
use albacore_proto::inference::StatisticDuration;

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
#[derive(Debug, Default)]
pub(super) struct AtomicTotal {
    count: AtomicU64,
    nanos: AtomicU64,
}

impl AtomicTotal {
    fn add(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(super) fn load(&self) -> StatisticDuration {
        StatisticDuration {
            count: self.count.load(Ordering::Relaxed),
            ns: self.nanos.load(Ordering::Relaxed),
        }
    }
}

/// The counters of one model since the server started.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Answered calls, from arrival to reply.
    pub(super) success: AtomicTotal,
    /// Calls that were refused or failed.
    pub(super) fail: AtomicTotal,
    pub(super) queue: AtomicTotal,
    pub(super) input: AtomicTotal,
    pub(super) infer: AtomicTotal,
    pub(super) output: AtomicTotal,
    /// Rows of answered calls.
    pub(super) rows: AtomicU64,
    /// Time of the last reply, milliseconds since 1970; 0 for none.
    pub(super) last_unix_ms: AtomicU64,
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

    /// The counters of `model`, a model that exists.
    pub(super) fn counters(&self, model: &str) -> Arc<Counters> {
        let models = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(counters) = models.get(model) {
            return Arc::clone(counters);
        }
        drop(models);
        let mut models = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(models.entry(model.to_owned()).or_default())
    }
}
