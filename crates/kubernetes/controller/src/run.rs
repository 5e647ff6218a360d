//! Startup, main loop and shutdown of the program.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use albacore_cluster::{
    Cluster, ConnectOptions, Lease, LeaseOptions, MetricsRegistry, ObjectKey, ReadinessGates,
    Scope, Shutdown, WorkOutcome, WorkQueue, Writes, serve, unique,
};
use albacore_program::{exit_code, parse_arguments};
use anyhow::Context as _;

use crate::args::Args;
use crate::build::BuiltInOptions;
use crate::check::check;
use crate::children::ChildKind;
use crate::limits::{CONSOLIDATION_DELAY, DISCOVERY_PERIOD, WORKERS};
use crate::metrics::ControllerMetrics;
use crate::names::FIELD_MANAGER;
use crate::pod_events::PodEvents;
use crate::reconcile::Controller;
use crate::record::DeploymentRecords;
use crate::rollout::Rollouts;
use crate::scrape::{ServerStates, scrape};
use crate::watches::{ControllerContext, Watches, watch_silent_nodes};

/// Runs the controller until a signal stops it.
#[must_use]
pub fn main() -> ExitCode {
    let args: Args = match parse_arguments() {
        Ok(args) => args,
        Err(code) => return code,
    };
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime");
    let result = runtime.and_then(|runtime| runtime.block_on(run(args)));
    exit_code("albacore-controller", result.map(|()| ExitCode::SUCCESS))
}

async fn run(args: Args) -> anyhow::Result<()> {
    args.logs.start()?;
    let shutdown = Shutdown::on_signals().context("cannot install the signal handlers")?;
    let metrics = MetricsRegistry::new();
    let options = ConnectOptions {
        kubeconfig: args.kubeconfig.clone(),
        manager: FIELD_MANAGER,
        writes: Writes::WhileLeading,
        crash_after_writes: args.crash_after_writes,
    };
    let cluster = Cluster::connect(&options, &metrics).await?;
    if args.check {
        return check(&cluster, &args).await;
    }
    cluster.limit_requests_per_second(args.requests_per_second);
    let gates = ReadinessGates::default();
    let context = Arc::new(context(&args, &cluster, &gates, &shutdown, &metrics));
    let watches = Watches::start(&context);
    let address = serve(args.listen, &gates, &metrics, &shutdown).await?;
    let namespace = args.lease_namespace.clone();
    let namespace = namespace.unwrap_or_else(|| cluster.namespace().to_owned());
    tracing::info!(
        %address, server_image = args.server_image, params_url = ?args.params_url, watch_namespace = ?args.watch_namespace,
        lease_namespace = namespace, lease_name = args.lease_name,
        kubeconfig = ?args.kubeconfig, "started"
    );
    let identity = unique(&hostname());
    let lease = Lease::start(
        &cluster,
        LeaseOptions::new(&namespace, &args.lease_name, identity),
    );
    let lease = Arc::new(lease);
    let controller = Arc::new(Controller {
        cluster,
        watches: watches.clone(),
        states: context.states.clone(),
        records: context.records.clone(),
        events: context.events.clone(),
        metrics: ControllerMetrics::registered(&metrics),
        pod_events: PodEvents::default(),
        built_in: BuiltInOptions {
            image: args.server_image,
            params_url: args.params_url,
        },
        rollouts: Rollouts::new(args.max_concurrent_rollouts),
        queue: context.queue.clone(),
        consolidation_delay: args
            .consolidate_after
            .map_or(CONSOLIDATION_DELAY, Duration::from_secs),
        start: Instant::now(),
    });
    let is_synced = Arc::new(AtomicBool::new(false));
    start_tasks(&context, &controller, &lease, &is_synced);
    let worked = context.queue.run(WORKERS, &shutdown, |key| {
        let (controller, lease) = (controller.clone(), lease.clone());
        let is_synced = is_synced.load(Ordering::Acquire);
        async move {
            match is_synced && lease.is_held() {
                true => controller.reconcile(key).await,
                // All keys are queued when this process acquires the lease.
                false => WorkOutcome::Done,
            }
        }
    });
    worked.await;
    context.events.flush().await;
    finish(lease, &shutdown).await
}

fn context(
    args: &Args,
    cluster: &Cluster,
    gates: &ReadinessGates,
    shutdown: &Shutdown,
    metrics: &MetricsRegistry,
) -> ControllerContext {
    ControllerContext {
        cluster: cluster.clone(),
        scope: match args.watch_namespace.as_slice() {
            [] => Scope::All,
            names => Scope::Namespaces(names.to_vec()),
        },
        gates: gates.clone(),
        shutdown: shutdown.clone(),
        queue: WorkQueue::new("deployments", metrics),
        records: DeploymentRecords::default(),
        states: ServerStates::default(),
        events: cluster.events(shutdown),
    }
}

fn start_tasks(
    context: &Arc<ControllerContext>,
    controller: &Arc<Controller>,
    lease: &Arc<Lease>,
    is_synced: &Arc<AtomicBool>,
) {
    let (watches, states) = (controller.watches.clone(), controller.states.clone());
    let (queue, metrics) = (context.queue.clone(), controller.metrics.clone());
    let scraping = {
        let (watches, lease) = (watches.clone(), lease.clone());
        async move {
            lease.wait_until_held().await;
            scrape(watches, states, queue, metrics).await;
        }
    };
    context.shutdown.spawn("scrape", scraping);
    let silence = watch_silent_nodes(watches.clone(), context.queue.clone());
    context.shutdown.spawn("silence", silence);
    let leading = lead(
        context.clone(),
        controller.clone(),
        lease.clone(),
        is_synced.clone(),
    );
    context.shutdown.spawn("lead", leading);
    context
        .shutdown
        .spawn("discover", discover(context.clone(), watches));
}

/// Each time that this process acquires the lease, discards its records and reconciles everything,
/// because another process led before. `is_synced` is set once every kind was listed; nothing is
/// written before.
async fn lead(
    context: Arc<ControllerContext>,
    controller: Arc<Controller>,
    lease: Arc<Lease>,
    is_synced: Arc<AtomicBool>,
) {
    let watches = &controller.watches;
    // bound: until the program stops; one turn each time that the lease is acquired.
    loop {
        watches.synced().await;
        watches.renewals.set_listed();
        is_synced.store(true, Ordering::Release);
        lease.wait_until_held().await;
        tracing::info!("this process is the leader");
        context.records.clear();
        controller.rebuild_rollouts();
        add_all(&context, watches);
        lease.wait_until_lost().await;
        tracing::warn!("this process is no longer the leader");
    }
}

fn add_all(context: &ControllerContext, watches: &Watches) {
    for deployment in watches.deployments.select(|_| true) {
        context.queue.add(ObjectKey::of(&*deployment));
    }
}

/// Watches ServiceMonitors as soon as the API server serves them.
async fn discover(context: Arc<ControllerContext>, watches: Watches) {
    let kind = ChildKind::ServiceMonitor;
    // bound: until they are served or the program stops; one turn each DISCOVERY_PERIOD.
    loop {
        match context
            .cluster
            .discover(kind.api_version(), kind.kind())
            .await
        {
            Ok(Some(_)) => break,
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "cannot discover ServiceMonitors yet"),
        }
        tokio::time::sleep(DISCOVERY_PERIOD).await;
    }
    tracing::info!("ServiceMonitors are written: the API server serves them");
    watches.add(&context, kind);
    watches.synced().await;
    add_all(&context, &watches);
}

async fn finish(lease: Arc<Lease>, shutdown: &Shutdown) -> anyhow::Result<()> {
    // Tasks that shared the lease were aborted. If one still holds it, the lease expires.
    if let Some(lease) = Arc::into_inner(lease) {
        lease.release().await;
    }
    match shutdown.failure() {
        Some(reason) => Err(anyhow::anyhow!(reason)),
        None => Ok(()),
    }
}

/// The human-readable part of this process's identity in the lease.
fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => FIELD_MANAGER.to_owned(),
        name => name.to_owned(),
    }
}
