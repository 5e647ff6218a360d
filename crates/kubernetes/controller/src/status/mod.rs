//! The status of a deployment. Pure: of what is wanted, what came of applying it, what exists, and
//! the time.

mod conditions;
mod figures;
mod models;
mod placed;
mod stuck;

use albacore_api::{InferenceDeployment, InferenceDeploymentStatus, Violation, WorkerCounts};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::children::ChildKind;
use crate::names::{DEPLOYMENT_LABEL, GRPC_PORT, HTTP_PORT};
use crate::observed::{PodSeen, Workload};
use crate::refusal::Refusal;
use crate::respawns::RecentRespawns;

pub(crate) use figures::load_of;

/// What came of the wish for children.
#[derive(Clone, PartialEq, Debug)]
pub enum Verdict {
    /// Every child is as it is wanted.
    Applied,
    /// The spec cannot be run.
    Invalid(Vec<Violation>),
    /// An object of a child's name belongs to somebody else.
    Taken(ChildKind),
    /// Children of a former deployment of this name are being collected.
    Collecting(ChildKind),
    /// The API server refused a child.
    Refused(Refusal),
}

/// What a status speaks of.
#[derive(Debug)]
pub struct Facts<'a> {
    /// The deployment, with the status that it has.
    pub deployment: &'a InferenceDeployment,
    /// What came of what is wanted.
    pub verdict: &'a Verdict,
    /// Whether something answers over HTTP, and over gRPC; `None` for a spec that is not valid:
    /// what was served before still is.
    pub served: Option<(bool, bool)>,
    /// SHA-256 of the settings that pods should have in force; `None` for a server of the user's
    /// own.
    pub settings_sha256: Option<&'a str>,
    /// The Deployment of the pods, if it exists.
    pub workload: Option<&'a Workload>,
    pub pods: &'a [PodSeen],
    /// Worker processes that were replaced lately.
    pub respawns: RecentRespawns,
}

impl Facts<'_> {
    /// Pods that are not ending.
    fn live_pods(&self) -> impl Iterator<Item = &PodSeen> {
        self.pods.iter().filter(|pod| !pod.is_ending)
    }

    fn ready_pods(&self) -> impl Iterator<Item = &PodSeen> {
        self.live_pods().filter(|pod| pod.is_ready)
    }

    /// Pods wanted; 0 before there is a Deployment.
    fn wanted(&self) -> i32 {
        self.workload.map_or(0, |workload| workload.wanted)
    }

    /// Pods asked for: by the Deployment, or by the spec before there is one.
    fn asked(&self) -> i32 {
        let spec = &self.deployment.spec;
        let scaled = spec.autoscaling.map(|scaling| scaling.min_replicas);
        // Without a number, a Deployment has one pod.
        let of_spec = || spec.replicas.or(scaled).unwrap_or(1);
        self.workload
            .map_or_else(of_spec, |workload| workload.wanted)
    }

    fn is_at_zero(&self) -> bool {
        self.workload.is_some_and(|workload| workload.wanted == 0)
    }

    fn is_built_in(&self) -> bool {
        self.deployment.spec.is_built_in()
    }

    /// Whether the server of a pod says that other settings than the wanted ones are in force. They
    /// can have reached it by its file or by the params of its node.
    pub(crate) fn is_behind(&self, pod: &PodSeen) -> bool {
        let (Some(wanted), Some(state)) = (self.settings_sha256, &pod.state) else {
            return false;
        };
        let told = state.params.as_ref().and_then(|params| params.generation);
        // What params told before an edit wins over the file until they tell again.
        let is_old = told < self.deployment.metadata.generation && told.is_some();
        let is_of_file = state.settings_sha256 == wanted && !is_old;
        !is_of_file && state.in_force_sha256.as_deref() != Some(wanted)
    }
}

/// The status of what `facts` say. A condition that stays as it is keeps its transition time; else
/// that is `now`.
pub fn status_of(facts: &Facts<'_>, now: &Time) -> InferenceDeploymentStatus {
    let deployment = facts.deployment;
    let spec = &deployment.spec;
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    let namespace = deployment.metadata.namespace.as_deref().unwrap_or_default();
    let host = |port: u16| format!("{name}.{namespace}.svc:{port}");
    let workload = facts.workload.cloned().unwrap_or_default();
    let before = deployment.status.as_ref();
    let (url, grpc_url) = match facts.served {
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
        ready: Some(format!("{}/{}", workload.ready, facts.asked())),
        shape: Some(format!("{}x{}", spec.workers, spec.threads)),
        pinned: placed::pinned(facts),
        workers: Some(worker_counts(facts)),
        models: models::models(facts),
        server_image: None,
        url,
        grpc_url,
        goodput: figures::goodput(facts),
        latency_p99: figures::latency_p99(facts),
        bad_rate: figures::bad_rate(facts),
        load_factor: figures::load_factor(facts),
    }
}

fn worker_counts(facts: &Facts<'_>) -> WorkerCounts {
    let per_pod = i32::from(facts.deployment.spec.workers);
    let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let placements = || facts.live_pods().filter_map(|pod| pod.placement.as_ref());
    let threads = i32::from(facts.deployment.spec.threads.max(1));
    WorkerCounts {
        wanted: count(facts.live_pods().count()).saturating_mul(per_pod),
        live: live_workers(facts),
        placed: placements()
            .map(|p| p.workers.min(p.planned / threads))
            .sum(),
        verified: placements().map(|p| p.workers_verified).sum(),
        respawns: facts
            .live_pods()
            .filter_map(|pod| Some(pod.respawns()?.count))
            .sum(),
        last_cause: last_cause(facts),
    }
}

/// Pod and cause of the last respawn: as it was noticed, else as it was told before, else of the
/// pod that has had most.
fn last_cause(facts: &Facts<'_>) -> Option<String> {
    let had = facts
        .live_pods()
        .filter_map(|pod| Some((pod, pod.respawns().filter(|told| told.count > 0)?)));
    let (pod, told) = had.max_by_key(|(pod, told)| (told.count, &pod.name))?;
    let status = facts.deployment.status.as_ref();
    let before = status.and_then(|status| status.workers.as_ref()?.last_cause.clone());
    let noticed = facts.respawns.last.clone();
    let of_pod = || format!("{}: {}", pod.name, told.cause);
    Some(noticed.or(before).unwrap_or_else(of_pod))
}

/// Workers alive: as the built-in servers say, or as the nodes say of the user's own.
fn live_workers(facts: &Facts<'_>) -> i32 {
    let alive = |pod: &PodSeen| match facts.is_built_in() {
        true => pod
            .state
            .as_ref()
            .map_or(0, |state| i32::try_from(state.workers.alive).unwrap_or(0)),
        false => pod
            .placement
            .as_ref()
            .map_or(0, |placement| placement.workers),
    };
    facts.live_pods().map(alive).sum()
}

#[cfg(test)]
mod tests;
