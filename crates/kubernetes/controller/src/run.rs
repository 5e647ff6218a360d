//! The program from its command line to its exit code.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use albacore_cluster::{
    Cluster, ConnectOptions, Gates, Key, Lease, LeaseOptions, Metrics, Outcome, Queue, Scope,
    Shutdown, Writes, serve, unique,
};
use albacore_program::{arguments, ended, start_logs};
use anyhow::Context as _;

use crate::args::Args;
use crate::build::BuiltIn;
use crate::check::check;
use crate::children::ChildKind;
use crate::limits::{DISCOVERY_PERIOD, WORKERS};
use crate::memory::Memories;
use crate::metrics::Counts;
use crate::names::FIELD_MANAGER;
use crate::pod_events::PodEvents;
use crate::reconcile::Controller;
use crate::rollout::Rollouts;
use crate::scrape::{States, scrape};
use crate::watches::{Ground, Watches, watch_for_silence};

/// Runs the controller until a signal ends it.
#[must_use]
pub fn main() -> ExitCode {
    let args: Args = match arguments() {
        Ok(args) => args,
        Err(code) => return code,
    };
    let runtime = tokio::runtime::Runtime::new().context("no threads can be started");
    let result = runtime.and_then(|runtime| runtime.block_on(run(args)));
    ended("albacore-controller", result.map(|()| ExitCode::SUCCESS))
}

async fn run(args: Args) -> anyhow::Result<()> {
    start_logs(args.log, &args.log_filter)?;
    let shutdown = Shutdown::on_signals().context("signals cannot be caught")?;
    let metrics = Metrics::new();
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
    let gates = Gates::default();
    let ground = Arc::new(ground(&args, &cluster, &gates, &shutdown, &metrics));
    let watches = Watches::start(&ground);
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
        states: States::default(),
        memories: ground.memories.clone(),
        events: ground.events.clone(),
        counts: Counts::registered(&metrics),
        pod_events: PodEvents::default(),
        built_in: BuiltIn {
            image: args.server_image,
            params_url: args.params_url,
        },
        rollouts: Rollouts::new(args.max_concurrent_rollouts),
        queue: ground.queue.clone(),
        start: Instant::now(),
    });
    let is_all_known = Arc::new(AtomicBool::new(false));
    start_tasks(&ground, &controller, &lease, &is_all_known);
    let worked = ground.queue.run(WORKERS, &shutdown, |key| {
        let (controller, lease) = (controller.clone(), lease.clone());
        let is_all_known = is_all_known.load(Ordering::Acquire);
        async move {
            match is_all_known && lease.is_held() {
                true => controller.reconcile(key).await,
                // All keys are added when we lead.
                false => Outcome::Done,
            }
        }
    });
    worked.await;
    ground.events.flush().await;
    finish(lease, &shutdown).await
}

fn ground(
    args: &Args,
    cluster: &Cluster,
    gates: &Gates,
    shutdown: &Shutdown,
    metrics: &Metrics,
) -> Ground {
    Ground {
        cluster: cluster.clone(),
        scope: match args.watch_namespace.as_slice() {
            [] => Scope::All,
            names => Scope::Namespaces(names.to_vec()),
        },
        gates: gates.clone(),
        shutdown: shutdown.clone(),
        queue: Queue::new("deployments", metrics),
        memories: Memories::default(),
        events: cluster.events(shutdown),
    }
}

fn start_tasks(
    ground: &Arc<Ground>,
    controller: &Arc<Controller>,
    lease: &Arc<Lease>,
    is_all_known: &Arc<AtomicBool>,
) {
    let (watches, states) = (controller.watches.clone(), controller.states.clone());
    let (queue, counts) = (ground.queue.clone(), controller.counts.clone());
    let scraping = {
        let (watches, lease) = (watches.clone(), lease.clone());
        async move {
            lease.held().await;
            scrape(watches, states, queue, counts).await;
        }
    };
    ground.shutdown.spawn("scrape", scraping);
    let silence = watch_for_silence(watches.clone(), ground.queue.clone());
    ground.shutdown.spawn("silence", silence);
    let leading = lead(
        ground.clone(),
        controller.clone(),
        lease.clone(),
        is_all_known.clone(),
    );
    ground.shutdown.spawn("lead", leading);
    ground
        .shutdown
        .spawn("discover", discover(ground.clone(), watches));
}

/// Each time that we begin to lead, everything is looked at anew: somebody else led before.
/// `is_all_known` is set once every kind was listed: whoever does not know all that is there writes
/// nothing.
async fn lead(
    ground: Arc<Ground>,
    controller: Arc<Controller>,
    lease: Arc<Lease>,
    is_all_known: Arc<AtomicBool>,
) {
    let watches = &controller.watches;
    // bound: until the program stops; a turn each time that the lease is taken.
    loop {
        watches.synced().await;
        watches.renewals.begin();
        is_all_known.store(true, Ordering::Release);
        lease.held().await;
        tracing::info!("this process leads");
        ground.memories.clear();
        controller.rebuild_rollouts();
        add_all(&ground, watches);
        lease.lost().await;
        tracing::warn!("this process does not lead any more");
    }
}

fn add_all(ground: &Ground, watches: &Watches) {
    for deployment in watches.deployments.select(|_| true) {
        ground.queue.add(Key::of(&*deployment));
    }
}

/// Watches ServiceMonitors once the API server serves them.
async fn discover(ground: Arc<Ground>, watches: Watches) {
    let kind = ChildKind::ServiceMonitor;
    // bound: until they are served or the program stops; a turn each DISCOVERY_PERIOD.
    loop {
        match ground.cluster.serves(kind.api_version(), kind.kind()).await {
            Ok(Some(_)) => break,
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "whether ServiceMonitors exist is not known yet"),
        }
        tokio::time::sleep(DISCOVERY_PERIOD).await;
    }
    tracing::info!("ServiceMonitors are written: the API server serves them");
    watches.add(&ground, kind);
    watches.synced().await;
    add_all(&ground, &watches);
}

async fn finish(lease: Arc<Lease>, shutdown: &Shutdown) -> anyhow::Result<()> {
    // Tasks that held it were aborted; whoever still does lets it run out.
    if let Some(lease) = Arc::into_inner(lease) {
        lease.release().await;
    }
    match shutdown.failure() {
        Some(reason) => Err(anyhow::anyhow!(reason)),
        None => Ok(()),
    }
}

/// Who we are in the lease, for people.
fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => FIELD_MANAGER.to_owned(),
        name => name.to_owned(),
    }
}
