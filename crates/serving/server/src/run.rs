//! The server from its command line to its exit code: the supervisor and the fronts.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use albacore_engine::BatchingParams;
use albacore_program::{
    EXIT_USAGE, exit_code, listen_on_each, parse_arguments, parse_arguments_from,
};
use albacore_storage::Storage;
use albacore_supervision::limits::REASON_CHARS_MAX;
use albacore_supervision::{FrontArguments, FrontMessage, FrontRole, Link, supervise};
use anyhow::Context as _;

use crate::event_loops::EventLoops;
use crate::serve::{self, FrontProcess, StartModels};
use crate::standby;
use albacore_live_settings::cli_models::CliModel;
use albacore_live_settings::events::{ServerEvent, emit};
use albacore_live_settings::handover::{Handover, Listeners};
use albacore_live_settings::model_status::ModelLoadStatus;
use albacore_live_settings::{config_watcher, control};
use albacore_server_args::{Args, ModelSource, ServerConfig};

/// Runs the server until a signal ends it.
#[must_use]
pub fn main() -> ExitCode {
    let args: Args = match parse_arguments() {
        Ok(args) => args,
        Err(code) => return code,
    };
    if let Err(message) = args.check() {
        eprintln!("albacore-server: {message}");
        return ExitCode::from(EXIT_USAGE);
    }
    log_to_stderr();
    // The supervisor holds the file descriptors of all workers and models.
    if let Err(error) = albacore_os::raise_descriptor_limit() {
        tracing::warn!(%error, "the limit of open files cannot be raised");
    }
    let run = || -> anyhow::Result<ExitCode> {
        let program = std::env::current_exe().context("the path of this program is unknown")?;
        let arguments = std::env::args_os().skip(1).collect();
        Ok(ExitCode::from(supervise(&program, arguments)?))
    };
    exit_code("albacore-server", run())
}

/// Runs a front with the arguments after the subcommand.
#[must_use]
pub fn front_main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(front_arguments) = FrontArguments::parse(&mut arguments) else {
        eprintln!("albacore-server: this subcommand is for the server's own use");
        return ExitCode::from(EXIT_USAGE);
    };
    let program = OsString::from("albacore-server");
    let args = parse_arguments_from(std::iter::once(program).chain(arguments));
    let mut args: Args = match args {
        Ok(args) => args,
        Err(code) => return code,
    };
    if front_arguments.role != FrontRole::First {
        // The number of event loops is that of the inherited sockets, independent of the number of
        // CPUs now.
        args.front_threads = None;
    }
    let config = match args.check() {
        Ok(config) => config,
        Err(message) => {
            eprintln!("albacore-server: {message}");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    log_to_stderr();
    if let Err(error) = albacore_os::set_thread_name("albf.main") {
        tracing::debug!(%error, "the main thread cannot be named");
    }
    // At a takeover clients wait for this thread, which does little otherwise.
    albacore_os::shorten_time_slice();
    let result = start(config, front_arguments);
    match front_arguments.role {
        // The supervisor reports why there is no standby.
        FrontRole::Standby => result.unwrap_or(ExitCode::FAILURE),
        FrontRole::First | FrontRole::Upgrade => exit_code("albacore-server", result),
    }
}

fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("ALBACORE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,h2=error"));
    // The HTTP client that fetches models logs whole URLs at `trace`, which may contain signatures.
    let filter = match "ureq=off".parse() {
        Ok(off) => filter.add_directive(off),
        Err(_) => filter,
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
}

fn start(config: ServerConfig, front_arguments: FrontArguments) -> anyhow::Result<ExitCode> {
    let link = control::inherited(front_arguments.control)?;
    let handover = Handover::new(Arc::clone(&link));
    let result = run_front(config, front_arguments, link, &handover);
    if let Err(error) = &result {
        let reason = format!("{error:#}")
            .chars()
            .take(REASON_CHARS_MAX)
            .collect();
        handover.send(&FrontMessage::Failed { reason }, &[]);
    }
    result
}

fn run_front(
    config: ServerConfig,
    front_arguments: FrontArguments,
    link: Arc<Link>,
    handover: &Handover,
) -> anyhow::Result<ExitCode> {
    let mut storage = Storage::new(config.model_bytes_max, config.ca_file.as_deref())?;
    if let Some((folder, bytes_max)) = &config.model_cache {
        storage = storage.with_cache(folder, *bytes_max)?;
    }
    // A standby gets its models from the serving front.
    let models = match front_arguments.role {
        FrontRole::Standby => None,
        FrontRole::First | FrontRole::Upgrade => Some(load_models(&config, &storage)?),
    };
    // The main thread runs everything except for requests and their connections.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime of the main thread cannot be created")?;
    let workers = Link::inherited(front_arguments.workers)?;
    let process = FrontProcess {
        config,
        number: front_arguments.number,
        workers,
        storage,
        handover: handover.clone(),
    };
    runtime.block_on(async {
        let control = control::ControlReceiver::new(link)?;
        match (front_arguments.role, models) {
            (FrontRole::First, Some(models)) => {
                let event_loops = EventLoops::start(process.config.front_threads)?;
                let listeners = listen(&process.config)?;
                handover.store_listeners(&listeners);
                serve::run_first(process, control, models, listeners, &event_loops).await
            }
            (FrontRole::Upgrade, Some(models)) => {
                serve::run_upgrade(process, control, models).await
            }
            (FrontRole::Standby, _) | (_, None) => standby::run(process, control).await,
        }
    })
}

fn load_models(config: &ServerConfig, storage: &Storage) -> anyhow::Result<StartModels> {
    match &config.models {
        ModelSource::Arguments { models, batching } => load_arguments(models, *batching, storage),
        ModelSource::SettingsFile(file) => {
            let settings = config_watcher::read(file)
                .map_err(|error| anyhow::anyhow!("--settings {}: {error}", file.display()));
            Ok(StartModels::SettingsFile(file.clone(), Box::new(settings?)))
        }
    }
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
        let mut status =
            ModelLoadStatus::new(&model.name, albacore_storage::redacted(&model.source));
        status.set_loaded(digest);
        statuses.push(status);
        loaded.push(compiled);
    }
    let parameters = (batching, models.iter().map(CliModel::config).collect());
    Ok(StartModels::Arguments(loaded, statuses, parameters))
}

/// Binds the listening sockets, by event loop.
fn listen(config: &ServerConfig) -> anyhow::Result<Vec<Listeners>> {
    let sockets = config.front_threads;
    let http = listen_on_each("--http", config.http, sockets)?;
    let grpc = listen_on_each("--grpc", config.grpc, sockets)?;
    let pairs = http.into_iter().zip(grpc);
    let listeners: Vec<Listeners> = pairs.map(|(http, grpc)| Listeners { http, grpc }).collect();
    let first = listeners.first().context("there is no event loop")?;
    emit(&ServerEvent::Listening {
        http: first.http.local_addr()?,
        grpc: first.grpc.local_addr()?,
    });
    Ok(listeners)
}
