//! The status of a deployment: a pure function of the desired state, the result of applying it, the
//! observed state, and the time.

mod conditions;
mod measurements;
mod models;
mod placed;
mod stuck;

use albacore_api::limits::REPLICAS_DEFAULT;
use albacore_api::{
    InferenceDeployment, InferenceDeploymentStatus, TrafficStatus, Violation, WorkerCounts,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::children::ChildKind;
use crate::names::{DEPLOYMENT_LABEL, GRPC_PORT, HTTP_PORT};
use crate::observed::{ObservedPod, Workload};
use crate::rejected_write::RejectedWrite;
use crate::respawns::RecentRespawns;
use crate::rollout::RolloutDecision;

/// The outcome of applying the children.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum ApplyOutcome {
    /// Every child is in the desired state.
    Applied,
    /// The spec is invalid.
    Invalid(Vec<Violation>),
    /// An object of a child's name has another owner.
    NameConflict(ChildKind),
    /// Children of a former deployment of this name are being garbage-collected.
    AwaitingGarbageCollection(ChildKind),
    /// The API server rejected a child.
    Rejected(RejectedWrite),
}

/// The inputs of a status.
#[derive(Debug)]
pub(crate) struct DeploymentFacts<'a> {
    /// The deployment, with its current status.
    pub(crate) deployment: &'a InferenceDeployment,
    pub(crate) outcome: &'a ApplyOutcome,
    /// Whether the Service has ports for HTTP and for gRPC; `None` for an invalid spec, which keeps
    /// the previous URLs.
    pub(crate) exposed_protocols: Option<(bool, bool)>,
    /// SHA-256 of the settings that should be in force; `None` for a user's own server.
    pub(crate) settings_sha256: Option<&'a str>,
    /// The Deployment of the pods, if it exists.
    pub(crate) workload: Option<&'a Workload>,
    pub(crate) pods: &'a [ObservedPod],
    /// Worker processes that were respawned recently.
    pub(crate) respawns: RecentRespawns,
    /// Image of the container `server` in the pod template in force.
    pub(crate) server_image: Option<&'a str>,
    /// The decision about the roll-out; `None` for an invalid spec.
    pub(crate) rollout: Option<&'a RolloutDecision>,
    /// Which pods receive requests; `None` if all do.
    pub(crate) traffic: Option<TrafficStatus>,
}

impl DeploymentFacts<'_> {
    fn active_pods(&self) -> impl Iterator<Item = &ObservedPod> {
        self.pods.iter().filter(|pod| !pod.is_inactive)
    }

    fn ready_pods(&self) -> impl Iterator<Item = &ObservedPod> {
        self.active_pods().filter(|pod| pod.is_ready)
    }

    /// The desired number of pods; 0 before the Deployment exists.
    fn desired_replicas(&self) -> i32 {
        self.workload.map_or(0, |workload| workload.desired)
    }

    /// The desired number of pods; that of the spec before the Deployment exists.
    fn desired_or_spec_replicas(&self) -> i32 {
        let spec = &self.deployment.spec;
        // The autoscaler starts with the number in the spec, which may be the default, within its
        // bounds.
        let min_replicas = spec.autoscaling.map_or(0, |scaling| scaling.min_replicas);
        let of_spec = || spec.replicas.unwrap_or(REPLICAS_DEFAULT).max(min_replicas);
        self.workload
            .map_or_else(of_spec, |workload| workload.desired)
    }

    fn is_at_zero(&self) -> bool {
        self.workload.is_some_and(|workload| workload.desired == 0)
    }

    fn is_built_in(&self) -> bool {
        self.deployment.spec.is_built_in()
    }

    /// Whether the server of a pod reports that other settings than the desired ones are in force.
    /// Settings reach it as a file or through the params service of its node.
    pub(crate) fn has_stale_settings(&self, pod: &ObservedPod) -> bool {
        let (Some(desired), Some(state)) = (self.settings_sha256, &pod.state) else {
            return false;
        };
        let generation = state.params.as_ref().and_then(|params| params.generation);
        // Parameters from before an edit override the file until the params service sends new ones.
        let is_old = generation < self.deployment.metadata.generation && generation.is_some();
        let is_of_file = state.settings_sha256 == desired && !is_old;
        !is_of_file && state.in_force_sha256.as_deref() != Some(desired)
    }
}

/// The status for `facts`. A condition whose status is unchanged keeps its transition time; the
/// transition time of others is `now`.
pub(crate) fn status_of(facts: &DeploymentFacts<'_>, now: &Time) -> InferenceDeploymentStatus {
    let deployment = facts.deployment;
    let spec = &deployment.spec;
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    let namespace = deployment.metadata.namespace.as_deref().unwrap_or_default();
    let host = |port: u16| format!("{name}.{namespace}.svc:{port}");
    let workload = facts.workload.cloned().unwrap_or_default();
    let before = deployment.status.as_ref();
    let (url, grpc_url) = match facts.exposed_protocols {
        Some((http, grpc)) => (
            http.then(|| format!("http://{}", host(HTTP_PORT))),
            grpc.then(|| host(GRPC_PORT)),
        ),
        None => (
            before.and_then(|status| status.url.clone()),
            before.and_then(|status| status.grpc_url.clone()),
        ),
    };
    InferenceDeploymentStatus {
        observed_generation: deployment.metadata.generation,
        conditions: conditions::conditions(facts, now),
        replicas: Some(workload.replicas),
        ready_replicas: Some(workload.ready),
        selector: Some(format!("{DEPLOYMENT_LABEL}={name}")),
        ready: Some(format!(
            "{}/{}",
            workload.ready,
            facts.desired_or_spec_replicas()
        )),
        shape: Some(format!("{}x{}", spec.workers, spec.threads)),
        pinned: placed::pinned(facts),
        workers: Some(worker_counts(facts)),
        models: models::models(facts),
        server_image: facts.server_image.map(str::to_owned),
        url,
        grpc_url,
        goodput: measurements::goodput(facts),
        latency_p99: measurements::latency_p99(facts),
        bad_rate: measurements::bad_rate(facts),
        load_factor: measurements::load_factor(facts),
        utilization: measurements::utilization(facts),
        traffic: facts.traffic.clone(),
    }
}

fn worker_counts(facts: &DeploymentFacts<'_>) -> WorkerCounts {
    let per_pod = i32::from(facts.deployment.spec.workers);
    let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let placements = || facts.active_pods().filter_map(|pod| pod.placement.as_ref());
    let threads = i32::from(facts.deployment.spec.threads.max(1));
    WorkerCounts {
        wanted: count(facts.active_pods().count()).saturating_mul(per_pod),
        live: live_workers(facts),
        placed: placements()
            .map(|p| p.workers.min(p.planned / threads))
            .sum(),
        verified: placements().map(|p| p.workers_verified).sum(),
        respawns: facts
            .active_pods()
            .filter_map(|pod| Some(pod.respawns()?.count))
            .sum(),
        last_cause: last_cause(facts),
    }
}

/// Pod and cause of the last respawn: the observed one, else that of the previous status, else that
/// of the pod with the most respawns.
fn last_cause(facts: &DeploymentFacts<'_>) -> Option<String> {
    let had = facts
        .active_pods()
        .filter_map(|pod| Some((pod, pod.respawns().filter(|respawns| respawns.count > 0)?)));
    let (pod, respawns) = had.max_by_key(|(pod, respawns)| (respawns.count, &pod.name))?;
    let status = facts.deployment.status.as_ref();
    let before = status.and_then(|status| status.workers.as_ref()?.last_cause.clone());
    let noticed = facts.respawns.last.clone();
    let of_pod = || format!("{}: {}", pod.name, respawns.cause);
    Some(noticed.or(before).unwrap_or_else(of_pod))
}

/// Live workers, reported by built-in servers, or by the agents for users' own servers.
fn live_workers(facts: &DeploymentFacts<'_>) -> i32 {
    let alive = |pod: &ObservedPod| match facts.is_built_in() {
        true => pod
            .state
            .as_ref()
            .map_or(0, |state| i32::try_from(state.workers.alive).unwrap_or(0)),
        false => pod
            .placement
            .as_ref()
            .map_or(0, |placement| placement.workers),
    };
    facts.active_pods().map(alive).sum()
}

#[cfg(test)]
mod tests;
