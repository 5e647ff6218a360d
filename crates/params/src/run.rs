//! The program from its command line to its exit code.

use std::fs::Permissions;
use std::future::Future;
use std::io::ErrorKind as IoError;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use albacore_proto::params::params_server::ParamsServer;
use anyhow::Context as _;
use clap::Parser as _;
use clap::error::ErrorKind;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::transport::Server;

use crate::args::{Args, Log};
use crate::counts::Counts;
use crate::door::Door;
use crate::feed;
use crate::known::Known;
use crate::limits::{
    DRAIN_TIME_MAX, HEADER_BYTES_MAX, KEEPALIVE_PERIOD, KEEPALIVE_WAIT, REQUEST_BYTES_MAX,
    STREAMS_PER_CONNECTION_MAX,
};
use crate::site::{self, Site};
use crate::watching::Watching;

/// Exit code of a command line that makes no sense.
const USAGE: u8 = 64;

/// Runs until a signal ends it.
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
    // One thread: it waits for nearly all of its time.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("no runtime can be started");
    match runtime.and_then(|runtime| runtime.block_on(run(&args))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("albacore-params: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> anyhow::Result<()> {
    start_logs(args)?;
    let terminated = terminated()?;
    let (known, counts) = (Arc::new(Known::new()), Counts::default());
    let (stop, stopping) = watch::channel(false);
    let mut doors = Vec::new();
    let mut grpc = None;
    if let Some(address) = args.grpc {
        let listener = bind("--grpc", address).await?;
        grpc = Some(listener.local_addr()?);
        doors.push(Door::Tcp(listener));
    }
    if let Some(path) = &args.unix {
        doors.push(Door::Unix(bind_unix(path).await?));
    }
    let mut site = None;
    if let Some(address) = args.listen {
        let listener = bind("--listen", address).await?;
        site = Some(listener.local_addr()?);
        let shown = Arc::new(Site {
            known: Arc::clone(&known),
            counts: counts.clone(),
        });
        tokio::spawn(site::serve(listener, shown));
    }
    let follow = feed::follow(args.feed.clone(), Arc::clone(&known), counts.clone());
    let following = tokio::spawn(follow);
    let mut serving = JoinSet::new();
    for door in doors {
        let service = Watching::new(
            Arc::clone(&known),
            counts.clone(),
            args.uid,
            stopping.clone(),
        );
        serving.spawn(serve(door, service, counts.clone(), stopping.clone()));
    }
    tracing::info!(
        feed = %args.feed.display(), grpc = grpc.map(|a| a.to_string()),
        unix = args.unix.as_ref().map(|path| path.display().to_string()), uid = args.uid,
        listen = site.map(|a| a.to_string()), "listening"
    );
    tokio::select! {
        () = terminated => {}
        Some(ended) = serving.join_next() => {
            ended.context("a task failed")?.context("the gRPC server stopped")?;
            anyhow::bail!("the gRPC server stopped before it was told to");
        }
        _ = following => anyhow::bail!("the feed is not read any more"),
    }
    tracing::info!("draining");
    // The receivers are gone only if their tasks are, which the next lines see.
    let _ = stop.send(true);
    let drained = tokio::time::timeout(DRAIN_TIME_MAX, async {
        // bound: one pass each door.
        while serving.join_next().await.is_some() {}
    });
    if drained.await.is_err() {
        tracing::warn!("some streams did not end in time and were cut");
    }
    if let Some(path) = &args.unix {
        // A socket that is gone already is as it should be.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

async fn serve(
    door: Door,
    service: Watching,
    counts: Counts,
    mut stopping: watch::Receiver<bool>,
) -> Result<(), tonic::transport::Error> {
    let service = ParamsServer::new(service).max_decoding_message_size(REQUEST_BYTES_MAX);
    Server::builder()
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE_PERIOD))
        .http2_keepalive_timeout(Some(KEEPALIVE_WAIT))
        .add_service(service)
        .serve_with_incoming_shutdown(door.guests(counts), async move {
            let _ = stopping.wait_for(|&is_so| is_so).await;
        })
        .await
}

fn start_logs(args: &Args) -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_new(&args.log_filter)
        .with_context(|| format!("--log-filter {} cannot be read", args.log_filter))?;
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let started = match args.log {
        Log::Text => logs.with_ansi(false).try_init(),
        Log::Json => logs.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("logs cannot be started: {error}"))
}

/// Listens on `address`. `[::]` is every address, of IPv4 too; where the kernel has no IPv6, all of
/// IPv4.
async fn bind(argument: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let bound = match TcpListener::bind(address).await {
        // EAFNOSUPPORT and EADDRNOTAVAIL: no sockets or no addresses of IPv6; std has no kind for the
        // first.
        Err(error)
            if address.ip() == Ipv6Addr::UNSPECIFIED
                && matches!(error.raw_os_error(), Some(97 | 99)) =>
        {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    };
    bound.with_context(|| {
        format!("{argument} {address} cannot be listened on: choose another address or port")
    })
}

/// A socket at `path`, for its owner alone. One that nobody listens on any more is replaced.
async fn bind_unix(path: &Path) -> anyhow::Result<UnixListener> {
    let shown = path.display();
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == IoError::AddrInUse => {
            let is_socket = std::fs::symlink_metadata(path)?.file_type().is_socket();
            if !is_socket || UnixStream::connect(path).await.is_ok() {
                anyhow::bail!("--unix {shown} is in use: choose another path");
            }
            std::fs::remove_file(path)
                .with_context(|| format!("--unix {shown}: the old socket cannot be removed"))?;
            UnixListener::bind(path)
        }
        bound => bound,
    };
    let listener = listener
        .with_context(|| format!("--unix {shown} cannot be listened on: choose another path"))?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600))
        .with_context(|| format!("--unix {shown}: its mode cannot be set"))?;
    Ok(listener)
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
