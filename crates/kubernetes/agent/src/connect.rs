//! Connects to the API server and lists this node's pods once.

use std::time::Instant;

use albacore_cluster::{
    Cluster, ConnectOptions, MetricsRegistry, ReadinessGates, Shutdown, Writes,
};
use albacore_plan::Enforcement;

use crate::args::Common;
use crate::cluster_view::ClusterView;
use crate::desired::DesiredPod;
use crate::detected_counts::DetectedCounts;
use crate::limits::LIST_TIME_MAX;
use crate::waker::waker;

/// Field manager, reporting component of events, and user agent.
const MANAGER: &str = "albacore-agent";

/// Connects with the credentials given on the command line.
pub(crate) async fn connect(common: &Common, metrics: &MetricsRegistry) -> anyhow::Result<Cluster> {
    let options = ConnectOptions {
        kubeconfig: common.kubeconfig.clone(),
        manager: MANAGER,
        writes: Writes::Always,
        crash_after_writes: None,
    };
    Ok(Cluster::connect(&options, metrics).await?)
}

/// Lists the pods of this node that opted in. Their policies always enforce, because the plan does
/// not depend on enforcement.
pub(crate) async fn list_desired_pods(
    common: &Common,
    node: &str,
) -> anyhow::Result<Vec<DesiredPod>> {
    let shutdown = Shutdown::new();
    let cluster = connect(common, &MetricsRegistry::new()).await?;
    let (waker, _receiver) = waker();
    let view = ClusterView::start(
        &cluster,
        common.view(node),
        &ReadinessGates::default(),
        &shutdown,
        &waker,
    );
    let is_synced = tokio::time::timeout(LIST_TIME_MAX, view.synced()).await;
    let seconds = LIST_TIME_MAX.as_secs();
    anyhow::ensure!(
        is_synced.is_ok(),
        "the API server sent no list within {seconds} s"
    );
    let mut desired = view.desired_pods(Enforcement::Enforce);
    // Counts that a pod's annotation omits are taken from the agent's report.
    let _late = tokio::time::timeout(LIST_TIME_MAX, view.report_synced()).await;
    let mut counts = DetectedCounts::default();
    counts.adopt_previous(&view.previous_report().unwrap_or_default());
    counts.update(&desired, |_| None, Instant::now());
    counts.apply(&mut desired);
    Ok(desired)
}
