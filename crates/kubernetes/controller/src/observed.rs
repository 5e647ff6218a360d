//! The observed state of a deployment: its children and pods, as inputs of the pure steps.

use albacore_api::{PodPlacement, PodProblem};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::server_state::ServerState;

/// A child as stored by the API server.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LiveObject {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) controller: Option<OwnerReference>,
    /// The digest in its annotation: that of the body that was applied last.
    pub(crate) applied_digest: Option<String>,
    /// The whole object without `managedFields`.
    pub(crate) body: Value,
}

/// The Deployment of the pods, reduced to the fields that the status needs.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Workload {
    /// Whether its controller has observed the newest generation.
    pub(crate) is_observed: bool,
    pub(crate) desired: i32,
    pub(crate) replicas: i32,
    /// Pods with the newest template.
    pub(crate) updated: i32,
    pub(crate) ready: i32,
    /// Pods that have been ready for at least `minReadySeconds`.
    pub(crate) available: i32,
    /// Its condition `Available`.
    pub(crate) available_condition: Option<ObservedCondition>,
    /// Its condition `Progressing`.
    pub(crate) progressing_condition: Option<ObservedCondition>,
    /// Its condition `ReplicaFailure`: pods cannot be created or deleted.
    pub(crate) replica_failure_condition: Option<ObservedCondition>,
}

/// A condition that another controller wrote.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct ObservedCondition {
    /// `True`, `False` or `Unknown`.
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Workload {
    pub(crate) fn of(live: &LiveObject) -> Self {
        let body = &live.body;
        let status = &body["status"];
        let count = |value: &Value| {
            value
                .as_i64()
                .and_then(|n| i32::try_from(n).ok())
                .unwrap_or(0)
        };
        let number = |value: &Value| value.as_i64().unwrap_or(0);
        let condition = |kind: &str| {
            let mut conditions = status["conditions"].as_array().into_iter().flatten();
            let found = conditions.find(|c| c["type"] == kind)?;
            let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
            Some(ObservedCondition {
                status: text("status"),
                reason: text("reason"),
                message: text("message"),
            })
        };
        Self {
            is_observed: number(&status["observedGeneration"])
                >= number(&body["metadata"]["generation"]),
            desired: count(&body["spec"]["replicas"]),
            replicas: count(&status["replicas"]),
            updated: count(&status["updatedReplicas"]),
            ready: count(&status["readyReplicas"]),
            available: count(&status["availableReplicas"]),
            available_condition: condition("Available"),
            progressing_condition: condition("Progressing"),
            replica_failure_condition: condition("ReplicaFailure"),
        }
    }

    /// Whether every pod has the newest template and the roll-out completed at least once; after
    /// that a change of the number of pods is not a roll-out.
    pub(crate) fn is_rolled_out(&self) -> bool {
        let is_complete =
            |condition: &ObservedCondition| condition.reason == "NewReplicaSetAvailable";
        self.is_observed
            && self.replicas == self.updated
            && self.progressing_condition.as_ref().is_some_and(is_complete)
    }

    /// Whether the number of pods equals the desired one, and all of them are available.
    pub(crate) fn is_fully_available(&self) -> bool {
        self.is_observed && self.replicas == self.desired && self.available == self.desired
    }
}

/// Whether a pod receives requests, if the Service selects by traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Traffic {
    Serving,
    /// Ready but without requests, because fewer pods are sufficient.
    Spare,
}

impl Traffic {
    /// The value of the label.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Spare => "spare",
        }
    }

    /// Parses the value of the label.
    pub(crate) fn from_label(label: &str) -> Option<Self> {
        let all = [Self::Serving, Self::Spare];
        all.into_iter().find(|traffic| traffic.label() == label)
    }
}

/// A pod of a deployment.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct ObservedPod {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// `None` before it is scheduled.
    pub(crate) node: Option<String>,
    pub(crate) created: Option<Timestamp>,
    /// Whether its owner is a ReplicaSet of the deployment's own Deployment, according to the
    /// owner's name.
    pub(crate) is_controlled: bool,
    /// From its label; `None` if the label is missing or has another value.
    pub(crate) traffic: Option<Traffic>,
    /// Time since which it is not ready; `None` if it is ready or the time is not reported.
    pub(crate) unready_since: Option<Timestamp>,
    /// Reason why it is not ready, from its status or its events.
    pub(crate) problem: Option<PodProblem>,
    /// Its condition `Ready`.
    pub(crate) is_ready: bool,
    /// Whether it is being deleted or has terminated. The other pods are active, as in the
    /// controllers of Kubernetes.
    pub(crate) is_inactive: bool,
    /// The last state of its server, unless that is stale.
    pub(crate) state: Option<ServerState>,
    /// Its entry in the placement report of its node; `None` also while that node is silent.
    pub(crate) placement: Option<PodPlacement>,
    /// Its node, if the agent there is silent.
    pub(crate) silent_node: Option<String>,
}

/// Respawns: worker processes of a pod that exited and were replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PodRespawns<'a> {
    /// Since the start of the server, or since the node's agent first observed the pod.
    pub(crate) count: i64,
    /// Cause of the last exit.
    pub(crate) cause: &'a str,
}

impl ObservedPod {
    /// From the report of the built-in server, or for a user's own server from the node's agent;
    /// `None` without a report.
    pub(crate) fn respawns(&self) -> Option<PodRespawns<'_>> {
        let server = self.state.as_ref().map(|state| PodRespawns {
            count: state.workers.restarts,
            cause: state.workers.last_exit.as_deref().unwrap_or("unknown"),
        });
        let agent = self.placement.as_ref().map(|placement| PodRespawns {
            count: placement.respawns,
            cause: "its process ended; see the log of the server",
        });
        server.or(agent)
    }
}
