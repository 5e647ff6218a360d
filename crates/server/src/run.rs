//! The front process from its command line to its exit code.

use std::future::Future;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use clap::error::ErrorKind;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{Args, Settings};
use crate::engine::{Engine, LoadedModel, Observer};
use crate::events::{Line, say};
use crate::front;
use crate::limits::FRONT_THREADS;

/// Exit code of a command line that makes no sense.
const USAGE: u8 = 64;

/// Exit code of a broken invariant.
const BROKEN: u8 = 70;

/// Runs the server until a signal ends it.
#[must_use]
pub fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help that cannot be printed is nobody's loss.
            let _ = error.print();
            let is_help = matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            );
            return if is_help {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(USAGE)
            };
        }
    };
    let settings = match args.check() {
        Ok(settings) => settings,
        Err(sentence) => {
            eprintln!("albacore-server: {sentence}");
            return ExitCode::from(USAGE);
        }
    };
    log_to_stderr();
    match start(settings) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("albacore-server: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("ALBACORE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
}

fn start(settings: Settings) -> anyhow::Result<ExitCode> {
    let models = settings
        .models
        .iter()
        .map(LoadedModel::load)
        .collect::<Result<Vec<_>, _>>()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(FRONT_THREADS)
        .thread_name("albf.io")
        .enable_all()
        .build()
        .context("the front's threads cannot be started")?;
    runtime.block_on(serve(settings, models))
}

async fn serve(settings: Settings, models: Vec<LoadedModel>) -> anyhow::Result<ExitCode> {
    let http = bind("--http", settings.http).await?;
    let grpc = bind("--grpc", settings.grpc).await?;
    let terminated = terminated()?;
    say(&Line::Listening {
        http: http.local_addr()?,
        grpc: grpc.local_addr()?,
    });
    let observer = Observer(Box::new(|event| say(&event.into())));
    let engine = Arc::new(Engine::start(&settings.engine, models, observer)?);
    tokio::pin!(terminated);
    tokio::select! {
        started = engine.started() => started?,
        () = &mut terminated => {
            // Nothing was served yet.
            engine.stop(Duration::ZERO).await;
            say(&Line::Stopped);
            return Ok(ExitCode::SUCCESS);
        }
    }
    say(&Line::Ready);
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let shutdown = async move {
        // An error means that the sender is gone: that is an end, too.
        let _ = stopped.wait_for(|&is_stopped| is_stopped).await;
    };
    let mut front = tokio::spawn(front::serve(Arc::clone(&engine), http, grpc, shutdown));
    let early = tokio::select! {
        () = &mut terminated => None,
        ended = &mut front => Some(ended),
        broken = engine.broken() => {
            eprintln!("albacore-server: {broken}");
            return Ok(ExitCode::from(BROKEN));
        }
    };
    if let Some(ended) = early {
        ended
            .context("the front failed")?
            .context("the front stopped")?;
        anyhow::bail!("the front stopped before it was told to");
    }
    say(&Line::Draining);
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

async fn bind(argument: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("{argument} {address} cannot be listened on: choose another address or port")
    })
}

/// Resolves at the first SIGTERM or SIGINT; both are caught from now on.
fn terminated() -> anyhow::Result<impl Future<Output = ()>> {
    let mut term = signal(SignalKind::terminate()).context("SIGTERM cannot be caught")?;
    let mut int = signal(SignalKind::interrupt()).context("SIGINT cannot be caught")?;
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    })
}
