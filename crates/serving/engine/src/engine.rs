//! The engine as its users see it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use albacore_batching::{Config, Policy};
use albacore_os::OsError;

use crate::catalog::NoSlot;
use crate::load::LoadedModel;
use crate::model::{Edition, Objective};
use crate::request::ModelHandle;
use crate::stats::Stats;

use crate::limits::{BATCH_REQUESTS_MAX, INSTALL_DEADLINE, STARTUP_DEADLINE, STARTUP_FAILURES_MAX};
use crate::shared_state::{Parallelism, SharedState, complete};
use crate::state::{Phase, State};
use crate::supervisor::Supervisor;

/// Settings of an engine. The command line has checked their bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    pub workers: usize,
    /// T, compute threads of each worker.
    pub threads: usize,
    pub policy: Policy,
    /// Rows of a batch.
    pub batch_rows_max: usize,
    /// Rows reserved or waiting.
    pub queue_rows_max: usize,
    /// What a worker executes with [`crate::worker::SUBCOMMAND`] as its first argument.
    pub program: PathBuf,
}

/// What of an [`EngineConfig`] may change while the engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    pub policy: Policy,
    /// Rows of a batch.
    pub batch_rows_max: usize,
    /// Rows reserved or waiting.
    pub queue_rows_max: usize,
}

/// A model is not served, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelLookupError {
    /// It is to be, but was not loaded yet.
    NotLoaded,
    /// Nobody has heard of it.
    Unknown,
}

/// A model could not be installed; nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstallError {
    /// The workers cannot open it, or nobody wants it any more.
    #[error("{0}")]
    Refused(String),
    /// The workers did not open it in time.
    #[error("the workers did not open it within {} s", INSTALL_DEADLINE.as_secs())]
    Slow,
}

/// Something that an operator wants to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineEvent {
    /// A worker process was started.
    WorkerStarted { worker: usize, pid: i32 },
    /// A worker process ended although nobody told it to; it is started again.
    WorkerExited {
        worker: usize,
        pid: i32,
        /// How, for example `signal 9`.
        cause: String,
    },
}

/// Called with each [`EngineEvent`], from the supervisor's thread; must not block.
pub struct Observer(pub Box<dyn Fn(EngineEvent) + Send + Sync>);

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Observer")
    }
}

/// The engine cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The kernel refused something.
    #[error("the workers cannot be set up")]
    Os(#[from] OsError),
    /// More models than slots.
    #[error("there are too many models")]
    Models(#[from] NoSlot),
    /// A thread or a descriptor of the front could not be had.
    #[error("the workers cannot be supervised")]
    Io(#[from] std::io::Error),
    /// Workers end before they are ready; their own words are on the error output.
    #[error("a worker ended {failures} times before it was ready, last with {cause}")]
    Workers {
        /// Lives in a row.
        failures: u32,
        cause: String,
    },
    /// Workers take too long.
    #[error("the workers were not ready after {} s", STARTUP_DEADLINE.as_secs())]
    Slow,
}

/// The engine: owns memory, queues, batches and workers.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<SharedState>,
    supervisor: Mutex<Option<JoinHandle<()>>>,
    completion: tokio::task::AbortHandle,
    /// One model is installed at a time.
    installing: tokio::sync::Mutex<()>,
    broken: tokio::sync::watch::Receiver<Option<&'static str>>,
}

/// Says what ended when it is dropped, in whatever way.
struct ExitGuard(
    tokio::sync::watch::Sender<Option<&'static str>>,
    &'static str,
);

impl Drop for ExitGuard {
    fn drop(&mut self) {
        self.0.send_replace(Some(self.1));
    }
}

/// Tells the engine that the front has read what is there for now. Every thread that submits
/// requests must do it before it sleeps: small ones wait for that.
#[derive(Clone, Debug)]
pub struct FlushHandle(Weak<SharedState>);

impl FlushHandle {
    /// What was gathered goes to workers. Wakes no task of the runtime.
    pub fn flush(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.flush();
        }
    }
}

impl Engine {
    /// Starts the workers and returns at once; [`Engine::started`] waits for them. Call it inside
    /// of a tokio runtime.
    ///
    /// # Errors
    /// Memory, descriptors or threads cannot be had.
    pub fn start(
        config: &EngineConfig,
        models: Vec<LoadedModel>,
        observer: Observer,
    ) -> Result<Self, StartError> {
        // Each connection of the front is one, too: a service manager's 1,024 are soon used up.
        if let Err(error) = albacore_os::raise_descriptor_limit() {
            tracing::warn!(%error, "the limit of open files stays as it is");
        }
        let parallelism = Parallelism {
            workers: config.workers,
            threads: config.threads,
        };
        let program = config.program.clone();
        let scheduling = Config {
            queues: 0,
            workers: config.workers,
            policy: config.policy,
            batch_rows_max: config.batch_rows_max,
            batch_requests_max: BATCH_REQUESTS_MAX,
            queue_rows_max: config.queue_rows_max,
        };
        let state = State::new(scheduling, config.threads);
        let shared = Arc::new(SharedState::new(parallelism, state, observer)?);
        shared.set_queue_rows_max(config.queue_rows_max);
        shared.change(|state, _, out| {
            for model in models {
                let slot = state.declare(&model.info.name, model.objective)?;
                let (reply, _) = tokio::sync::oneshot::channel();
                let edition = model.at(state.catalog.next_id(), slot);
                state.propose(edition, reply, out);
                state.promote(out);
            }
            Ok::<_, NoSlot>(())
        })?;
        let (breaks, broken) = tokio::sync::watch::channel(None);
        let completion = {
            let completing = complete(Arc::clone(&shared));
            let guard = ExitGuard(breaks.clone(), "the workers are not heard any more");
            tokio::spawn(async move {
                let _guard = guard;
                if let Err(error) = completing.await {
                    tracing::error!(%error, "the workers cannot be heard");
                }
            })
            .abort_handle()
        };
        let supervisor = Supervisor::new(Arc::clone(&shared), program)?;
        let supervisor = std::thread::Builder::new()
            .name("albf.watch".to_owned())
            .spawn(move || {
                let _guard = ExitGuard(breaks, "the workers are not supervised any more");
                if let Err(error) = supervisor.run() {
                    tracing::error!(%error, "workers cannot be supervised any more");
                }
            })?;
        Ok(Self {
            shared,
            supervisor: Mutex::new(Some(supervisor)),
            completion,
            installing: tokio::sync::Mutex::new(()),
            broken,
        })
    }

    /// From now on small requests are gathered until this says that the front has read what is
    /// there.
    #[must_use]
    pub fn flush_handle(&self) -> FlushHandle {
        self.shared.change(|state, _, _| state.gather());
        FlushHandle(Arc::downgrade(&self.shared))
    }

    /// Waits until every worker is ready; from then on the engine is.
    ///
    /// # Errors
    /// As [`Engine::workers_up`].
    pub async fn started(&self) -> Result<(), StartError> {
        self.workers_up().await?;
        self.serve();
        Ok(())
    }

    /// From now on the engine is ready while a worker is.
    pub fn serve(&self) {
        self.enter(Phase::Serving);
    }

    /// Waits until every worker is up.
    ///
    /// # Errors
    /// Workers die before they are ready, or take too long. The engine must then be stopped.
    pub async fn workers_up(&self) -> Result<(), StartError> {
        let workers = self.shared.parallelism.workers;
        let outcome = self.shared.until(|state| {
            if state.ready_workers() == workers {
                return Some(Ok(()));
            }
            let (failures, cause) = state.most_failed_start();
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

    /// Resolves if a part of the engine ends that must not: then nothing can be promised any more,
    /// and the process should end. Does not resolve before [`Engine::stop`] otherwise.
    pub async fn broken(&self) -> &'static str {
        let mut broken = self.broken.clone();
        let what = broken.wait_for(Option::is_some).await;
        what.ok()
            .and_then(|what| *what)
            .unwrap_or("the engine is gone")
    }

    /// The models that are served now, in the order in which they were declared.
    #[must_use]
    pub fn models(&self) -> Vec<Arc<Edition>> {
        self.shared.state().catalog.current().cloned().collect()
    }

    /// The names of all models, loaded or not.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let state = self.shared.state();
        let declared = state.catalog.declared();
        declared.map(|(_, name)| name.to_owned()).collect()
    }

    /// The model called `name` as it is now: the handle's requests are computed by this edition.
    ///
    /// # Errors
    /// [`ModelLookupError`].
    pub fn model(&self, name: &str) -> Result<ModelHandle, ModelLookupError> {
        ModelHandle::new(&self.shared, name)
    }

    /// From now on exactly these models are to be served, with these objectives. Those that were
    /// not there before are not loaded yet: [`Engine::install`] them. Requests of others that were
    /// accepted are answered.
    ///
    /// # Errors
    /// [`NoSlot`]; the models before it are declared.
    pub fn declare(&self, models: &[(&str, Option<Objective>)]) -> Result<(), NoSlot> {
        let names: Vec<&str> = models.iter().map(|&(name, _)| name).collect();
        self.shared.change(|state, now, out| {
            state.catalog.keep_only(&names);
            state.needs_rollout = true;
            for (name, objective) in models {
                state.declare(name, *objective)?;
            }
            // What waits may have other deadlines now.
            state.timer(now, out);
            Ok(())
        })
    }

    /// Brings a declared model to every worker, then serves it in place of what had its name.
    /// Accepted requests are answered by what they were accepted for.
    ///
    /// # Errors
    /// [`InstallError`]; nothing has changed.
    pub async fn install(&self, model: LoadedModel) -> Result<(), InstallError> {
        let _alone = self.installing.lock().await;
        let (reply, installed) = tokio::sync::oneshot::channel();
        let unwanted = || InstallError::Refused("it is not wanted any more".to_owned());
        self.shared.change(|state, _, out| {
            if state.phase >= Phase::Closing {
                return Err(InstallError::Refused("the server stops".to_owned()));
            }
            let slot = state
                .catalog
                .slot_of(&model.info.name)
                .ok_or_else(unwanted)?;
            let edition = model.at(state.catalog.next_id(), slot);
            state.propose(edition, reply, out);
            Ok(())
        })?;
        match tokio::time::timeout(INSTALL_DEADLINE, installed).await {
            Ok(Ok(installed)) => installed.map_err(InstallError::Refused),
            Ok(Err(_)) => Err(InstallError::Refused("the server stops".to_owned())),
            Err(_) => {
                self.shared
                    .change(|state, _, out| state.reject("it took too long", out));
                Err(InstallError::Slow)
            }
        }
    }

    /// Another release rule and other bounds, for what comes from now on and what waits.
    pub fn set_rules(&self, rules: &Rules) {
        self.shared.set_queue_rows_max(rules.queue_rows_max);
        self.shared
            .change(|state, now, out| state.set_rules(rules, now, out));
    }

    /// Whether requests should be sent here: every worker was up once, at least one is, no drain.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let state = self.shared.state();
        state.phase == Phase::Serving && state.ready_workers() > 0
    }

    /// A snapshot for `/metrics`.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (arena_used_bytes, arena_bytes) = {
            let memory = self.shared.memory();
            (memory.used(), memory.bytes())
        };
        let (workers, now) = (self.shared.parallelism.workers, self.shared.now());
        let mut state = self.shared.state();
        let load = state.counters.load(workers, now);
        let declared = state.catalog.declared();
        Stats {
            models: declared
                .filter_map(|(slot, _)| state.model_stats(slot))
                .collect(),
            queue_rows: state.scheduler.queued_rows(),
            queue_rows_max: self.shared.queue_rows_max(),
            workers: self.shared.parallelism.workers,
            workers_ready: state.ready_workers(),
            workers_busy: state.scheduler.busy_workers(),
            threads: self.shared.parallelism.threads,
            each_worker: state.counters.workers.clone(),
            worker_restarts_total: state.counters.worker_restarts_total,
            worker_last_end: state.counters.worker_last_end.clone(),
            worker_hangs_total: state.counters.worker_hangs_total,
            replayed_batches_total: state.counters.replayed_batches_total,
            arena_used_bytes,
            arena_bytes,
            load,
        }
    }

    /// From now on the engine is not ready, but takes and answers what still comes.
    pub fn drain(&self) {
        self.enter(Phase::Draining);
    }

    /// Takes nothing more, answers what it has within `timeout`, and ends the workers. Whether
    /// everything was answered.
    pub async fn stop(&self, timeout: Duration) -> bool {
        self.enter(Phase::Closing);
        self.shared
            .change(|state, _, out| state.reject("the server stops", out));
        let idle = self
            .shared
            .until(|state| (state.pending() == 0).then_some(()));
        let is_answered = tokio::time::timeout(timeout, idle).await.is_ok();
        if let Some(supervisor) = self.end_workers() {
            // It ends within the workers' deadline: those that are left are killed.
            let ended = tokio::task::spawn_blocking(|| supervisor.join()).await;
            if !matches!(ended, Ok(Ok(()))) {
                tracing::error!("the thread that supervises the workers had failed");
            }
        }
        self.close();
        is_answered
    }

    fn enter(&self, phase: Phase) {
        let mut state = self.shared.state();
        state.phase = state.phase.max(phase);
    }

    fn end_workers(&self) -> Option<JoinHandle<()>> {
        self.enter(Phase::Stopping);
        self.shared.supervise.wake();
        self.supervisor
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// No worker is left: nothing writes any more, and what is not answered never will be.
    fn close(&self) {
        self.completion.abort();
        self.enter(Phase::Stopped);
        self.shared
            .change(|state, now, out| state.fail_all(now, out));
    }
}

/// An engine that is dropped without [`Engine::stop`] leaves no worker behind either.
impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(supervisor) = self.end_workers() {
            // Its failure has been reported by itself.
            let _ = supervisor.join();
        }
        self.close();
    }
}
