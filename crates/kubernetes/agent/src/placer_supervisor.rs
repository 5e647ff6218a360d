//! Keeps a placer running: starts it, detects that its thread ended, and restarts it with a
//! backoff.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use albacore_os::HostRoot;
use albacore_placer::{PlacerConfig, PlacerHandle, RestoreSummary};
use albacore_topology::Topology;

use crate::limits::PLACER_PAUSE_MAX;
use crate::placer_stats::{PlacerFailure, PlacerStats, SharedStats};
use crate::placer_thread::{PlacerThread, WakeFn};
use crate::waker::LoopWaker;

pub(crate) struct PlacerSupervisor {
    host: HostRoot,
    /// Whether new threads are detected by the kernel's process connector instead of by polling.
    use_connector: bool,
    /// Directory of measured distances.
    distances: Option<PathBuf>,
    wake: WakeFn,
    stats: SharedStats,
    thread: Option<PlacerThread>,
    /// Earliest time of the next start after a failed one.
    retry_at: Option<Instant>,
}

impl PlacerSupervisor {
    /// Does not start a placer yet. `waker` is called after each report of the placer.
    pub(crate) fn new(
        host: HostRoot,
        use_connector: bool,
        distances: Option<PathBuf>,
        waker: LoopWaker,
    ) -> Self {
        Self {
            host,
            use_connector,
            distances,
            wake: Arc::new(move || waker.wake()),
            stats: SharedStats::default(),
            thread: None,
            retry_at: None,
        }
    }

    /// Aggregated reports of the running placer.
    pub(crate) fn stats(&self) -> &SharedStats {
        &self.stats
    }

    pub(crate) fn is_running(&self) -> bool {
        self.thread.is_some()
    }

    pub(crate) fn handle(&self) -> Option<&PlacerHandle> {
        self.thread.as_ref().map(|thread| &thread.handle)
    }

    /// Removes a placer whose thread ended by itself; returns true if it had ended.
    pub(crate) fn reap(&mut self) -> bool {
        let has_ended = self.thread.as_ref().is_some_and(PlacerThread::has_ended);
        if has_ended {
            tracing::error!(
                "the placer ended unexpectedly; a new one adopts the threads that it pinned"
            );
            self.thread = None;
            *self.stats.lock() = PlacerStats::default();
        }
        has_ended
    }

    /// Starts a placer if none runs and the backoff has elapsed; returns its machine if it started.
    pub(crate) fn start(&mut self, now: Instant) -> Option<Topology> {
        if self.thread.is_some() || self.retry_at.is_some_and(|at| now < at) {
            return None;
        }
        let config = PlacerConfig {
            host: self.host.clone(),
            limit: None,
            distances: self.distances.clone(),
        };
        let (stats, wake) = (self.stats.clone(), self.wake.clone());
        match PlacerThread::start(config, self.use_connector, stats, wake) {
            Ok((thread, machine)) => {
                self.thread = Some(thread);
                Some(machine)
            }
            Err(error) => {
                let failure = PlacerFailure::of(&error);
                let error = &failure.message;
                tracing::warn!(error, "the placer cannot be started; it is retried");
                self.retry_at = Some(now + PLACER_PAUSE_MAX);
                self.stats.lock().failure = Some(failure);
                None
            }
        }
    }

    /// Stops the placer, which gives back all remaining masks.
    pub(crate) fn stop(&mut self) -> RestoreSummary {
        self.thread
            .take()
            .map(PlacerThread::stop)
            .unwrap_or_default()
    }
}
