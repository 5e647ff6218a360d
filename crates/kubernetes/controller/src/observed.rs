//! What exists of a deployment now: its children and pods, as values that the pure steps take.

use albacore_api::{PodPlacement, PodProblem};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::state::ServerState;

/// A child as the API server has it.
#[derive(Clone, PartialEq, Debug)]
pub struct Live {
    pub uid: String,
    pub resource_version: String,
    pub controller: Option<OwnerReference>,
    /// The digest of what was applied last, as its annotation says.
    pub applied: Option<String>,
    /// All of it, without managed fields.
    pub body: Value,
}

/// The Deployment of the pods, as far as a status goes by it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Workload {
    /// Whether its controller has seen its newest version.
    pub is_observed: bool,
    pub wanted: i32,
    pub replicas: i32,
    /// Pods of the newest template.
    pub updated: i32,
    /// Pods that are ready.
    pub ready: i32,
    /// Pods that have been ready for long enough.
    pub available: i32,
    /// Its own condition `Available`.
    pub is_available: Option<Told>,
    /// Its own condition `Progressing`.
    pub is_progressing: Option<Told>,
    /// Its own condition `ReplicaFailure`: pods cannot be created or deleted.
    pub is_failing: Option<Told>,
}

/// A condition that somebody else told.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Told {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    pub reason: String,
    pub message: String,
}

impl Workload {
    /// What a live Deployment says.
    pub fn of(live: &Live) -> Self {
        let body = &live.body;
        let status = &body["status"];
        let count = |value: &Value| {
            value
                .as_i64()
                .and_then(|n| i32::try_from(n).ok())
                .unwrap_or(0)
        };
        let number = |value: &Value| value.as_i64().unwrap_or(0);
        let told = |kind: &str| {
            let mut conditions = status["conditions"].as_array().into_iter().flatten();
            let found = conditions.find(|c| c["type"] == kind)?;
            let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
            Some(Told {
                status: text("status"),
                reason: text("reason"),
                message: text("message"),
            })
        };
        Self {
            is_observed: number(&status["observedGeneration"])
                >= number(&body["metadata"]["generation"]),
            wanted: count(&body["spec"]["replicas"]),
            replicas: count(&status["replicas"]),
            updated: count(&status["updatedReplicas"]),
            ready: count(&status["readyReplicas"]),
            available: count(&status["availableReplicas"]),
            is_available: told("Available"),
            is_progressing: told("Progressing"),
            is_failing: told("ReplicaFailure"),
        }
    }

    /// Whether every pod there is has the newest template, and enough of them once were available:
    /// from then on a change of their number is no rollout.
    pub fn is_rolled_out(&self) -> bool {
        let is_complete = |told: &Told| told.reason == "NewReplicaSetAvailable";
        self.is_observed
            && self.replicas == self.updated
            && self.is_progressing.as_ref().is_some_and(is_complete)
    }

    /// Whether the number of pods is the one wanted, and all of them are available.
    pub fn is_full(&self) -> bool {
        self.is_observed && self.replicas == self.wanted && self.available == self.wanted
    }
}

/// A pod of a deployment.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct PodSeen {
    pub name: String,
    pub uid: String,
    /// Whether the scheduler gave it a node.
    pub has_node: bool,
    /// Since when it is not ready; `None` if it is, or if nobody says.
    pub unready_since: Option<Timestamp>,
    /// Why it is not ready, as far as its status or its events say.
    pub problem: Option<PodProblem>,
    /// Whether it serves, as the kubelet says.
    pub is_ready: bool,
    /// Whether it is being deleted, or has ended.
    pub is_ending: bool,
    /// What its server said lately.
    pub state: Option<ServerState>,
    /// What its node says; `None` also while that node is silent.
    pub placement: Option<PodPlacement>,
    /// The node, while its agent does not tell any more what it verified.
    pub silent_node: Option<String>,
}

/// Worker processes of a pod that ended and were replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PodRespawns<'a> {
    /// How many, since the server started or the node's agent first saw the pod.
    pub count: i64,
    /// How the last of them ended.
    pub cause: &'a str,
}

impl PodSeen {
    /// What its server says of its workers' deaths, or the node's agent of the processes of a
    /// server of the user's own; `None` where nobody says anything.
    pub fn respawns(&self) -> Option<PodRespawns<'_>> {
        let server = self.state.as_ref().map(|state| PodRespawns {
            count: state.workers.restarts,
            cause: state.workers.last_end.as_deref().unwrap_or("unknown"),
        });
        let agent = self.placement.as_ref().map(|placement| PodRespawns {
            count: placement.respawns,
            cause: "its process ended; the server's log says why",
        });
        server.or(agent)
    }
}
