//! The program from its command line to its exit code.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use albacore_cluster::{Cluster, ConnectOptions, Events, Gates, Metrics, Shutdown, Writes};
use albacore_plan::Enforcement;
use albacore_program::{arguments, ended, start_logs};
use anyhow::Context as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::args::{Args, Command, Common, Daemon, EventSource};
use crate::feed::Feed;
use crate::heartbeat::alive;
use crate::keeper::{Keeper, Setup};
use crate::limits::{FAREWELL_TIME_MAX, IDLE_TIME};
use crate::metrics::Counts;
use crate::reports::Reports;
use crate::view::{View, bell};
use crate::writer::{Wanted, Writer};

/// Field manager, reporter of events, user agent.
const MANAGER: &str = "albacore-agent";

/// Runs the agent until a signal ends it, or one of its commands.
#[must_use]
pub fn main() -> ExitCode {
    let args: Args = match arguments() {
        Ok(args) => args,
        Err(code) => return code,
    };
    let result = run(args);
    ended("albacore-agent", result.map(|()| ExitCode::SUCCESS))
}

fn run(args: Args) -> anyhow::Result<()> {
    if let Some(Command::Alive) = args.command {
        alive(&args.common.heartbeat, SystemTime::now()).map_err(anyhow::Error::msg)?;
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
    let node = node.context("--node-name is missing: the node that this process runs on")?;
    start_logs(args.common.log, &args.common.log_filter)?;
    // One thread talks to the API server; the loop and the placer have their own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("no runtime can be started")?;
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

/// Connects to the API server, as whoever the command line says.
pub(crate) async fn connect(common: &Common, metrics: &Metrics) -> anyhow::Result<Cluster> {
    let options = ConnectOptions {
        kubeconfig: common.kubeconfig.clone(),
        manager: MANAGER,
        writes: Writes::Always,
        crash_after_writes: None,
    };
    Ok(Cluster::connect(&options, metrics).await?)
}

async fn serve(common: &Common, daemon: &Daemon, node: &str) -> anyhow::Result<()> {
    let asked = Shutdown::on_signals().context("signals cannot be caught")?;
    // The tasks go on while masks are given back, so that this is told, too.
    let tasks = Shutdown::new();
    let metrics = Metrics::new();
    let cluster = connect(common, &metrics).await?;
    tracing::info!(
        node, enforcement = ?daemon.enforcement, feed = ?daemon.feed, reports = ?daemon.reports, events = ?daemon.events,
        proc = %common.proc.display(), cgroup = %common.cgroup.display(),
        sys = %common.sys.display(), kubeconfig = ?common.kubeconfig, "started"
    );
    let (bell, ears) = bell();
    let view = Arc::new(View::start(
        &cluster,
        node,
        &Gates::default(),
        &tasks,
        &bell,
    ));
    let events = cluster.events(&tasks);
    let (wanted, wishes) = watch::channel(Wanted::default());
    let writing = tokio::spawn(Writer::new(cluster.clone(), node.to_owned()).run(wishes));
    let stop = Arc::new(AtomicBool::new(false));
    let feed = daemon.feed.as_deref().map(|path| Feed::open(path, node));
    let feed = feed.transpose().context("the pipe to albacore-params")?;
    let reports = daemon.reports.as_deref().map(Reports::open);
    let reports = reports
        .transpose()
        .context("the pipe from albacore-params")?;
    let setup = Setup {
        host: common.host(),
        flag: Enforcement::from(daemon.enforcement),
        hears_births: daemon.events == EventSource::Connector,
        heartbeat: common.heartbeat.clone(),
        view,
        feed,
        reports,
        metrics: metrics.clone(),
        events: events.clone(),
        wanted,
        counts: Counts::registered(&metrics),
        stop: stop.clone(),
        bell: bell.clone(),
    };
    let keeper = std::thread::Builder::new().name("keeper".to_owned());
    let keeper = keeper
        .spawn(move || Keeper::new(setup).run(&ears))
        .context("no thread can be started")?;
    let mut keeper = tokio::task::spawn_blocking(move || keeper.join());
    let ended = tokio::select! {
        () = asked.triggered() => None,
        () = tasks.triggered() => None,
        ended = &mut keeper => Some(ended),
    };
    stop.store(true, Ordering::Release);
    bell.ring();
    let ended = match ended {
        Some(ended) => ended,
        None => keeper.await,
    };
    say_goodbye(writing, &events).await;
    if let Some(reason) = tasks.failure() {
        anyhow::bail!(reason);
    }
    match ended {
        Ok(Ok(())) => Ok(()),
        _ => anyhow::bail!(
            "the loop ended with a panic: masks stay as they are, the next life adopts them"
        ),
    }
}

/// Waits until the last status and the last events are written, for a bounded time.
async fn say_goodbye(writing: JoinHandle<()>, events: &Events) {
    // The keeper dropped its end of what is wanted: the last status is written now.
    let written = tokio::time::timeout(FAREWELL_TIME_MAX, writing).await;
    if written.is_err() {
        tracing::warn!("the last NodePlacement could not be written in time");
    }
    events.flush().await;
}
