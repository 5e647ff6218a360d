//! The program, from the command line to the exit code.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use albacore_cluster::{EventRecorder, MetricsRegistry, ReadinessGates, Shutdown};
use albacore_plan::Enforcement;
use albacore_program::{exit_code, parse_arguments};
use anyhow::Context as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::args::{Args, Command, Common, Daemon, EventSource};
use crate::cluster_view::ClusterView;
use crate::connect::connect;
use crate::heartbeat::check_heartbeat;
use crate::latency_reports::LatencyReports;
use crate::limits::{IDLE_TIME, SHUTDOWN_TIME_MAX};
use crate::metrics::AgentMetrics;
use crate::params_pipe::ParamsPipe;
use crate::placer_supervisor::PlacerSupervisor;
use crate::publisher::{PublishState, Publisher};
use crate::reconcile::{LoopInputs, LoopOptions, ReconcileLoop};
use crate::status_writer::{DesiredStatus, StatusWriter};
use crate::waker::waker;

/// Runs the agent until a signal stops it, or runs one of its subcommands.
#[must_use]
pub fn main() -> ExitCode {
    let args: Args = match parse_arguments() {
        Ok(args) => args,
        Err(code) => return code,
    };
    let result = run(args);
    exit_code("albacore-agent", result.map(|()| ExitCode::SUCCESS))
}

fn run(args: Args) -> anyhow::Result<()> {
    if let Some(Command::Alive) = args.command {
        check_heartbeat(&args.common.heartbeat, SystemTime::now()).map_err(anyhow::Error::msg)?;
        return Ok(());
    }
    if let Some(Command::Idle) = args.command {
        std::thread::sleep(IDLE_TIME);
        return Ok(());
    }
    let node = args
        .common
        .node_name
        .clone()
        .filter(|name| !name.is_empty());
    let node = node
        .context("--node-name is missing: give the name of the node that this process runs on")?;
    args.common.logs.start()?;
    // One thread handles the connection to the API server; the reconcile loop and the placer have
    // their own threads.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        match &args.command {
            None => serve(&args.common, &args.daemon, &node).await,
            Some(Command::Dump { pod }) => {
                crate::dump::run(&args.common, &node, pod.as_deref()).await
            }
            Some(Command::Restore) => crate::restore::run(&args.common, &node).await,
            Some(Command::Alive | Command::Idle) => Ok(()),
        }
    })
}

async fn serve(common: &Common, daemon: &Daemon, node: &str) -> anyhow::Result<()> {
    let signals = Shutdown::on_signals().context("cannot install the signal handlers")?;
    // Not stopped by signals: the tasks run until the loop has given back its masks and reported
    // it.
    let tasks = Shutdown::new();
    let metrics = MetricsRegistry::new();
    let cluster = connect(common, &metrics).await?;
    tracing::info!(
        node, enforcement = ?daemon.enforcement, opt_in = ?common.opt_in, feed = ?daemon.feed, reports = ?daemon.reports, events = ?daemon.events,
        proc = %common.proc.display(), cgroup = %common.cgroup.display(),
        sys = %common.sys.display(), kubeconfig = ?common.kubeconfig, "started"
    );
    let (waker, receiver) = waker();
    let (view, gates) = (common.view(node), ReadinessGates::default());
    let view = ClusterView::start(&cluster, view, &gates, &tasks, &waker);
    let events = cluster.events(&tasks);
    let (status, desired_status) = watch::channel(DesiredStatus::default());
    let writer = StatusWriter::new(cluster.clone(), node.to_owned());
    let writing = tokio::spawn(writer.run(desired_status));
    let stop = Arc::new(AtomicBool::new(false));
    let options = LoopOptions {
        host: common.host(),
        enforcement: Enforcement::from(daemon.enforcement),
        heartbeat: common.heartbeat.clone(),
    };
    let inputs = LoopInputs {
        cluster: Arc::new(view),
        latency_reports: open_latency_reports(daemon)?,
        stop: stop.clone(),
    };
    let use_connector = daemon.events == EventSource::Connector;
    let placer = PlacerSupervisor::new(
        common.host(),
        use_connector,
        common.distances.clone(),
        waker.clone(),
    );
    let publisher = Publisher {
        params: open_params_pipe(daemon, node)?,
        agent_metrics: AgentMetrics::registered(&metrics),
        metrics,
        events: events.clone(),
        status,
        state: PublishState::default(),
    };
    let thread = std::thread::Builder::new().name("reconcile".to_owned());
    let thread = thread
        .spawn(move || ReconcileLoop::new(options, inputs, placer, publisher).run(&receiver))
        .context("cannot start the reconcile thread")?;
    let mut reconciling = tokio::task::spawn_blocking(move || thread.join());
    let ended = tokio::select! {
        () = signals.triggered() => None,
        () = tasks.triggered() => None,
        ended = &mut reconciling => Some(ended),
    };
    stop.store(true, Ordering::Release);
    waker.wake();
    let ended = match ended {
        Some(ended) => ended,
        None => reconciling.await,
    };
    finish_writes(writing, &events).await;
    if let Some(reason) = tasks.failure() {
        anyhow::bail!(reason);
    }
    match ended {
        Ok(Ok(())) => Ok(()),
        _ => {
            anyhow::bail!("the loop panicked: masks stay until the restarted agent adopts them")
        }
    }
}

fn open_params_pipe(daemon: &Daemon, node: &str) -> anyhow::Result<Option<ParamsPipe>> {
    let path = daemon.feed.as_deref();
    let pipe = path.map(|path| ParamsPipe::open(path, node)).transpose();
    pipe.context("cannot open the pipe to albacore-params")
}

fn open_latency_reports(daemon: &Daemon) -> anyhow::Result<Option<LatencyReports>> {
    let pipe = daemon.reports.as_deref().map(LatencyReports::open);
    pipe.transpose()
        .context("cannot open the pipe from albacore-params")
}

/// Waits for the writes of the last status and the last events, for a bounded time.
async fn finish_writes(writing: JoinHandle<()>, events: &EventRecorder) {
    // The loop dropped its end of the channel, so the writer ends after the last status.
    let written = tokio::time::timeout(SHUTDOWN_TIME_MAX, writing).await;
    if written.is_err() {
        tracing::warn!("the last NodePlacement could not be written in time");
    }
    events.flush().await;
}
