//! The front process from its command line to its exit code.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use albacore_program::{
    EXIT_BROKEN_INVARIANT, EXIT_USAGE, exit_code, listen, parse_arguments, termination_signal,
};
use albacore_storage::Storage;
use anyhow::Context as _;
use tokio::task::JoinHandle;

use crate::args::{Args, Served, Settings};
use crate::events::{Line, say};
use crate::limits::FRONT_THREADS;
use crate::live::{Board, InForce, Live, Notice, Posted};
use crate::told::{Desk, Objectives};
use crate::{front, live, told};
use albacore_engine::{BatchingParams, Engine, FlushHandle, LoadedModel, Observer, StartError};

/// Runs the server until a signal ends it.
#[must_use]
pub fn main() -> ExitCode {
    let args: Args = match parse_arguments() {
        Ok(args) => args,
        Err(code) => return code,
    };
    let settings = match args.check() {
        Ok(settings) => settings,
        Err(sentence) => {
            eprintln!("albacore-server: {sentence}");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    log_to_stderr();
    exit_code("albacore-server", start(settings))
}

fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("ALBACORE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,h2=error"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
}

fn start(settings: Settings) -> anyhow::Result<ExitCode> {
    let storage = Storage::new(settings.model_bytes_max, settings.ca_file.as_deref())?;
    let plan = match &settings.served {
        Served::Fixed { models, rules } => {
            let mut loaded = Vec::with_capacity(models.len());
            let mut notices = Vec::with_capacity(models.len());
            for config in models {
                let (model, digest) = config.load(&storage)?;
                let mut notice = Notice::new(&config.name, config.path.display().to_string());
                notice.set_loaded(digest);
                notices.push(notice);
                loaded.push(model);
            }
            let objectives = models.iter().map(|m| (m.name.clone(), m.objective()));
            Plan::Fixed(loaded, notices, (*rules, objectives.collect()))
        }
        Served::Live(file) => {
            let read = live::read(file)
                .map_err(|error| anyhow::anyhow!("--settings {}: {error}", file.display()));
            Plan::Live(file.clone(), Box::new(read?))
        }
    };
    let flush_handle = Arc::new(OnceLock::<FlushHandle>::new());
    let asleep = Arc::clone(&flush_handle);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(FRONT_THREADS)
        .thread_name("albf.io")
        .on_thread_start(|| {
            // Workers hold their cpus for milliseconds; what goes through the front waits for it.
            albacore_os::shorten_slice();
        })
        .on_thread_park(move || {
            if let Some(flush_handle) = asleep.get() {
                flush_handle.flush();
            }
        })
        .enable_all()
        .build()
        .context("the front's threads cannot be started")?;
    runtime.block_on(serve((settings, plan), (storage, &flush_handle)))
}

/// What is to be served, read.
enum Plan {
    Fixed(Vec<LoadedModel>, Vec<Notice>, (BatchingParams, Objectives)),
    Live(PathBuf, Box<InForce>),
}

struct Started {
    engine: Arc<Engine>,
    board: Arc<Board>,
    desk: Arc<Desk>,
    /// Follows the settings file, if there is one.
    live: Option<Live>,
}

/// Starts the engine and, if there is a settings file, what follows it.
fn start_engine(settings: &Settings, plan: Plan, storage: Storage) -> anyhow::Result<Started> {
    let observer = Observer(Box::new(|event| say(&event.into())));
    let is_told = settings.params.is_some();
    match plan {
        Plan::Fixed(models, notices, (rules, objectives)) => {
            let board = Board::new(Posted {
                models: notices,
                ..Posted::default()
            });
            let engine = Engine::start(&settings.engine(rules), models, observer)?;
            let engine = Arc::new(engine);
            let desk = Desk::new(Arc::clone(&engine), rules, is_told);
            desk.settle(rules, objectives)?;
            Ok(Started {
                engine,
                board: Arc::new(board),
                desk: Arc::new(desk),
                live: None,
            })
        }
        Plan::Live(file, read) => {
            let engine = Engine::start(&settings.engine(read.rules), Vec::new(), observer)?;
            let engine = Arc::new(engine);
            let desk = Desk::new(Arc::clone(&engine), read.rules, is_told);
            let desk = Arc::new(desk);
            let followed = (Arc::clone(&engine), Arc::clone(&desk));
            let (live, board) = Live::start(file, *read, followed, storage)?;
            Ok(Started {
                engine,
                board,
                desk,
                live: Some(live),
            })
        }
    }
}

/// Hears from outside what is to be served how, if somebody tells it.
fn follow_params(settings: &Settings, desk: &Arc<Desk>) -> Option<JoinHandle<()>> {
    let place = settings.params.clone()?;
    Some(tokio::spawn(told::follow(place, Arc::clone(desk))))
}

async fn serve(
    (settings, plan): (Settings, Plan),
    (storage, flush_handle): (Storage, &OnceLock<FlushHandle>),
) -> anyhow::Result<ExitCode> {
    let http = listen("--http", settings.http).await?;
    let grpc = listen("--grpc", settings.grpc).await?;
    let terminated = termination_signal().context("SIGTERM cannot be caught")?;
    say(&Line::Listening {
        http: http.local_addr()?,
        grpc: grpc.local_addr()?,
    });
    let Started {
        engine,
        board,
        desk,
        live,
    } = start_engine(&settings, plan, storage)?;
    let told = follow_params(&settings, &desk);
    flush_handle.get_or_init(|| engine.flush_handle());
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let shutdown = async move {
        // An error means that the sender is gone: that is an end, too.
        let _ = stopped.wait_for(|&is_stopped| is_stopped).await;
    };
    // Served from the start, so that who asks hears that the server lives and is not ready.
    let serving = front::serve(
        Arc::clone(&engine),
        (Arc::clone(&board), desk),
        http,
        grpc,
        shutdown,
    );
    let mut front = tokio::spawn(serving);
    let ready = async {
        engine.workers_up().await?;
        board.complete().await;
        engine.serve();
        say(&Line::Ready);
        std::future::pending::<Result<(), StartError>>().await
    };
    tokio::pin!(terminated);
    let early = tokio::select! {
        () = &mut terminated => None,
        ended = &mut front => Some(ended),
        Err(error) = ready => return Err(error.into()),
        broken = engine.broken() => {
            eprintln!("albacore-server: {broken}");
            return Ok(ExitCode::from(EXIT_BROKEN_INVARIANT));
        }
    };
    if let Some(ended) = early {
        ended
            .context("the front failed")?
            .context("the front stopped")?;
        anyhow::bail!("the front stopped before it was told to");
    }
    say(&Line::Draining);
    drop(live);
    if let Some(told) = told {
        told.abort();
    }
    engine.drain();
    let started = tokio::time::Instant::now();
    // The receiver is gone only if the front is, which the next line sees.
    let _ = stop.send(true);
    let drained = tokio::time::timeout(settings.drain_timeout, &mut front).await;
    front.abort();
    let left = settings.drain_timeout.saturating_sub(started.elapsed());
    let is_answered = engine.stop(left).await && drained.is_ok();
    say(&Line::Stopped);
    if !is_answered {
        let seconds = settings.drain_timeout.as_secs_f64();
        anyhow::bail!("not everything was answered within --drain-timeout ({seconds} s)");
    }
    Ok(ExitCode::SUCCESS)
}
