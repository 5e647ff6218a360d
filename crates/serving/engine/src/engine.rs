//! The public interface of the engine.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use albacore_batching::{BatchingParams, Config, ModelBatching, Slo};
use albacore_supervision::{Link, WorkerHost};
use albacore_worker::RevisionId;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::LoopIndex;
use crate::catalog::ModelSlotsExhausted;
use crate::error::{InstallError, ModelLookupError, StartError};
use crate::event::Observer;
use crate::event_loop::EventLoop;
use crate::load::LoadedModel;
use crate::model::ModelRevision;
use crate::request::ModelHandle;
use crate::stats::Stats;

use crate::limits::{BATCH_REQUESTS_MAX, INSTALL_DEADLINE, STARTUP_DEADLINE, STARTUP_FAILURES_MAX};
use crate::load_totals::{LoadTotals, ModelLoadTotals};
use crate::shared_state::{Parallelism, SharedState, run_completions};
use crate::state::{EnginePhase, State};
use crate::supervisor::WorkerSupervisor;

/// Configuration of an engine; the command line has checked its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    pub workers: usize,
    /// Compute threads of each worker (T).
    pub threads: usize,
    /// Maximum number of cpus to use, if they are limited by other means than the cgroup.
    pub cpus_max: Option<usize>,
    pub batching: BatchingParams,
    /// Number of this front, unique among the fronts that use the same workers in succession.
    pub front: u64,
}

/// The engine: owns memory, queues, batches and workers.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<SharedState>,
    supervisor: Mutex<Option<JoinHandle<()>>>,
    completions: Vec<AbortHandle>,
    /// Serializes installations of models.
    installing: tokio::sync::Mutex<()>,
    broken: tokio::sync::watch::Receiver<Option<&'static str>>,
}

/// Reports that a task has ended when it is dropped, for whatever reason.
struct ExitGuard(
    tokio::sync::watch::Sender<Option<&'static str>>,
    &'static str,
);

impl Drop for ExitGuard {
    fn drop(&mut self) {
        self.0.send_replace(Some(self.1));
    }
}

/// Flushes coalesced requests. Every thread that submits requests must flush before it sleeps,
/// because small requests wait for the flush.
#[derive(Clone, Debug)]
pub struct FlushHandle(Weak<SharedState>, LoopIndex);

impl FlushHandle {
    /// Schedules the coalesced requests. Wakes no task of the runtime.
    pub fn flush(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.flush(self.1);
        }
    }
}

impl Engine {
    /// Like [`Engine::start_on`], with the current tokio runtime as the only event loop, and with
    /// workers that are children of this process; `program` must accept
    /// [`albacore_worker::SUBCOMMAND`] as its first argument.
    ///
    /// # Errors
    /// See [`Engine::start_on`].
    pub fn start(
        config: &EngineConfig,
        program: &Path,
        models: Vec<LoadedModel>,
        observer: Observer,
    ) -> Result<Self, StartError> {
        let event_loop = EventLoop {
            runtime: Handle::current(),
            thread: None,
        };
        let host = WorkerHost::on_thread(program)?;
        Self::start_on(config, models, observer, &[event_loop], host)
    }

    /// Starts an engine without waiting for its workers; [`Engine::wait_until_ready`] waits for
    /// them. They are started, or taken over from another front, once their host has listed the
    /// running ones. Each event loop collects the results of its requests.
    ///
    /// # Errors
    /// Memory, descriptors or threads cannot be created.
    pub fn start_on(
        config: &EngineConfig,
        models: Vec<LoadedModel>,
        observer: Observer,
        event_loops: &[EventLoop],
        host: Link,
    ) -> Result<Self, StartError> {
        // Each connection of the front needs a descriptor, too: the limit of 1,024 that service
        // managers set is soon reached.
        if let Err(error) = albacore_os::raise_descriptor_limit() {
            tracing::warn!(%error, "the limit of open files cannot be raised");
        }
        let parallelism = Parallelism {
            workers: config.workers,
            threads: config.threads,
        };
        let scheduling = Config {
            queues: 0,
            workers: config.workers,
            batching: config.batching,
            batch_requests_max: BATCH_REQUESTS_MAX,
        };
        let loops = event_loops.len();
        let state = State::new(scheduling, config.threads, loops, config.front);
        let shared = SharedState::new(parallelism, event_loops, state, observer)?;
        let shared = Arc::new(shared);
        shared.set_queue_rows_max(config.batching.queue_rows_max);
        shared.update(|state, _, out| {
            for model in models {
                let slot = state.declare(&model.info.name, None)?;
                let (reply, _) = tokio::sync::oneshot::channel();
                let revision = model.into_revision(state.catalog.next_id(), slot);
                state.propose(revision, reply, out);
                state.promote(out);
            }
            Ok::<_, ModelSlotsExhausted>(())
        })?;
        let (breaks, broken) = tokio::sync::watch::channel(None);
        let complete = |(index, event_loop): (usize, &EventLoop)| {
            let completing = run_completions(Arc::clone(&shared), LoopIndex(index));
            let guard = ExitGuard(
                breaks.clone(),
                "messages of the workers are no longer received",
            );
            let completing = async move {
                let _guard = guard;
                if let Err(error) = completing.await {
                    tracing::error!(%error, "messages of the workers cannot be received");
                }
            };
            event_loop.runtime.spawn(completing).abort_handle()
        };
        let completions = event_loops.iter().enumerate().map(complete).collect();
        let supervisor = WorkerSupervisor::new(Arc::clone(&shared), host, config.cpus_max)?;
        let supervisor = std::thread::Builder::new()
            .name("albf.watch".to_owned())
            .spawn(move || {
                let _guard = ExitGuard(breaks, "the workers are no longer supervised");
                // At a takeover, all requests wait until the workers are attached.
                albacore_os::shorten_time_slice();
                if let Err(error) = supervisor.run() {
                    tracing::error!(%error, "workers can no longer be supervised");
                }
            })?;
        Ok(Self {
            shared,
            supervisor: Mutex::new(Some(supervisor)),
            completions,
            installing: tokio::sync::Mutex::new(()),
            broken,
        })
    }

    /// One handle per event loop. After this call, small requests wait until the handle of their
    /// loop is flushed.
    #[must_use]
    pub fn flush_handles(&self) -> Vec<FlushHandle> {
        self.shared.inboxes.enable();
        let loops = 0..self.completions.len();
        let handle = |index| FlushHandle(Arc::downgrade(&self.shared), LoopIndex(index));
        loops.map(handle).collect()
    }

    /// Waits until every worker is up; then the engine becomes ready.
    ///
    /// # Errors
    /// See [`Engine::wait_for_workers`].
    pub async fn wait_until_ready(&self) -> Result<(), StartError> {
        self.wait_for_workers().await?;
        self.serve();
        Ok(())
    }

    /// From now on the engine is ready while at least one worker is up.
    pub fn serve(&self) {
        self.enter(EnginePhase::Serving);
    }

    /// Waits until every worker is up.
    ///
    /// # Errors
    /// Workers exit before they are ready, or take too long. The engine must then be stopped.
    pub async fn wait_for_workers(&self) -> Result<(), StartError> {
        let workers = self.shared.parallelism.workers;
        let outcome = self.shared.wait_until(|state| {
            if state.workers.ready() == workers {
                return Some(Ok(()));
            }
            let (failures, cause) = state.workers.most_failed_start();
            (failures >= STARTUP_FAILURES_MAX).then(|| {
                Err(StartError::Workers {
                    failures,
                    cause: cause.to_owned(),
                })
            })
        });
        tokio::time::timeout(STARTUP_DEADLINE, outcome)
            .await
            .unwrap_or(Err(StartError::Slow))
    }

    /// Resolves if a part of the engine stops unexpectedly: requests may then remain unanswered,
    /// and the process should exit. Otherwise does not resolve before [`Engine::stop`].
    pub async fn wait_for_failure(&self) -> &'static str {
        let mut broken = self.broken.clone();
        let what = broken.wait_for(Option::is_some).await;
        what.ok()
            .and_then(|what| *what)
            .unwrap_or("the engine has ended")
    }

    /// The loaded models, in declaration order.
    #[must_use]
    pub fn models(&self) -> Vec<Arc<ModelRevision>> {
        self.shared.state().catalog.current().cloned().collect()
    }

    /// The names of all declared models, loaded or not.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let state = self.shared.state();
        let declared = state.catalog.declared();
        declared.map(|(_, name)| name.to_owned()).collect()
    }

    /// The name of the only model, loaded or not; takes no lock.
    #[must_use]
    pub fn single_model_name(&self) -> Option<String> {
        self.shared
            .catalog
            .load()
            .single_model_name()
            .map(str::to_owned)
    }

    /// The current revision of the model `name`, which will compute the handle's request.
    ///
    /// # Errors
    /// [`ModelLookupError`].
    pub fn model(&self, name: &str) -> Result<ModelHandle, ModelLookupError> {
        self.model_on(LoopIndex::default(), name)
    }

    /// Like [`Engine::model`], for a request that is read and answered by this event loop.
    ///
    /// # Errors
    /// [`ModelLookupError`].
    pub fn model_on(
        &self,
        event_loop: LoopIndex,
        name: &str,
    ) -> Result<ModelHandle, ModelLookupError> {
        ModelHandle::new(&self.shared, event_loop, name)
    }

    /// Declares exactly these models with these objectives. New models are not loaded yet;
    /// [`Engine::install`] loads them. Other models are removed; their accepted requests are
    /// answered.
    ///
    /// # Errors
    /// [`ModelSlotsExhausted`]; the models listed before it are declared.
    pub fn declare(&self, models: &[(&str, Option<Slo>)]) -> Result<(), ModelSlotsExhausted> {
        let names: Vec<&str> = models.iter().map(|&(name, _)| name).collect();
        self.shared.update(|state, now, out| {
            state.catalog.keep_only(&names);
            state.rollout.is_pending = true;
            for (name, objective) in models {
                state.declare(name, *objective)?;
            }
            // The deadlines of waiting requests may have changed.
            state.timer(now, out);
            Ok(())
        })
    }

    /// Sets how many threads of a worker may compute one batch of each declared model; `None` for
    /// all of them. Applies to batches dispatched from now on.
    pub fn set_batch_threads(&self, models: &[(&str, Option<usize>)]) {
        self.shared.update(|state, _, _| {
            for &(name, threads) in models {
                state.set_batch_threads(name, threads);
            }
        });
    }

    /// Sets the weight of a declared model, 1 to 10,000: its relative share of the workers' and the
    /// front's time. The default is 100.
    pub fn set_weight(&self, model: &str, weight: u32) {
        self.shared
            .update(|state, _, _| state.set_weight(model, weight));
    }

    /// Records a request of this model that ends without a result; returns how long to hold its
    /// reply, so that errors leave the front time for other replies. `is_refusal`: it ends by a
    /// [`crate::Refusal`].
    #[must_use]
    pub fn error_reply_delay(&self, model: &str, is_refusal: bool) -> Duration {
        let published = self.shared.catalog.load();
        let Ok(revision) = published.find(model) else {
            return Duration::ZERO;
        };
        let now = self.shared.now();
        self.shared.refresh_admission(now);
        self.shared
            .admission
            .error_reply_delay(revision.slot, is_refusal, now)
    }

    /// Compute threads of each worker.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.shared.parallelism.threads
    }

    /// Rolls out a declared model to every worker, then serves it instead of its current revision,
    /// which still computes requests accepted before.
    ///
    /// # Errors
    /// [`InstallError`]; the current revision is still served.
    pub async fn install(&self, model: LoadedModel) -> Result<(), InstallError> {
        let _alone = self.installing.lock().await;
        let (reply, installed) = tokio::sync::oneshot::channel();
        let unwanted = || InstallError::Refused("it was removed from the settings".to_owned());
        self.shared.update(|state, _, out| {
            if state.phase >= EnginePhase::Closing {
                return Err(InstallError::Refused("the server stops".to_owned()));
            }
            let slot = state
                .catalog
                .slot_of(&model.info.name)
                .ok_or_else(unwanted)?;
            let revision = model.into_revision(state.catalog.next_id(), slot);
            state.propose(revision, reply, out);
            Ok(())
        })?;
        match tokio::time::timeout(INSTALL_DEADLINE, installed).await {
            Ok(Ok(installed)) => installed.map_err(InstallError::Refused),
            Ok(Err(_)) => Err(InstallError::Refused("the server stops".to_owned())),
            Err(_) => {
                self.shared
                    .update(|state, _, out| state.reject("it timed out", out));
                Err(InstallError::Slow)
            }
        }
    }

    /// Unloads a declared model until it is installed again: new requests do not find it; accepted
    /// ones are answered, then its memory is released.
    pub fn unload(&self, model: &str) {
        self.shared.update(|state, _, _| {
            state.catalog.unload(model);
            state.rollout.is_pending = true;
        });
    }

    /// Serves a model installed by another front, whose workers have opened it as revision
    /// `number`. Must be called before the workers are taken over. Declares the model if necessary.
    ///
    /// # Errors
    /// [`ModelSlotsExhausted`].
    pub fn restore(&self, model: LoadedModel, number: u64) -> Result<(), ModelSlotsExhausted> {
        self.shared.update(|state, _, out| {
            let slot = match state.catalog.slot_of(&model.info.name) {
                Some(slot) => slot,
                None => state.declare(&model.info.name, None)?,
            };
            let (reply, _) = tokio::sync::oneshot::channel();
            state.propose(model.into_revision(RevisionId(number), slot), reply, out);
            state.promote(out);
            Ok(())
        })
    }

    /// Sets release rule and bounds, for waiting requests too. `models` are the declared models
    /// with their own batching; a model with `None` follows `params`.
    pub fn set_batching(&self, params: &BatchingParams, models: &[(&str, Option<ModelBatching>)]) {
        self.shared.set_queue_rows_max(params.queue_rows_max);
        self.shared
            .update(|state, now, out| state.set_batching(params, models, now, out));
    }

    /// Whether requests should be sent to this server: every worker was up once, at least one is
    /// up, and the engine is not draining.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let state = self.shared.state();
        state.phase == EnginePhase::Serving && state.workers.ready() > 0
    }

    /// A snapshot for `/metrics`.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let memory = self.shared.memory.usage();
        let (workers, now) = (self.shared.parallelism.workers, self.shared.now());
        let mut state = self.shared.state();
        state.take_admission_counts(now);
        state.take_tallies();
        let mut windows = state.counters.windows(now);
        let load = state.counters.load(workers, &windows, now);
        let declared = state.catalog.declared();
        Stats {
            models: declared
                .filter_map(|(slot, _)| {
                    let mut stats = state.model_stats(slot)?;
                    let window = windows.get_mut(slot).map(std::mem::take);
                    (stats.window, stats.bad_rate_allowed) = window.unwrap_or_default();
                    Some(stats)
                })
                .collect(),
            queue_rows: state.scheduler.queued_rows(),
            queue_rows_max: self.shared.queue_rows_max(),
            workers: self.shared.parallelism.workers,
            workers_ready: state.workers.ready(),
            workers_busy: state.scheduler.busy_workers(),
            threads: self.shared.parallelism.threads,
            each_worker: state.counters.workers.clone(),
            worker_restarts_total: state.counters.worker_restarts_total,
            worker_last_exit: state.counters.worker_last_exit.clone(),
            worker_hangs_total: state.counters.worker_hangs_total,
            replayed_batches_total: state.counters.replayed_batches_total,
            arena_used_bytes: memory.used,
            arena_bytes: memory.bytes,
            memory: state.memory_stats(),
            front_cost: state.front_cost.cost(),
            locked: self.shared.lock_times(),
            front_threads: self.completions.len(),
            front_busy_ratios: state.front_cost.busy_ratios().to_vec(),
            front_time_limit_ratio: self.shared.admission.front_time_limit.share(),
            load,
        }
    }

    /// The sums that load reports are computed from, at a small part of the cost of
    /// [`Engine::stats`].
    #[must_use]
    pub fn load_totals(&self) -> LoadTotals {
        let now = self.shared.now();
        let mut state = self.shared.state();
        state.take_admission_counts(now);
        state.take_tallies();
        let declared = state.catalog.declared();
        let models = declared.filter_map(|(slot, _)| state.counters.model(slot));
        LoadTotals {
            at: now.into(),
            workers_ready: state.workers.ready(),
            models: models.map(ModelLoadTotals::of).collect(),
        }
    }

    /// From now on the engine is not ready, but still accepts requests.
    pub fn drain(&self) {
        self.enter(EnginePhase::Draining);
    }

    /// Stops accepting requests, answers pending ones within `timeout`, and stops the workers.
    /// Returns whether all were answered.
    pub async fn stop(&self, timeout: Duration) -> bool {
        self.enter(EnginePhase::Closing);
        self.shared
            .update(|state, _, out| state.reject("the server stops", out));
        let idle = self
            .shared
            .wait_until(|state| (state.pending() == 0).then_some(()));
        let is_answered = tokio::time::timeout(timeout, idle).await.is_ok();
        if let Some(supervisor) = self.end_workers() {
            // It ends within the stop deadline of the workers: remaining ones are killed.
            let ended = tokio::task::spawn_blocking(|| supervisor.join()).await;
            if !matches!(ended, Ok(Ok(()))) {
                tracing::error!("the thread that supervises the workers had failed");
            }
        }
        self.close();
        is_answered
    }

    fn enter(&self, phase: EnginePhase) {
        self.shared.state().enter(phase);
    }

    fn end_workers(&self) -> Option<JoinHandle<()>> {
        self.enter(EnginePhase::Stopping);
        self.shared.supervise.wake();
        self.supervisor
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// No worker is left to write results: fails the unanswered requests.
    fn close(&self) {
        self.completions.iter().for_each(AbortHandle::abort);
        self.enter(EnginePhase::Stopped);
        self.shared.update(|state, _, out| state.fail_all(out));
    }
}

/// Dropping an engine without [`Engine::stop`] stops its workers, too.
impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(supervisor) = self.end_workers() {
            // It has logged its failure itself.
            let _ = supervisor.join();
        }
        self.close();
    }
}
