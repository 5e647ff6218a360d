//! The front process from its command line to its exit code.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use albacore_engine::{BatchingParams, Engine, LoadedModel, Observer, StartError};
use albacore_program::{
    EXIT_BROKEN_INVARIANT, EXIT_USAGE, exit_code, listen_on_each, parse_arguments,
    termination_signal,
};
use albacore_storage::Storage;
use anyhow::Context as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::args::{Args, ModelSource, ServerConfig};
use crate::cli_models::CliModel;
use crate::config_watcher::{self, ConfigWatcher, LoadedSettings};
use crate::effective_config::{EffectiveConfig, ModelConfig};
use crate::event_loops::EventLoops;
use crate::events::{ServerEvent, emit};
use crate::front::Listeners;
use crate::model_status::{ConfigStatus, ModelStatus, StatusStore};
use crate::{front, params_client};

/// Runs the server until a signal ends it.
#[must_use]
pub fn main() -> ExitCode {
    let args: Args = match parse_arguments() {
        Ok(args) => args,
        Err(code) => return code,
    };
    let config = match args.check() {
        Ok(config) => config,
        Err(message) => {
            eprintln!("albacore-server: {message}");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    log_to_stderr();
    exit_code("albacore-server", start(config))
}

fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("ALBACORE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,h2=error"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
}

fn start(config: ServerConfig) -> anyhow::Result<ExitCode> {
    let storage = Storage::new(config.model_bytes_max, config.ca_file.as_deref())?;
    let models = match &config.models {
        ModelSource::Arguments { models, batching } => load_arguments(models, *batching, &storage)?,
        ModelSource::SettingsFile(file) => {
            let settings = config_watcher::read(file)
                .map_err(|error| anyhow::anyhow!("--settings {}: {error}", file.display()));
            StartModels::SettingsFile(file.clone(), Box::new(settings?))
        }
    };
    let event_loops = EventLoops::start(config.front_threads)?;
    // Everything but requests and their connections runs here, on the main thread.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime of the main thread cannot be created")?;
    runtime.block_on(serve(config, models, storage, &event_loops))
}

/// The models to start with.
enum StartModels {
    /// Loaded models of the command line.
    Arguments(
        Vec<LoadedModel>,
        Vec<ModelStatus>,
        (BatchingParams, Vec<ModelConfig>),
    ),
    /// The settings file and its content; its models are loaded later.
    SettingsFile(PathBuf, Box<LoadedSettings>),
}

fn load_arguments(
    models: &[CliModel],
    batching: BatchingParams,
    storage: &Storage,
) -> anyhow::Result<StartModels> {
    let mut loaded = Vec::with_capacity(models.len());
    let mut statuses = Vec::with_capacity(models.len());
    for model in models {
        let (compiled, digest) = model.load(storage)?;
        let mut status = ModelStatus::new(&model.name, model.path.display().to_string());
        status.set_loaded(digest);
        statuses.push(status);
        loaded.push(compiled);
    }
    let parameters = (batching, models.iter().map(CliModel::config).collect());
    Ok(StartModels::Arguments(loaded, statuses, parameters))
}

/// What the front serves from.
struct Started {
    engine: Arc<Engine>,
    status: Arc<StatusStore>,
    config: Arc<EffectiveConfig>,
    /// `None` without a settings file.
    watcher: Option<ConfigWatcher>,
}

/// Writes the engine's events. A choice of batching is made on a thread of the front end, which
/// must not wait for the reader of standard output.
fn observer(runtime: tokio::runtime::Handle) -> Observer {
    Observer(Box::new(move |event| {
        let line = event.into();
        match line {
            ServerEvent::BatchingChosen { .. } => drop(runtime.spawn_blocking(move || emit(&line))),
            _ => emit(&line),
        }
    }))
}

/// Starts the engine, and the watcher of the settings file if there is one.
fn start_engine(
    config: &ServerConfig,
    models: StartModels,
    storage: Storage,
    event_loops: &EventLoops,
) -> anyhow::Result<Started> {
    let observer = observer(tokio::runtime::Handle::current());
    let has_stream = config.params.is_some();
    let loops = event_loops.handles();
    match models {
        StartModels::Arguments(models, statuses, (batching, params)) => {
            let status = StatusStore::new(ConfigStatus {
                models: statuses,
                ..ConfigStatus::default()
            });
            let engine = Engine::start_on(&config.engine(batching), models, observer, &loops)?;
            let engine = Arc::new(engine);
            let effective = EffectiveConfig::new(Arc::clone(&engine), batching, has_stream);
            effective.set_settings(batching, params)?;
            Ok(Started {
                engine,
                status: Arc::new(status),
                config: Arc::new(effective),
                watcher: None,
            })
        }
        StartModels::SettingsFile(file, settings) => {
            let batching = settings.settings.batching;
            let start = &config.engine(batching);
            let engine = Engine::start_on(start, Vec::new(), observer, &loops)?;
            let engine = Arc::new(engine);
            let effective = EffectiveConfig::new(Arc::clone(&engine), batching, has_stream);
            let effective = Arc::new(effective);
            let (watcher, status) = ConfigWatcher::start(
                file,
                *settings,
                Arc::clone(&engine),
                Arc::clone(&effective),
                storage,
            )?;
            Ok(Started {
                engine,
                status,
                config: effective,
                watcher: Some(watcher),
            })
        }
    }
}

/// The listening sockets, by event loop.
fn listen(config: &ServerConfig) -> anyhow::Result<Vec<Listeners>> {
    let sockets = config.front_threads;
    let http = listen_on_each("--http", config.http, sockets)?;
    let grpc = listen_on_each("--grpc", config.grpc, sockets)?;
    let pairs = http.into_iter().zip(grpc);
    Ok(pairs.map(|(http, grpc)| Listeners { http, grpc }).collect())
}

/// Starts the client of `--params`, if that is given.
fn start_params_client(
    config: &ServerConfig,
    effective: &Arc<EffectiveConfig>,
) -> Option<JoinHandle<()>> {
    let endpoint = config.params.clone()?;
    let client = params_client::run(endpoint, Arc::clone(effective));
    Some(tokio::spawn(client))
}

async fn serve(
    config: ServerConfig,
    models: StartModels,
    storage: Storage,
    event_loops: &EventLoops,
) -> anyhow::Result<ExitCode> {
    let listeners = listen(&config)?;
    let first = listeners.first().context("there is no event loop")?;
    let (http, grpc) = (first.http.local_addr()?, first.grpc.local_addr()?);
    let terminated = termination_signal().context("SIGTERM cannot be caught")?;
    emit(&ServerEvent::Listening { http, grpc });
    let Started {
        engine,
        status,
        config: effective,
        watcher,
    } = start_engine(&config, models, storage, event_loops)?;
    let params_client = start_params_client(&config, &effective);
    event_loops.flush_with(engine.flush_handles());
    let (stop, mut stopped) = watch::channel(false);
    let shutdown = async move {
        // An error means that the sender is dropped: that is a shutdown, too.
        let _ = stopped.wait_for(|&is_stopped| is_stopped).await;
    };
    // The front runs before the models are loaded, so that health checks see a live server that is
    // not ready.
    let front = front::serve(
        Arc::clone(&engine),
        Arc::clone(&status),
        effective,
        listeners,
        event_loops.handles(),
        shutdown,
    );
    let mut front = tokio::spawn(front);
    let ready = async {
        engine.workers_up().await?;
        status.all_loaded().await;
        engine.serve();
        emit(&ServerEvent::Ready);
        std::future::pending::<Result<(), StartError>>().await
    };
    tokio::pin!(terminated);
    let front_result = tokio::select! {
        () = &mut terminated => None,
        result = &mut front => Some(result),
        Err(error) = ready => return Err(error.into()),
        broken = engine.broken() => {
            eprintln!("albacore-server: {broken}");
            return Ok(ExitCode::from(EXIT_BROKEN_INVARIANT));
        }
    };
    if let Some(result) = front_result {
        result
            .context("the front failed")?
            .context("the front stopped")?;
        anyhow::bail!("the front stopped without a signal");
    }
    emit(&ServerEvent::Draining);
    drop(watcher);
    if let Some(client) = params_client {
        client.abort();
    }
    let timeout = config.drain_timeout;
    if !drain(&engine, &stop, front, timeout).await {
        let seconds = timeout.as_secs_f64();
        anyhow::bail!("not everything was answered within --drain-timeout ({seconds} s)");
    }
    Ok(ExitCode::SUCCESS)
}

/// Stops accepting, waits for accepted requests and stops the workers, within `timeout`. Returns
/// whether all requests were answered.
async fn drain(
    engine: &Engine,
    stop: &watch::Sender<bool>,
    mut front: JoinHandle<Result<(), front::FrontError>>,
    timeout: Duration,
) -> bool {
    engine.drain();
    let started = tokio::time::Instant::now();
    // An error means that the front has ended, which the next line sees.
    let _ = stop.send(true);
    let drained = tokio::time::timeout(timeout, &mut front).await;
    front.abort();
    let left = timeout.saturating_sub(started.elapsed());
    let is_answered = engine.stop(left).await && drained.is_ok();
    emit(&ServerEvent::Stopped);
    is_answered
}
