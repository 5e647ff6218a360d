//! Startup, main loop and shutdown of the program.

use std::fs::Permissions;
use std::io::ErrorKind as IoError;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use albacore_program::{exit_code, listen, parse_arguments, serve_monitoring, termination_signal};
use albacore_proto::params::params_server::ParamsServer;
use anyhow::Context as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::transport::Server;

use crate::acceptor::Listener;
use crate::args::Args;
use crate::limits::{
    DRAIN_TIME_MAX, HEADER_BYTES_MAX, KEEPALIVE_PERIOD, KEEPALIVE_WAIT, REQUEST_BYTES_MAX,
    STREAMS_PER_CONNECTION_MAX,
};
use crate::metrics::ParamsMetrics;
use crate::monitoring::ParamsMonitoring;
use crate::report_forwarder::ReportForwarder;
use crate::service::ParamsService;
use crate::snapshot_reader::read_snapshots;
use crate::snapshots::SnapshotStore;

/// Runs until a signal stops it.
#[must_use]
pub fn main() -> ExitCode {
    let args: Args = match parse_arguments() {
        Ok(args) => args,
        Err(code) => return code,
    };
    // A single thread, because the program is almost always idle.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime");
    let result = runtime.and_then(|runtime| runtime.block_on(run(&args)));
    exit_code("albacore-params", result.map(|()| ExitCode::SUCCESS))
}

async fn run(args: &Args) -> anyhow::Result<()> {
    args.logs.start()?;
    let termination_signal = termination_signal().context("cannot handle SIGTERM")?;
    let (snapshots, metrics) = (Arc::new(SnapshotStore::new()), ParamsMetrics::default());
    let (stop, stopping) = watch::channel(false);
    let mut listeners = Vec::new();
    let mut grpc = None;
    if let Some(address) = args.grpc {
        let listener = listen("--grpc", address).await?;
        grpc = Some(listener.local_addr()?);
        listeners.push(Listener::Tcp(listener));
    }
    if let Some(path) = &args.unix {
        listeners.push(Listener::Unix(bind_unix(path).await?));
    }
    let mut monitoring_address = None;
    if let Some(address) = args.listen {
        let listener = listen("--listen", address).await?;
        monitoring_address = Some(listener.local_addr()?);
        let endpoints = Arc::new(ParamsMonitoring {
            snapshots: Arc::clone(&snapshots),
            metrics: metrics.clone(),
        });
        tokio::spawn(serve_monitoring(listener, endpoints));
    }
    let read = read_snapshots(args.feed.clone(), Arc::clone(&snapshots), metrics.clone());
    let reading = tokio::spawn(read);
    let reports = args.reports.clone();
    let reports = reports.map(|path| Arc::new(ReportForwarder::start(path, metrics.clone())));
    let mut serving = JoinSet::new();
    for listener in listeners {
        let service = ParamsService::new(
            Arc::clone(&snapshots),
            metrics.clone(),
            args.uid,
            reports.clone(),
            stopping.clone(),
        );
        serving.spawn(serve(listener, service, metrics.clone(), stopping.clone()));
    }
    tracing::info!(
        feed = %args.feed.display(), grpc = grpc.map(|a| a.to_string()),
        unix = args.unix.as_ref().map(|path| path.display().to_string()), uid = args.uid,
        listen = monitoring_address.map(|a| a.to_string()), "listening"
    );
    tokio::select! {
        () = termination_signal => {}
        Some(ended) = serving.join_next() => {
            ended.context("a task failed")?.context("the gRPC server stopped")?;
            anyhow::bail!("the gRPC server stopped unexpectedly");
        }
        _ = reading => anyhow::bail!("the reader of the feed stopped"),
    }
    tracing::info!("draining");
    // Fails only if the tasks of the receivers have ended, which the next lines detect.
    let _ = stop.send(true);
    let drained = tokio::time::timeout(DRAIN_TIME_MAX, async {
        // bound: one pass for each listener.
        while serving.join_next().await.is_some() {}
    });
    if drained.await.is_err() {
        tracing::warn!("some streams did not end in time and were aborted");
    }
    if let Some(path) = &args.unix {
        // The socket may have been removed already.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

async fn serve(
    listener: Listener,
    service: ParamsService,
    metrics: ParamsMetrics,
    mut stopping: watch::Receiver<bool>,
) -> Result<(), tonic::transport::Error> {
    let service = ParamsServer::new(service).max_decoding_message_size(REQUEST_BYTES_MAX);
    Server::builder()
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE_PERIOD))
        .http2_keepalive_timeout(Some(KEEPALIVE_WAIT))
        .add_service(service)
        .serve_with_incoming_shutdown(listener.connections(metrics), async move {
            let _ = stopping.wait_for(|&is_stopping| is_stopping).await;
        })
        .await
}

/// Binds a socket at `path` that only its owner may use. Replaces a socket without a listener.
async fn bind_unix(path: &Path) -> anyhow::Result<UnixListener> {
    let shown = path.display();
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == IoError::AddrInUse => {
            let is_socket = std::fs::symlink_metadata(path)?.file_type().is_socket();
            if !is_socket || UnixStream::connect(path).await.is_ok() {
                anyhow::bail!("--unix {shown} is in use: choose another path");
            }
            std::fs::remove_file(path)
                .with_context(|| format!("--unix {shown}: cannot remove the old socket"))?;
            UnixListener::bind(path)
        }
        bound => bound,
    };
    let listener = listener
        .with_context(|| format!("cannot listen on --unix {shown}: choose another path"))?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600))
        .with_context(|| format!("--unix {shown}: cannot set its mode"))?;
    Ok(listener)
}
