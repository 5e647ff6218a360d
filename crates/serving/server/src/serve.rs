//! The lifecycle of a front: the first one, or that of a newer binary (upgrade). A standby begins
//! in `standby`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use albacore_connections::{ConnectionCount, ShutdownStage};
use albacore_engine::{BatchingParams, Engine, LoadedModel, Observer, StartError};
use albacore_os::{FUTEX_BYTES, SharedMemory};
use albacore_program::EXIT_BROKEN_INVARIANT;
use albacore_storage::Storage;
use albacore_supervision::{FrontMessage, Link, LinkError, Predecessor, SupervisorMessage};
use anyhow::Context as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::event_loops::EventLoops;
use crate::front::{self, FrontSetup};
use crate::standby::StoredState;
use albacore_live_settings::config_watcher::{ConfigTargets, ConfigWatcher, LoadedSettings};
use albacore_live_settings::control::ControlReceiver;
use albacore_live_settings::effective_config::{EffectiveConfig, ModelConfig};
use albacore_live_settings::events::{ServerEvent, emit};
use albacore_live_settings::handover::{Handover, Listeners, ModelRecord, RestoredModels};
use albacore_live_settings::model_control::{ModelControlReceiver, model_control};
use albacore_live_settings::model_status::{ConfigStatus, ModelLoadStatus, StatusStore};
use albacore_server_args::{ModelControlMode, ModelSource, ServerConfig};

/// Configuration and resources of a front process.
pub(crate) struct FrontProcess {
    pub(crate) config: ServerConfig,
    pub(crate) number: u64,
    /// Link to the worker host.
    pub(crate) workers: Link,
    pub(crate) storage: Storage,
    pub(crate) handover: Handover,
}

/// The models at startup.
pub(crate) enum StartModels {
    /// Models of the command line, already loaded.
    Arguments(
        Vec<LoadedModel>,
        Vec<ModelLoadStatus>,
        (BatchingParams, Vec<ModelConfig>),
    ),
    /// The settings file and its content; its models are loaded later.
    SettingsFile(PathBuf, Box<LoadedSettings>),
}

/// A front that is ready to accept connections but does not accept them yet.
pub(crate) struct PreparedFront {
    pub(crate) engine: Arc<Engine>,
    pub(crate) status: Arc<StatusStore>,
    pub(crate) effective: Arc<EffectiveConfig>,
    pub(crate) config: ServerConfig,
    storage: Arc<Storage>,
    handover: Handover,
    /// Requests to load and unload models; taken when their thread is started.
    model_calls: Option<ModelControlReceiver>,
    /// Memory of the connection counter.
    connections: SharedMemory,
    accept_signal: watch::Sender<bool>,
    stop: watch::Sender<ShutdownStage>,
}

/// The running front end.
pub(crate) type Accepting = JoinHandle<Result<(), front::FrontError>>;

/// How a front starts to serve.
pub(crate) enum StartMode {
    First,
    /// Replaces the front of another binary; accepts connections once it is ready.
    Upgrade,
    Takeover {
        predecessor: Option<Predecessor>,
        was_ready: bool,
    },
}

/// Serves the models of the command line or of the settings file on these sockets.
pub(crate) async fn run_first(
    process: FrontProcess,
    control: ControlReceiver,
    models: StartModels,
    listeners: Vec<Listeners>,
    event_loops: &EventLoops,
) -> anyhow::Result<ExitCode> {
    run_with_mode(
        process,
        control,
        models,
        listeners,
        event_loops,
        StartMode::First,
    )
    .await
}

/// Like [`run_first`], on the sockets of the front of another binary, which serves until this one
/// is ready.
pub(crate) async fn run_upgrade(
    process: FrontProcess,
    control: ControlReceiver,
    models: StartModels,
) -> anyhow::Result<ExitCode> {
    let stored_state = StoredState::receive(&control).await?;
    let event_loops = EventLoops::start(stored_state.listeners.len())?;
    let (listeners, mode) = (stored_state.listeners, StartMode::Upgrade);
    run_with_mode(process, control, models, listeners, &event_loops, mode).await
}

async fn run_with_mode(
    process: FrontProcess,
    control: ControlReceiver,
    models: StartModels,
    listeners: Vec<Listeners>,
    event_loops: &EventLoops,
    mode: StartMode,
) -> anyhow::Result<ExitCode> {
    let (front, accepting, watcher) = match models {
        StartModels::Arguments(models, statuses, (batching, params)) => {
            let (mut front, accepting) =
                prepare(process, models, batching, listeners, event_loops)?;
            front.effective.set_settings(batching, params)?;
            front.status.update(|status| status.models = statuses);
            let restored = front.store_models();
            let watcher = front.start_model_control(&restored)?;
            (front, accepting, watcher)
        }
        StartModels::SettingsFile(file, settings) => {
            let batching = settings.settings.batching;
            let (mut front, accepting) =
                prepare(process, Vec::new(), batching, listeners, event_loops)?;
            let watcher = front.watch(file, *settings, &RestoredModels::default())?;
            (front, accepting, Some(watcher))
        }
    };
    front.serve(accepting, control, watcher, mode).await
}

/// Emits the engine's events. Batching choices are made on a thread of the front end, which must
/// not block on standard output.
fn observer(runtime: tokio::runtime::Handle) -> Observer {
    Observer(Box::new(move |event| {
        let line = event.into();
        match line {
            ServerEvent::BatchingChosen { .. } => drop(runtime.spawn_blocking(move || emit(&line))),
            _ => emit(&line),
        }
    }))
}

/// Starts the engine and the front end. The workers are started when the worker host permits it;
/// the front end does not accept connections yet.
pub(crate) fn prepare(
    process: FrontProcess,
    models: Vec<LoadedModel>,
    batching: BatchingParams,
    listeners: Vec<Listeners>,
    event_loops: &EventLoops,
) -> anyhow::Result<(PreparedFront, Accepting)> {
    let FrontProcess {
        config,
        number,
        workers,
        storage,
        handover,
    } = process;
    let observer = observer(tokio::runtime::Handle::current());
    let loops = event_loops.handles();
    let engine_config = config.engine(batching, number);
    let engine = Engine::start_on(&engine_config, models, observer, &loops, workers)?;
    let engine = Arc::new(engine);
    event_loops.flush_with(engine.flush_handles());
    let has_stream = config.params.is_some();
    let effective = EffectiveConfig::new(Arc::clone(&engine), batching, has_stream);
    let effective = Arc::new(effective);
    let status = Arc::new(StatusStore::new(ConfigStatus::default()));
    let connections = SharedMemory::create("albacore-connections", 2 * FUTEX_BYTES)?;
    let (accept_signal, may_accept) = watch::channel(false);
    let (stop, shutdown) = watch::channel(ShutdownStage::Serving);
    let (calls, model_calls) = model_control();
    let is_explicit = config.model_control == ModelControlMode::Explicit;
    let setup = FrontSetup {
        listeners,
        event_loops: loops,
        connections: ConnectionCount::new(connections.map_words()?),
        may_accept,
        shutdown,
        sends_envoy_health_header: config.envoy_health_header,
        load_reports: config.load_reports,
        platform_routes: config.platform_routes.clone(),
        shared_memory_bytes_max: config.shared_memory_bytes_max,
        stream_idle_max: config.stream_idle_max,
        model_control: is_explicit.then_some(calls),
    };
    let accepting = front::serve(
        Arc::clone(&engine),
        Arc::clone(&status),
        Arc::clone(&effective),
        setup,
    );
    let front = PreparedFront {
        engine,
        status,
        effective,
        config,
        storage: Arc::new(storage),
        handover,
        model_calls: Some(model_calls),
        connections,
        accept_signal,
        stop,
    };
    Ok((front, tokio::spawn(accepting)))
}

/// Starts the client of `--params`, if configured.
fn start_params_client(
    config: &ServerConfig,
    effective: &Arc<EffectiveConfig>,
    handover: &Handover,
) -> Option<JoinHandle<()>> {
    let endpoint = config.params.clone()?;
    let client = albacore_params_client::run(endpoint, Arc::clone(effective), handover.clone());
    Some(tokio::spawn(client))
}

impl PreparedFront {
    /// The state shared with the thread that loads models; can be taken once.
    fn config_targets(&mut self) -> anyhow::Result<ConfigTargets> {
        Ok(ConfigTargets {
            engine: Arc::clone(&self.engine),
            config: Arc::clone(&self.effective),
            status: Arc::clone(&self.status),
            storage: Arc::clone(&self.storage),
            model_calls: self
                .model_calls
                .take()
                .context("models are loaded already")?,
            poll_period: self.config.model_poll,
            handover: self.handover.clone(),
        })
    }

    /// Applies the settings and starts to watch their file.
    pub(crate) fn watch(
        &mut self,
        file: PathBuf,
        settings: LoadedSettings,
        restored: &RestoredModels,
    ) -> anyhow::Result<ConfigWatcher> {
        let targets = self.config_targets()?;
        Ok(ConfigWatcher::start(file, settings, targets, restored)?)
    }

    /// Starts to load and unload the models of the command line by calls, if enabled.
    pub(crate) fn start_model_control(
        &mut self,
        restored: &RestoredModels,
    ) -> anyhow::Result<Option<ConfigWatcher>> {
        let is_explicit = self.config.model_control == ModelControlMode::Explicit;
        let ModelSource::Arguments { models, .. } = self.config.models.clone() else {
            return Ok(None);
        };
        is_explicit
            .then(|| {
                let targets = self.config_targets()?;
                Ok(ConfigWatcher::start_without_file(
                    &models, targets, restored,
                )?)
            })
            .transpose()
    }

    /// Keeps the models of the command line for later fronts.
    fn store_models(&self) -> RestoredModels {
        let mut restored = RestoredModels::default();
        let status = self.status.snapshot();
        for revision in self.engine.models() {
            let mut models = status.models.iter();
            let model = models.find(|model| model.name == revision.info().name);
            if let Some(model) = model {
                let record = ModelRecord::new(&revision, model, String::new(), None);
                self.handover.store_model(&revision, record.as_ref());
                let record = record.map(|record| (record.name.clone(), record));
                restored.records.extend(record);
            }
        }
        restored
    }

    /// Starts to accept connections.
    pub(crate) fn start_accepting(&self) {
        self.accept_signal.send_replace(true);
        self.handover.store_connections(&self.connections);
    }

    /// Returns if the workers cannot be started; otherwise never.
    async fn get_ready(&self, mode: &StartMode) -> Result<(), StartError> {
        let was_ready = matches!(
            mode,
            StartMode::Takeover {
                was_ready: true,
                ..
            }
        );
        match self.engine.wait_for_workers().await {
            // As in any ready server, the start of its workers is retried.
            Err(error) if was_ready => {
                tracing::warn!(%error, "not every worker is up");
                return std::future::pending().await;
            }
            up => up?,
        }
        if !was_ready {
            self.status.wait_until_loaded().await;
            self.engine.serve();
            match mode {
                StartMode::Upgrade => {
                    self.start_accepting();
                    let version = env!("CARGO_PKG_VERSION");
                    emit(&ServerEvent::Upgraded { version });
                }
                StartMode::First | StartMode::Takeover { .. } => emit(&ServerEvent::Ready),
            }
        }
        self.handover.send(&FrontMessage::Ready, &[]);
        std::future::pending().await
    }

    /// Waits until this front is stopped; returns whether another front serves then.
    async fn until_stopped(&self, control: &ControlReceiver) -> Result<bool, LinkError> {
        // bound: one pass per message; ends with the supervisor
        loop {
            match control.next().await?.0 {
                SupervisorMessage::Drain => return Ok(false),
                SupervisorMessage::Retire => return Ok(true),
                SupervisorMessage::Status(supervision) => {
                    self.status
                        .update(|status| status.supervision = supervision);
                }
                _ => {}
            }
        }
    }

    /// Serves until the supervisor stops this front.
    pub(crate) async fn serve(
        self,
        mut accepting: Accepting,
        control: ControlReceiver,
        watcher: Option<ConfigWatcher>,
        mode: StartMode,
    ) -> anyhow::Result<ExitCode> {
        // The front end runs before the models are loaded, so that health checks see a server that
        // is live but not ready.
        if let StartMode::First = mode {
            self.start_accepting();
        }
        if let StartMode::Takeover {
            predecessor: Some(dead),
            ..
        } = &mode
        {
            emit(&ServerEvent::FrontDied {
                pid: dead.pid,
                cause: dead.cause.clone(),
                connections: dead.connections,
            });
        }
        let params_client = start_params_client(&self.config, &self.effective, &self.handover);
        let ended = self.until_stopped(&control);
        let (ended, accepted) = tokio::select! {
            ended = ended => (Some(ended), None),
            result = &mut accepting => (None, Some(result)),
            Err(error) = self.get_ready(&mode) => return Err(error.into()),
            broken = self.engine.wait_for_failure() => {
                eprintln!("albacore-server: {broken}");
                return Ok(ExitCode::from(EXIT_BROKEN_INVARIANT));
            }
        };
        if let Some(result) = accepted {
            result
                .context("the front failed")?
                .context("the front stopped")?;
            anyhow::bail!("the front stopped without a signal");
        }
        let is_replaced = ended
            .transpose()
            .context("the connection to the supervisor was lost")?
            == Some(true);
        if !is_replaced {
            emit(&ServerEvent::Draining);
        }
        drop(watcher);
        if let Some(client) = params_client {
            client.abort();
        }
        let is_answered = self.drain(accepting, is_replaced).await;
        if !is_replaced {
            emit(&ServerEvent::Stopped);
        }
        if !is_answered {
            let seconds = self.config.drain_timeout.as_secs_f64();
            anyhow::bail!("not all requests were answered within --drain-timeout ({seconds} s)");
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Announces the shutdown and continues to serve for the drain delay, unless another front
    /// serves the same ports; then stops accepting, waits for accepted requests and stops the
    /// workers. Returns whether all requests were answered in time.
    async fn drain(&self, mut accepting: Accepting, is_replaced: bool) -> bool {
        self.engine.drain();
        let (stage, delay) = match is_replaced {
            true => (ShutdownStage::Replaced, None),
            false => (ShutdownStage::Closing, self.config.drain_delay),
        };
        if let Some(delay) = delay {
            self.stop.send_replace(ShutdownStage::Announced);
            tokio::time::sleep(delay).await;
        }
        self.stop.send_replace(stage);
        let (started, timeout) = (tokio::time::Instant::now(), self.config.drain_timeout);
        let drained = tokio::time::timeout(timeout, &mut accepting).await;
        accepting.abort();
        let left = timeout.saturating_sub(started.elapsed());
        self.engine.stop(left).await && drained.is_ok()
    }
}
