//! Resolves a key to everything that exists of it, from the caches of the watches: sends no
//! request.

use std::collections::BTreeMap;
use std::sync::Arc;

use albacore_api::{InferenceDeployment, NodePlacement, PodPlacement, PodProblem};
use albacore_cluster::{DynamicObject, ObjectKey, ResourceExt};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use serde_json::Value;

use crate::children::ChildKind;
use crate::names::{AGENT_SILENT, APPLIED_ANNOTATION, DEPLOYMENT_LABEL, TRAFFIC_LABEL};
use crate::observed::{LiveObject, ObservedPod, Traffic};
use crate::renewals::Freshness;
use crate::scrape::ServerStates;
use crate::watches::{Watches, is_entry_of};

/// The label of a Deployment's pods with the hash of their template.
const HASH_LABEL: &str = "pod-template-hash";

/// Everything that exists of a deployment.
pub(crate) struct ObservedDeployment {
    pub(crate) deployment: Arc<InferenceDeployment>,
    pub(crate) children: BTreeMap<ChildKind, LiveObject>,
    /// Ordered by name.
    pub(crate) pods: Vec<ObservedPod>,
    /// `None` before the watch has reported it.
    pub(crate) namespace: Option<Arc<Namespace>>,
}

/// Everything that exists of the deployment `key`; `None` if the deployment does not exist.
pub(crate) fn dereference(
    key: &ObjectKey,
    watches: &Watches,
    states: &ServerStates,
) -> Option<ObservedDeployment> {
    let deployment = watches.deployments.get(key)?;
    let children = ChildKind::ALL.into_iter().filter_map(|kind| {
        let child = watches.child(kind, key)?;
        Some((kind, live(kind, &child)))
    });
    let children = children.collect();
    let pods = watches.pods.select(|pod| is_of(pod, key));
    let conditions = deployment.status.iter().flat_map(|s| &s.conditions);
    let mut placed = conditions.filter(|c| c.type_ == "Placed");
    let was_silent = placed.any(|c| c.reason == AGENT_SILENT);
    let seen = |pod: &Arc<Pod>| seen(pod, watches, states, was_silent);
    let mut pods: Vec<ObservedPod> = pods.iter().map(seen).collect();
    pods.sort_by(|a, b| a.name.cmp(&b.name));
    Some(ObservedDeployment {
        deployment,
        children,
        pods,
        namespace: watches.namespaces.get(&ObjectKey::new("", &key.namespace)),
    })
}

/// A child as stored by the API server, from a watch or an answer.
pub(crate) fn live(kind: ChildKind, object: &DynamicObject) -> LiveObject {
    // A watch caches all but the metadata as one text.
    let mut body: Value = match &object.data {
        Value::String(text) => serde_json::from_str(text).unwrap_or_default(),
        data => data.clone(),
    };
    if !body.is_object() {
        body = Value::Object(serde_json::Map::new());
    }
    body["apiVersion"] = kind.api_version().into();
    body["kind"] = kind.kind().into();
    body["metadata"] = serde_json::to_value(&object.metadata).unwrap_or_default();
    let owners = object.owner_references();
    LiveObject {
        uid: object.uid().unwrap_or_default(),
        resource_version: object.resource_version().unwrap_or_default(),
        controller: owners.iter().find(|o| o.controller == Some(true)).cloned(),
        applied: object.annotations().get(APPLIED_ANNOTATION).cloned(),
        body,
    }
}

/// Whether the pod's label names the deployment `key`. Called for every pod each time, so it copies
/// nothing.
fn is_of(pod: &Pod, key: &ObjectKey) -> bool {
    let metadata = &pod.metadata;
    let name = metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(DEPLOYMENT_LABEL));
    name == Some(&key.name) && metadata.namespace.as_deref() == Some(key.namespace.as_str())
}

/// Whether the pod belongs to a ReplicaSet of the Deployment of its label. A Deployment names a
/// ReplicaSet after itself and a hash that is a label of its pods.
fn is_own(pod: &Pod) -> bool {
    let labels = pod.labels();
    let (name, hash) = (labels.get(DEPLOYMENT_LABEL), labels.get(HASH_LABEL));
    let wanted = name.zip(hash).map(|(name, hash)| format!("{name}-{hash}"));
    let mut owners = pod.owner_references().iter();
    let owner = owners.find(|owner| owner.controller == Some(true));
    owner.is_some_and(|o| o.kind == "ReplicaSet" && Some(&o.name) == wanted.as_ref())
}

/// `was_silent`: whether the status of its deployment names a silent node.
fn seen(pod: &Pod, watches: &Watches, states: &ServerStates, was_silent: bool) -> ObservedPod {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|s| s.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    let ready = conditions.find(|c| c.type_ == "Ready");
    let is_ready = ready.is_some_and(|c| c.status == "True");
    let since = ready.and_then(|c| c.last_transition_time.as_ref());
    let since = since.or(pod.metadata.creation_timestamp.as_ref());
    let has_ended = matches!(
        status.and_then(|s| s.phase.as_deref()),
        Some("Succeeded" | "Failed")
    );
    let node = pod.spec.as_ref().and_then(|s| s.node_name.as_deref());
    let report = node.and_then(|name| Some((name, watches.nodes.get(&ObjectKey::new("", name))?)));
    let is_silent = |name: &str| match watches.renewals.freshness(name) {
        Freshness::Fresh => false,
        Freshness::Unconfirmed => was_silent,
        Freshness::Silent => true,
    };
    let silent = report.as_ref().filter(|(name, _)| is_silent(name));
    ObservedPod {
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        node: node.map(str::to_owned),
        created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
        is_own: is_own(pod),
        traffic: pod
            .labels()
            .get(TRAFFIC_LABEL)
            .and_then(|l| Traffic::of_label(l)),
        unready_since: since.filter(|_| !is_ready).map(|time| time.0),
        problem: PodProblem::of(pod),
        is_ready,
        is_ending: pod.metadata.deletion_timestamp.is_some() || has_ended,
        state: states.of(&ObjectKey::of(pod)),
        placement: match silent {
            Some(_) => None,
            None => report.as_ref().and_then(|(_, node)| entry_of(pod, node)),
        },
        silent_node: silent.map(|(name, _)| (*name).to_owned()),
    }
}

fn entry_of(pod: &Pod, node: &NodePlacement) -> Option<PodPlacement> {
    let mut entries = node.status.as_ref()?.pods.iter();
    entries.find(|entry| is_entry_of(entry, pod)).cloned()
}
