//! Selects the pods that receive requests, for deployments with `batching.prefer: IdleWorkers`.
//!
//! Problem: a Service distributes requests evenly over the ready pods, so that at low load all of
//! them are slightly busy, and scaling down removes an arbitrary one.
//!
//! Approach: the number of pods that are sufficient follows from their reports ([`Consolidator`]).
//! The others become spare: the value of their label no longer matches the selector of the Service,
//! and their deletion cost makes them the first to be deleted. They stay ready, and receive
//! requests again after a single patch. The label is part of the pod template, so that pods receive
//! requests even if no controller runs. Whenever anything other than the load changes or is
//! unknown, every pod receives requests. The decision is pure; [`apply_decision`] executes it.
//!
//! Limits: a client that keeps a connection to a pod that became spare continues to use it
//! (kube-proxy selects a pod per connection), and this work counts as load.

use std::time::Duration;

use albacore_api::{
    Autoscaling, BatchingPolicy, BatchingPreference, InferenceDeploymentSpec, TrafficStatus,
};
use albacore_batching::{BUSY_MAX, Consolidation, Consolidator, Nanos, RECENT_PAUSE, ServingCause};
use albacore_cluster::{ApiResource, Cluster, ClusterError, ErrorClass, ObjectKey};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::limits::{FIRST_REPORT_TIME_MAX, SCRAPE_PERIOD, SERVING_MIN};
use crate::model_outcomes::load_of;
use crate::names::{DELETION_COST_ANNOTATION, TRAFFIC_LABEL};
use crate::observed::{LiveObject, ObservedPod, Traffic, Workload};
use crate::server_state::ServerState;

/// The deletion cost of a spare pod: lower than the default of 0.
const SPARE_COST: &str = "-1";

/// State of a deployment between decisions.
#[derive(Debug, Default)]
pub(crate) struct TrafficRecord {
    consolidator: Consolidator,
    /// Time of the first observation.
    since: Option<Nanos>,
    /// Time at which spare pods last became serving again.
    returned_at: Option<Nanos>,
}

impl TrafficRecord {
    /// Whether existing pods can absorb the load that caused bad requests: some are spare, or were
    /// spare so recently that the reported bad requests date from before they returned.
    pub(crate) fn can_absorb_load(&self, pods: &[ObservedPod], now: Nanos) -> bool {
        let is_recent = |at| now.saturating_sub(at) < RECENT_PAUSE;
        pods.iter().any(is_spare) || self.returned_at.is_some_and(is_recent)
    }
}

/// The reason for the number of pods that receive requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TrafficCause {
    /// `IdleWorkers` is not preferred, or the spec is invalid.
    NotPreferred,
    /// The load is not known yet.
    Starting,
    RollingOut,
    /// Fewer pods are ready than desired.
    PodsMissing,
    /// A pod does not report its load.
    NoReport,
    Load(ServingCause),
}

/// The pods to change, and the reason.
#[derive(Debug)]
pub(crate) struct TrafficDecision {
    /// Indices of pods.
    changes: Vec<(usize, Traffic)>,
    pub(crate) cause: TrafficCause,
    /// When to decide again even if nothing changes.
    pub(crate) pause: Option<Duration>,
}

/// The inputs of a decision.
pub(crate) struct TrafficInputs<'a> {
    /// `None` if the spec is invalid.
    pub(crate) spec: Option<&'a InferenceDeploymentSpec>,
    pub(crate) workload: Option<&'a Workload>,
    pub(crate) pods: &'a [ObservedPod],
    /// How long fewer pods must have been sufficient.
    pub(crate) delay: Duration,
}

/// Decides which pods should receive requests at `now`.
pub(crate) fn decide(
    inputs: &TrafficInputs<'_>,
    record: &mut TrafficRecord,
    now: Nanos,
) -> TrafficDecision {
    let age = now.saturating_sub(*record.since.get_or_insert(now));
    let cause = match inputs.spec.filter(|spec| prefers_idle_pods(spec)) {
        None => TrafficCause::NotPreferred,
        Some(spec) => match blocking_cause(inputs, age) {
            Some(cause) => cause,
            None => return decide_by_load(inputs, spec, record, now),
        },
    };
    record.consolidator.restart();
    let changes = match cause {
        TrafficCause::Starting => Vec::new(),
        _ => restore_all_spare(inputs.pods),
    };
    finish(inputs, record, now, changes, cause)
}

/// Whether pods of a deployment may become spare.
pub(crate) fn prefers_idle_pods(spec: &InferenceDeploymentSpec) -> bool {
    spec.is_built_in()
        && spec.batching.policy == BatchingPolicy::Auto
        && spec.batching.prefer == Some(BatchingPreference::IdleWorkers)
}

/// Whether the Service may select by the label, which requires that the template and all existing
/// pods have it.
pub(crate) fn selects_traffic(
    spec: &InferenceDeploymentSpec,
    live: Option<&LiveObject>,
    pods: &[ObservedPod],
) -> bool {
    let in_template = |live: &LiveObject| {
        let labels = &live.body["spec"]["template"]["metadata"]["labels"];
        labels[TRAFFIC_LABEL] == Traffic::Serving.label()
    };
    let mut pods = pods
        .iter()
        .filter(|pod| pod.is_controlled && !pod.is_inactive);
    prefers_idle_pods(spec) && live.is_none_or(in_template) && pods.all(|p| p.traffic.is_some())
}

/// The condition that forbids a decision based on the load, if there is one.
fn blocking_cause(inputs: &TrafficInputs<'_>, age: Nanos) -> Option<TrafficCause> {
    let workload = inputs.workload.filter(|workload| workload.is_observed);
    let Some(workload) = workload else {
        return Some(TrafficCause::Starting);
    };
    if !workload.is_rolled_out() {
        return Some(TrafficCause::RollingOut);
    }
    let ready = || inputs.pods.iter().filter(|pod| is_ready(pod));
    if i32::try_from(ready().count()).unwrap_or(i32::MAX) < workload.desired {
        return Some(TrafficCause::PodsMissing);
    }
    match ready().any(|pod| pod.state.is_none()) {
        true if age < nanos(FIRST_REPORT_TIME_MAX) => Some(TrafficCause::Starting),
        true => Some(TrafficCause::NoReport),
        false => None,
    }
}

fn decide_by_load(
    inputs: &TrafficInputs<'_>,
    spec: &InferenceDeploymentSpec,
    record: &mut TrafficRecord,
    now: Nanos,
) -> TrafficDecision {
    let ready = || inputs.pods.iter().filter(|pod| is_ready(pod));
    let serving = || ready().filter(|pod| !is_spare(pod));
    let busy = ready().filter_map(|pod| Some(busy_fraction(pod.state.as_ref()?, is_spare(pod))));
    let factors = [load_of(spec, ready()), load_of(spec, serving())].map(|load| load.factor());
    let [all, before] = [ready().count(), serving().count()];
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let consolidation = Consolidation {
        ready: count(all),
        serving: count(before),
        least: min_serving(spec),
        work: busy.sum(),
        factor: factors[0].max(factors[1]),
    };
    let advice = record
        .consolidator
        .advise(now, nanos(inputs.delay), &consolidation);
    let target = usize::try_from(advice.serving).unwrap_or(all);
    let order = consolidation_order(inputs.pods);
    let of = |is_candidate: fn(&ObservedPod) -> bool| {
        let found = order
            .iter()
            .copied()
            .filter(move |&at| is_candidate(&inputs.pods[at]));
        found.collect::<Vec<usize>>()
    };
    let to_spare = of(|pod| !is_spare(pod))
        .into_iter()
        .take(before.saturating_sub(target));
    let to_serving = of(is_spare)
        .into_iter()
        .rev()
        .take(target.saturating_sub(before));
    let to_spare = to_spare.map(|at| (at, Traffic::Spare));
    let changes = to_spare
        .chain(to_serving.map(|at| (at, Traffic::Serving)))
        .collect();
    finish(
        inputs,
        record,
        now,
        changes,
        TrafficCause::Load(advice.cause),
    )
}

fn finish(
    inputs: &TrafficInputs<'_>,
    record: &mut TrafficRecord,
    now: Nanos,
    changes: Vec<(usize, Traffic)>,
    cause: TrafficCause,
) -> TrafficDecision {
    if changes
        .iter()
        .any(|(_, traffic)| *traffic == Traffic::Serving)
    {
        record.returned_at = Some(now);
    }
    // No watch event triggers a reconcile when the time has passed.
    let waits = matches!(
        cause,
        TrafficCause::Starting | TrafficCause::Load(ServingCause::Measuring)
    );
    TrafficDecision {
        changes,
        cause,
        pause: waits.then(|| SCRAPE_PERIOD.min(inputs.delay)),
    }
}

fn restore_all_spare(pods: &[ObservedPod]) -> Vec<(usize, Traffic)> {
    let spare = pods.iter().enumerate().filter(|(_, pod)| is_spare(pod));
    spare.map(|(at, _)| (at, Traffic::Serving)).collect()
}

/// Indices of the ready pods in the order in which they become spare: first pods that share their
/// node with other pods of the deployment, then the newest.
fn consolidation_order(pods: &[ObservedPod]) -> Vec<usize> {
    let serving = || pods.iter().filter(|pod| is_ready(pod) && !is_spare(pod));
    let neighbors = |pod: &ObservedPod| serving().filter(|other| other.node == pod.node).count();
    let key = |at: &usize| {
        let pod = &pods[*at];
        (neighbors(pod), pod.created, pod.name.as_str())
    };
    let mut order: Vec<usize> = (0..pods.len()).filter(|&at| is_ready(&pods[at])).collect();
    order.sort_by_cached_key(|at| std::cmp::Reverse(key(at)));
    order
}

fn is_ready(pod: &ObservedPod) -> bool {
    pod.is_controlled && pod.is_ready && !pod.is_inactive
}

pub(crate) fn is_spare(pod: &ObservedPod) -> bool {
    pod.is_controlled && !pod.is_inactive && pod.traffic == Some(Traffic::Spare)
}

/// Fraction of time in which a pod was busy: that of its workers, or of its front end if that is
/// busier. For a spare pod the figure of the front end is ignored, because it may date from before
/// the pod became spare.
fn busy_fraction(state: &ServerState, is_spare: bool) -> f64 {
    let front = state.front.as_ref().filter(|_| !is_spare);
    let front = front.map_or(0.0, |front| front.busy);
    (1.0 - state.idle_share).max(front).clamp(0.0, 1.0)
}

/// Minimum number of pods that receive requests.
fn min_serving(spec: &InferenceDeploymentSpec) -> u32 {
    let of_autoscaling = |scaling: Autoscaling| u32::try_from(scaling.min_replicas).unwrap_or(1);
    spec.autoscaling.map_or(SERVING_MIN, of_autoscaling)
}

fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// The result of executing a decision.
#[derive(Debug)]
pub(crate) struct TrafficOutcome {
    pub(crate) cause: TrafficCause,
    pub(crate) pause: Option<Duration>,
    /// Whether a pod changed.
    pub(crate) is_changed: bool,
    /// Error of the API server that rejected the change of a pod.
    pub(crate) refused: Option<String>,
}

/// Patches the pods in the cluster concurrently, and updates `pods`.
///
/// # Errors
/// The API server does not respond; other changes are not rolled back.
pub(crate) async fn apply_decision(
    cluster: &Cluster,
    namespace: &str,
    pods: &mut [ObservedPod],
    decision: TrafficDecision,
) -> Result<TrafficOutcome, ClusterError> {
    let mut outcome = TrafficOutcome {
        cause: decision.cause,
        pause: decision.pause,
        is_changed: false,
        refused: None,
    };
    let mut patches = JoinSet::new();
    for (at, traffic) in decision.changes {
        let key = ObjectKey::new(namespace, &pods[at].name);
        let (cluster, uid) = (cluster.clone(), pods[at].uid.clone());
        patches.spawn(async move { (at, traffic, patch(&cluster, &key, &uid, traffic).await) });
    }
    let mut no_response = None;
    for (at, traffic, response) in patches.join_all().await {
        let Err(error) = response else {
            pods[at].traffic = Some(traffic);
            outcome.is_changed = true;
            continue;
        };
        match error.class() {
            // The pod was deleted, which the watch will report.
            ErrorClass::NotFound | ErrorClass::Conflict => {}
            ErrorClass::Forbidden | ErrorClass::Invalid => {
                tracing::warn!(%error, "cannot set whether a pod gets requests");
                outcome.refused = Some(error.to_string());
            }
            _ => no_response = Some(error),
        }
    }
    no_response.map_or(Ok(outcome), Err)
}

async fn patch(
    cluster: &Cluster,
    key: &ObjectKey,
    uid: &str,
    traffic: Traffic,
) -> Result<(), ClusterError> {
    let cost = match traffic {
        Traffic::Serving => Value::Null,
        Traffic::Spare => SPARE_COST.into(),
    };
    let kind = ApiResource::erase::<Pod>(&());
    let labels = json!({ TRAFFIC_LABEL: traffic.label() });
    let annotations = json!({ DELETION_COST_ANNOTATION: cost });
    let patched = cluster.merge_metadata(&kind, key, uid, &labels, &annotations);
    patched.await.map(drop)
}

impl TrafficOutcome {
    /// For the status of a deployment with `pods`; `None` if no decision is made.
    pub(crate) fn status(&self, pods: &[ObservedPod]) -> Option<TrafficStatus> {
        if self.cause == TrafficCause::NotPreferred {
            return None;
        }
        let ready = pods.iter().filter(|pod| is_ready(pod));
        let (spare, serving): (Vec<_>, Vec<_>) = ready.partition(|pod| is_spare(pod));
        let reason = match &self.refused {
            Some(refused) => format!("all pods get requests: {refused}"),
            None => self.cause.description(),
        };
        Some(TrafficStatus {
            serving: format!("{}/{}", serving.len(), serving.len() + spare.len()),
            reason,
        })
    }
}

impl TrafficCause {
    fn description(self) -> String {
        let text = match self {
            Self::NotPreferred => "spec.batching.prefer is not IdleWorkers",
            Self::Starting => "the load is not known yet",
            Self::RollingOut => "pods are being replaced",
            Self::PodsMissing => "fewer pods are ready than desired",
            Self::NoReport => "a pod does not report its load",
            Self::Load(ServingCause::BadRate) => "requests were late, shed or failed",
            Self::Load(ServingCause::Busy) => {
                return format!("pods were busy for {:.0} % of the time", BUSY_MAX * 100.0);
            }
            Self::Load(ServingCause::Measuring) => "fewer are enough if the load stays as low",
            Self::Load(ServingCause::Idle) => "fewer are enough",
            Self::Load(ServingCause::Steady) => "as many as the load needs",
        };
        text.to_owned()
    }
}

#[cfg(test)]
mod tests;
