//! The program from its command line to its exit code.

use std::fs::Permissions;
use std::io::ErrorKind as IoError;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use albacore_program::{arguments, ended, listen, serve_pages, start_logs, terminated};
use albacore_proto::params::params_server::ParamsServer;
use anyhow::Context as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::transport::Server;

use crate::args::Args;
use crate::counts::Counts;
use crate::door::Door;
use crate::feed;
use crate::known::Known;
use crate::limits::{
    DRAIN_TIME_MAX, HEADER_BYTES_MAX, KEEPALIVE_PERIOD, KEEPALIVE_WAIT, REQUEST_BYTES_MAX,
    STREAMS_PER_CONNECTION_MAX,
};
use crate::reports::Reports;
use crate::site::Site;
use crate::watching::Watching;

/// Runs until a signal ends it.
#[must_use]
pub fn main() -> ExitCode {
    let args: Args = match arguments() {
        Ok(args) => args,
        Err(code) => return code,
    };
    // One thread: it waits for nearly all of its time.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("no runtime can be started");
    let result = runtime.and_then(|runtime| runtime.block_on(run(&args)));
    ended("albacore-params", result.map(|()| ExitCode::SUCCESS))
}

async fn run(args: &Args) -> anyhow::Result<()> {
    start_logs(args.log, &args.log_filter)?;
    let terminated = terminated().context("SIGTERM cannot be caught")?;
    let (known, counts) = (Arc::new(Known::new()), Counts::default());
    let (stop, stopping) = watch::channel(false);
    let mut doors = Vec::new();
    let mut grpc = None;
    if let Some(address) = args.grpc {
        let listener = listen("--grpc", address).await?;
        grpc = Some(listener.local_addr()?);
        doors.push(Door::Tcp(listener));
    }
    if let Some(path) = &args.unix {
        doors.push(Door::Unix(bind_unix(path).await?));
    }
    let mut site = None;
    if let Some(address) = args.listen {
        let listener = listen("--listen", address).await?;
        site = Some(listener.local_addr()?);
        let shown = Arc::new(Site {
            known: Arc::clone(&known),
            counts: counts.clone(),
        });
        tokio::spawn(serve_pages(listener, shown));
    }
    let follow = feed::follow(args.feed.clone(), Arc::clone(&known), counts.clone());
    let following = tokio::spawn(follow);
    let reports = args.reports.clone();
    let reports = reports.map(|path| Arc::new(Reports::start(path, counts.clone())));
    let mut serving = JoinSet::new();
    for door in doors {
        let service = Watching::new(
            Arc::clone(&known),
            counts.clone(),
            args.uid,
            reports.clone(),
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
