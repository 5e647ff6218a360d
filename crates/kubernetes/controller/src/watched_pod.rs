//! The cached form of a pod: an eighth of the size of its type, as there may be 20,000 pods.

use std::borrow::Cow;
use std::net::IpAddr;

use albacore_api::{PodPlacement, PodProblem};
use albacore_cluster::{ObjectKey, Resource, ResourceExt as _};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;

use crate::names::{DEPLOYMENT_LABEL, TRAFFIC_LABEL};
use crate::observed::Traffic;
use crate::watches::{identity, owner};

/// The label of a Deployment's pods that contains the hash of their template.
const HASH_LABEL: &str = "pod-template-hash";

/// A pod, reduced to the fields that the controller reads.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Pod")]
pub(crate) struct WatchedPod {
    /// Contains only name, namespace, uid and resource version.
    metadata: ObjectMeta,
    pub(crate) facts: Box<WatchedPodFacts>,
}

/// The fields of a pod on which the reconcile of its deployment depends.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct WatchedPodFacts {
    /// The deployment in its label.
    pub(crate) owner: Option<ObjectKey>,
    /// Its node, once it is scheduled.
    pub(crate) node: Option<String>,
    pub(crate) created: Option<Timestamp>,
    /// Whether it belongs to a ReplicaSet of the Deployment in its label.
    pub(crate) is_controlled: bool,
    /// Whether it receives requests, from its label.
    pub(crate) traffic: Option<Traffic>,
    /// Address of its server; `None` unless it is running.
    pub(crate) address: Option<IpAddr>,
    /// Its condition `Ready`.
    pub(crate) is_ready: bool,
    /// Whether it is being deleted, or has terminated.
    pub(crate) is_inactive: bool,
    /// Time since which it is not ready; `None` if it is ready or the time is not reported.
    pub(crate) unready_since: Option<Timestamp>,
    /// Reason why it is not ready, from its status.
    pub(crate) problem: Option<PodProblem>,
}

impl From<Pod> for WatchedPod {
    fn from(pod: Pod) -> Self {
        let facts = Box::new(WatchedPodFacts::of(&pod));
        let metadata = identity(pod.metadata);
        Self { metadata, facts }
    }
}

impl WatchedPodFacts {
    fn of(pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        let conditions = status.and_then(|s| s.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        let ready = conditions.find(|c| c.type_ == "Ready");
        let is_ready = ready.is_some_and(|c| c.status == "True");
        let since = ready.and_then(|c| c.last_transition_time.as_ref());
        let since = since.or(pod.metadata.creation_timestamp.as_ref());
        let phase = status.and_then(|s| s.phase.as_deref());
        let address = || status?.pod_ip.as_deref()?.parse().ok();
        let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
        Self {
            owner: owner(pod),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
            is_controlled: is_controlled(pod),
            traffic: pod
                .labels()
                .get(TRAFFIC_LABEL)
                .and_then(|label| Traffic::from_label(label)),
            address: (phase == Some("Running")).then(address).flatten(),
            is_ready,
            is_inactive: pod.metadata.deletion_timestamp.is_some() || has_ended,
            unready_since: since.filter(|_| !is_ready).map(|time| time.0),
            problem: PodProblem::of(pod),
        }
    }
}

/// The name of a Deployment's ReplicaSet is that of the Deployment followed by a hash, which is
/// also a label of the pods.
fn is_controlled(pod: &Pod) -> bool {
    let labels = pod.labels();
    let (name, hash) = (labels.get(DEPLOYMENT_LABEL), labels.get(HASH_LABEL));
    let wanted = name.zip(hash).map(|(name, hash)| format!("{name}-{hash}"));
    let mut owners = pod.owner_references().iter();
    let owner = owners.find(|owner| owner.controller == Some(true));
    owner.is_some_and(|o| o.kind == "ReplicaSet" && Some(&o.name) == wanted.as_ref())
}

impl WatchedPod {
    /// Whether a placement entry is that of this pod.
    pub(crate) fn has_entry(&self, entry: &PodPlacement) -> bool {
        let ObjectMeta {
            namespace,
            name,
            uid,
            ..
        } = &self.metadata;
        let [namespace, name, uid] =
            [namespace, name, uid].map(|field| field.as_deref().unwrap_or_default());
        entry.is_of(namespace, name, uid)
    }
}

impl Resource for WatchedPod {
    type DynamicType = <Pod as Resource>::DynamicType;
    type Scope = <Pod as Resource>::Scope;

    fn kind(kind: &Self::DynamicType) -> Cow<'_, str> {
        <Pod as Resource>::kind(kind)
    }

    fn group(kind: &Self::DynamicType) -> Cow<'_, str> {
        <Pod as Resource>::group(kind)
    }

    fn version(kind: &Self::DynamicType) -> Cow<'_, str> {
        <Pod as Resource>::version(kind)
    }

    fn plural(kind: &Self::DynamicType) -> Cow<'_, str> {
        <Pod as Resource>::plural(kind)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
