//! From rows in shared memory to results in shared memory, through W supervised processes.
//!
//! A request reserves memory, is filled by its parser, and is submitted: `state` hands it to the
//! scheduler of crate `batching` and what that decides to the ring of a worker. `hold::complete`
//! hears from the workers, `supervisor` keeps them alive. The front owns every request until it is
//! answered, and all memory: a worker that dies takes nothing with it.

mod arena;
mod hold;
mod kind;
mod load;
mod memory;
mod model;
mod refusal;
mod request;
mod state;
mod stats;
mod supervisor;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use albacore_batching::{Config, Policy};
use albacore_os::OsError;

pub use kind::{ElementType, Kind, KindSet};
pub use load::{LoadError, LoadedModel, ModelConfig};
pub use model::{ModelIndex, ModelInfo, OutputInfo};
pub use refusal::{Failure, Refusal};
pub use request::{Reply, Reservation, Timing};
pub use stats::{Histogram, ModelStats, Stats};

use crate::limits::{BATCH_REQUESTS_MAX, STARTUP_DEADLINE, STARTUP_FAILURES_MAX};
use hold::{Shared, Sizes, complete};
use state::{Phase, State};
use stats::Counters;
use supervisor::Supervisor;

/// Settings of an engine. The command line has checked their bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// W, worker processes.
    pub workers: usize,
    /// T, compute threads of each worker.
    pub threads: usize,
    /// The release rule.
    pub policy: Policy,
    /// Rows of a batch.
    pub batch_rows_max: usize,
    /// Rows reserved or waiting.
    pub queue_rows_max: usize,
    /// What a worker executes with [`crate::worker::SUBCOMMAND`] as its first argument.
    pub program: PathBuf,
}

/// Something that an operator wants to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineEvent {
    /// A worker process was started.
    WorkerStarted {
        /// Its index.
        worker: usize,
        /// Its process id.
        pid: i32,
    },
    /// A worker process ended although nobody told it to; it is started again.
    WorkerDied {
        /// Its index.
        worker: usize,
        /// Its process id.
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
    /// A thread or a descriptor of the front could not be had.
    #[error("the workers cannot be supervised")]
    Io(#[from] std::io::Error),
    /// Workers end before they are ready; their own words are on the error output.
    #[error("a worker ended {failures} times before it was ready, last with {cause}")]
    Workers {
        /// Lives in a row.
        failures: u32,
        /// The last end.
        cause: String,
    },
    /// Workers take too long.
    #[error("the workers were not ready after {} s", STARTUP_DEADLINE.as_secs())]
    Slow,
}

/// The engine: owns memory, queues, batches and workers.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<Shared>,
    supervisor: Mutex<Option<JoinHandle<()>>>,
    completion: tokio::task::AbortHandle,
    broken: tokio::sync::watch::Receiver<Option<&'static str>>,
}

/// Says what ended when it is dropped, in whatever way.
struct Guard(
    tokio::sync::watch::Sender<Option<&'static str>>,
    &'static str,
);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.send_replace(Some(self.1));
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
        let sizes = Sizes {
            workers: config.workers,
            threads: config.threads,
            queue_rows_max: config.queue_rows_max,
        };
        let program = config.program.clone();
        let scheduling = Config {
            queues: models.len(),
            workers: config.workers,
            policy: config.policy,
            batch_rows_max: config.batch_rows_max,
            batch_requests_max: BATCH_REQUESTS_MAX,
            queue_rows_max: config.queue_rows_max,
        };
        let slo = |model: &LoadedModel| {
            model
                .slo
                .map(|slo| u64::try_from(slo.as_nanos()).unwrap_or(u64::MAX))
        };
        let names = models
            .iter()
            .map(|model| (model.info.name.clone(), slo(model)));
        let state = State::new(scheduling, Counters::new(names));
        let shared = Arc::new(Shared::new(models, sizes, state, observer)?);
        let (breaks, broken) = tokio::sync::watch::channel(None);
        let completion = {
            let completing = complete(Arc::clone(&shared));
            let guard = Guard(breaks.clone(), "the workers are not heard any more");
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
                let _guard = Guard(breaks, "the workers are not supervised any more");
                if let Err(error) = supervisor.run() {
                    tracing::error!(%error, "workers cannot be supervised any more");
                }
            })?;
        Ok(Self {
            shared,
            supervisor: Mutex::new(Some(supervisor)),
            completion,
            broken,
        })
    }

    /// Waits until every worker is ready; from then on the engine is.
    ///
    /// # Errors
    /// Workers die before they are ready, or take too long. The engine must then be stopped.
    pub async fn started(&self) -> Result<(), StartError> {
        let workers = self.shared.sizes.workers;
        let outcome = self.shared.until(|state| {
            if state.ready_workers() == workers {
                return Some(Ok(()));
            }
            let (failures, cause) = state.worst_start();
            (failures >= STARTUP_FAILURES_MAX).then(|| {
                Err(StartError::Workers {
                    failures,
                    cause: cause.to_owned(),
                })
            })
        });
        tokio::time::timeout(STARTUP_DEADLINE, outcome)
            .await
            .unwrap_or(Err(StartError::Slow))?;
        self.enter(Phase::Serving);
        Ok(())
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

    /// The loaded models, in the order of the command line.
    #[must_use]
    pub fn models(&self) -> &[ModelInfo] {
        &self.shared.infos
    }

    /// The index of the model called `name`.
    #[must_use]
    pub fn model_index(&self, name: &str) -> Option<ModelIndex> {
        self.models()
            .iter()
            .position(|model| model.name == name)
            .map(ModelIndex)
    }

    /// Takes room for `rows` rows of `element` ([`ElementType::F32`] or [`ElementType::F64`]) and
    /// for the outputs `kinds`, and counts the rows against the queue's bound.
    ///
    /// # Errors
    /// A [`Refusal`]; nothing is kept then.
    pub fn reserve(
        &self,
        model: ModelIndex,
        rows: usize,
        element: ElementType,
        kinds: KindSet,
    ) -> Result<Reservation, Refusal> {
        Reservation::new(&self.shared, model, rows, element, kinds)
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
        let state = self.shared.state();
        Stats {
            models: state.counters.models.clone(),
            queue_rows: state.scheduler.queued_rows(),
            queue_rows_max: self.shared.sizes.queue_rows_max,
            workers: self.shared.sizes.workers,
            workers_ready: state.ready_workers(),
            workers_busy: state.scheduler.busy_workers(),
            threads: self.shared.sizes.threads,
            worker_restarts_total: state.counters.worker_restarts_total,
            replayed_batches_total: state.counters.replayed_batches_total,
            arena_used_bytes,
            arena_bytes,
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
