//! Runs the placer on its own thread. Its reports are aggregated in [`SharedStats`]; commands are
//! sent through its handle.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use albacore_placer::{
    LoopStatus, Placer, PlacerConfig, PlacerError, PlacerHandle, Report, RestoreSummary,
    raise_thread_priority,
};
use albacore_topology::Topology;
use albacore_values::sentence;
use k8s_openapi::jiff::Timestamp;

use crate::limits::{ITERATION_PERIOD, PLACER_PAUSE_MAX, PLACER_PAUSE_MIN};
use crate::placer_stats::{PlacerFailure, SharedStats};

/// Called after each report of the placer.
pub(crate) type WakeFn = Arc<dyn Fn() + Send + Sync>;

pub(crate) struct PlacerThread {
    pub(crate) handle: PlacerHandle,
    thread: JoinHandle<RestoreSummary>,
}

impl PlacerThread {
    /// Starts a placer without subjects; also returns its machine.
    ///
    /// # Errors
    /// The machine cannot be read, or file descriptors or threads are exhausted.
    pub(crate) fn start(
        config: PlacerConfig,
        use_connector: bool,
        stats: SharedStats,
        wake: WakeFn,
    ) -> Result<(Self, Topology), PlacerError> {
        let (ready, started) = sync_channel(1);
        let thread = std::thread::Builder::new().name("placer".to_owned());
        let body = move || {
            let mut placer = match Placer::new(config) {
                Ok(placer) => placer,
                Err(error) => {
                    drop(ready.send(Err(error)));
                    return RestoreSummary::default();
                }
            };
            drop(ready.send(Ok((placer.handle(), placer.machine().clone()))));
            let connected = use_connector.then(|| placer.subscribe_spawn_events());
            if let Some(Err(error)) = connected {
                tracing::warn!(%error, "new threads are found by polling");
                stats.lock().polling_reason = Some(error.to_string());
            }
            run_placer(&mut placer, &stats, &wake)
        };
        let thread = thread
            .spawn(body)
            .map_err(|source| albacore_os::OsError::Call {
                call: "clone",
                source,
            })?;
        match started.recv() {
            Ok(Ok((handle, machine))) => Ok((Self { handle, thread }, machine)),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(PlacerError::Os(albacore_os::OsError::Call {
                call: "clone",
                source: std::io::Error::other("the placer's thread ended immediately"),
            })),
        }
    }

    /// Whether the thread has ended without a stop command.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Stops the placer; returns the masks that it gave back.
    pub(crate) fn stop(self) -> RestoreSummary {
        // The placer has ended, or it accepts the command, because each step drains the queue.
        for _ in 0..100 {
            if self.handle.stop() != Err(albacore_placer::ControlError::Full) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.thread.join().unwrap_or_default()
    }
}

/// Runs the placer until the stop command, then gives every mask back. Failed steps are retried
/// with an increasing backoff.
fn run_placer(placer: &mut Placer, stats: &SharedStats, wake: &WakeFn) -> RestoreSummary {
    let mut record = |report: &Report| {
        stats.lock().record(report, Timestamp::now());
        wake();
    };
    raise_thread_priority(&mut record);
    let mut failures = 0;
    // bound: one wait per iteration; ends with the command to stop
    loop {
        match placer.step(ITERATION_PERIOD, &mut record) {
            Ok(LoopStatus::Running) => {
                failures = 0;
                if stats.lock().failure.take().is_some() {
                    wake();
                }
            }
            Ok(LoopStatus::Stopped) => return placer.restore(&mut record),
            Err(error) => {
                if record_failure(stats, &error) {
                    let (category, error) = (error.category(), sentence(&error));
                    tracing::warn!(category, error, "placing failed; it is retried");
                    wake();
                }
                let pause = PLACER_PAUSE_MIN.saturating_mul(1 << failures.min(8));
                failures += 1;
                std::thread::sleep(pause.min(PLACER_PAUSE_MAX));
            }
        }
    }
}

/// Records why a step failed; returns true if the reason changed.
fn record_failure(stats: &SharedStats, error: &PlacerError) -> bool {
    let failure = Some(PlacerFailure::of(error));
    let mut stats = stats.lock();
    if let PlacerError::NotPermitted(_) = error {
        stats.write_refusal = Some(error.to_string());
    }
    std::mem::replace(&mut stats.failure, failure.clone()) != failure
}
