//! From a valid deployment to the children that it should have. Pure: no client, no clock.
//!
//! A child holds the fields that the controller owns and no other; what the API server or somebody
//! else adds is left alone. Equal input builds equal bytes.

mod network;
mod overlay;
mod pod;
mod server;
mod workload;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::children::{Child, ChildKind};
use crate::names::{
    DEPLOYMENT_LABEL, INSTANCE_LABEL, MANAGED_BY, MANAGED_BY_LABEL, NAME, NAME_LABEL,
};
use crate::validate::Valid;

pub(crate) use overlay::key_of;

/// What the command line says of built-in servers.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BuiltIn {
    pub image: String,
    /// Where they get their node's parameters, as `http://host:port`; `None` where nobody has any.
    pub params_url: Option<String>,
}

/// What the cluster and the command line add to a spec.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Surroundings {
    pub built_in: BuiltIn,
    /// Whether the API server knows ServiceMonitors.
    pub has_service_monitors: bool,
    /// Number of pods to ask for; `None` to leave it to others.
    pub replicas: Option<i32>,
}

/// The children of `valid`, in the order in which they are to be applied: what a pod needs comes
/// before the pods.
pub fn build(valid: &Valid, surroundings: &Surroundings) -> Vec<Child> {
    let pod = pod::template(valid, &surroundings.built_in);
    let ports = network::ports(valid, &pod);
    let mut children = Vec::new();
    let mut push = |kind: ChildKind, body: Option<Value>| {
        if let Some(body) = body {
            children.push(Child::new(kind, metadata(valid), body));
        }
    };
    push(ChildKind::ServiceAccount, workload::service_account(valid));
    push(ChildKind::ConfigMap, server::config_map(valid));
    push(ChildKind::Service, network::service(valid, &ports));
    push(
        ChildKind::NetworkPolicy,
        network::network_policy(valid, &pod),
    );
    push(
        ChildKind::PodDisruptionBudget,
        Some(workload::disruption_budget(valid)),
    );
    push(
        ChildKind::Deployment,
        Some(workload::deployment(pod, valid, surroundings.replicas)),
    );
    if surroundings.has_service_monitors {
        push(ChildKind::ServiceMonitor, network::service_monitor(valid));
    }
    children
}

/// Whether requests over HTTP, and over gRPC, find a port behind the Service.
pub(crate) fn served(valid: &Valid) -> (bool, bool) {
    // Ports do not depend on the image.
    let pod = pod::template(valid, &BuiltIn::default());
    let ports = network::ports(valid, &pod);
    (ports.http.is_some(), ports.grpc.is_some())
}

/// The labels of children and pods.
fn labels(valid: &Valid) -> BTreeMap<&'static str, &str> {
    BTreeMap::from([
        (NAME_LABEL, NAME),
        (INSTANCE_LABEL, valid.name.as_str()),
        (MANAGED_BY_LABEL, MANAGED_BY),
        (DEPLOYMENT_LABEL, valid.name.as_str()),
    ])
}

/// What selects the pods.
fn selector(valid: &Valid) -> Value {
    json!({ DEPLOYMENT_LABEL: valid.name })
}

/// A child's metadata: the deployment's own name, and the deployment as its owner.
fn metadata(valid: &Valid) -> Value {
    json!({
        "name": valid.name,
        "namespace": valid.namespace,
        "labels": labels(valid),
        "ownerReferences": [{
            "apiVersion": "albacore.dev/v1alpha1",
            "kind": "InferenceDeployment",
            "name": valid.name,
            "uid": valid.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        }],
    })
}

#[cfg(test)]
mod tests;
