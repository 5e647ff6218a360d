//! Looks up all observed state of a deployment in the caches of the watches; sends no requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use albacore_api::{InferenceDeployment, NodePlacement, PodPlacement};
use albacore_cluster::{DynamicObject, ObjectKey, ResourceExt};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Deserialize as _;
use serde_json::Value;

use crate::children::ChildKind;
use crate::names::{AGENT_SILENT, APPLIED_ANNOTATION};
use crate::observed::{LiveObject, ObservedPod};
use crate::renewals::Freshness;
use crate::scrape::ServerStates;
use crate::watched_child::WatchedChild;
use crate::watched_pod::WatchedPod;
use crate::watches::Watches;

/// The observed state of a deployment.
pub(crate) struct ObservedDeployment {
    pub(crate) deployment: Arc<InferenceDeployment>,
    pub(crate) children: BTreeMap<ChildKind, LiveObject>,
    /// Sorted by name.
    pub(crate) pods: Vec<ObservedPod>,
    /// `None` before the watch has reported it.
    pub(crate) namespace: Option<Arc<Namespace>>,
}

/// The observed state of the deployment `key`; `None` if it does not exist.
pub(crate) fn observe(
    key: &ObjectKey,
    watches: &Watches,
    states: &ServerStates,
) -> Option<ObservedDeployment> {
    let deployment = watches.deployments.get(key)?;
    let children = ChildKind::ALL.into_iter().filter_map(|kind| {
        let child = watches.child(kind, key)?;
        Some((kind, child_from_cache(kind, &child)))
    });
    let children = children.collect();
    let pods = watches.pods.by_index(key);
    let conditions = deployment.status.iter().flat_map(|s| &s.conditions);
    let mut placed = conditions.filter(|c| c.type_ == "Placed");
    let was_silent = placed.any(|c| c.reason == AGENT_SILENT);
    let observe_pod = |pod: &Arc<WatchedPod>| observe_pod(pod, watches, states, was_silent);
    let mut pods: Vec<ObservedPod> = pods.iter().map(observe_pod).collect();
    pods.sort_by(|a, b| a.name.cmp(&b.name));
    Some(ObservedDeployment {
        deployment,
        children,
        pods,
        namespace: watches.namespaces.get(&ObjectKey::new("", &key.namespace)),
    })
}

/// A child from a response of the API server.
pub(crate) fn child_from_response(kind: ChildKind, object: &DynamicObject) -> LiveObject {
    live_object(kind, serde_json::to_value(object).unwrap_or_default())
}

/// A child as last reported by its watch.
pub(crate) fn child_from_cache(kind: ChildKind, child: &WatchedChild) -> LiveObject {
    live_object(kind, child.body())
}

fn live_object(kind: ChildKind, mut body: Value) -> LiveObject {
    if !body.is_object() {
        body = Value::Object(serde_json::Map::new());
    }
    body["apiVersion"] = kind.api_version().into();
    body["kind"] = kind.kind().into();
    let metadata = &body["metadata"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let owners = Vec::<OwnerReference>::deserialize(&metadata["ownerReferences"]);
    let mut owners = owners.unwrap_or_default().into_iter();
    LiveObject {
        uid: text(&metadata["uid"]).unwrap_or_default(),
        resource_version: text(&metadata["resourceVersion"]).unwrap_or_default(),
        controller: owners.find(|owner| owner.controller == Some(true)),
        applied_digest: text(&metadata["annotations"][APPLIED_ANNOTATION]),
        body,
    }
}

/// `was_silent`: whether the status of its deployment names a silent node.
fn observe_pod(
    pod: &WatchedPod,
    watches: &Watches,
    states: &ServerStates,
    was_silent: bool,
) -> ObservedPod {
    let facts = &*pod.facts;
    let node = facts.node.as_deref();
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
        created: facts.created,
        is_controlled: facts.is_controlled,
        traffic: facts.traffic,
        unready_since: facts.unready_since,
        problem: facts.problem.clone(),
        is_ready: facts.is_ready,
        is_inactive: facts.is_inactive,
        state: states.of(&ObjectKey::of(pod)),
        placement: match silent {
            Some(_) => None,
            None => report.as_ref().and_then(|(_, node)| entry_of(pod, node)),
        },
        silent_node: silent.map(|(name, _)| (*name).to_owned()),
    }
}

fn entry_of(pod: &WatchedPod, node: &NodePlacement) -> Option<PodPlacement> {
    let mut entries = node.status.as_ref()?.pods.iter();
    entries.find(|entry| pod.has_entry(entry)).cloned()
}
