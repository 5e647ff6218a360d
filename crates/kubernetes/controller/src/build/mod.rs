//! Builds the desired children of a valid deployment. Pure: uses no client and no clock.
//!
//! A child contains exactly the fields that the controller owns; fields that the API server or
//! other field managers add are not touched. Equal input produces equal bytes.

mod network;
mod overlay;
mod pod;
mod server;
mod workload;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::children::{ChildKind, ChildObject};
use crate::names::{
    DEPLOYMENT_LABEL, HEADLESS_LABEL, INSTANCE_LABEL, MANAGED_BY, MANAGED_BY_LABEL, NAME,
    NAME_LABEL, TRAFFIC_LABEL,
};
use crate::observed::Traffic;
use crate::validate::ValidDeployment;

pub(crate) use overlay::key_of;

/// Command-line options for built-in servers.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BuiltInOptions {
    pub image: String,
    /// Endpoint that serves the parameters of the node, as `http://host:port`; `None` if not
    /// configured.
    pub params_url: Option<String>,
}

/// Inputs of a build from the cluster and the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BuildContext {
    pub built_in: BuiltInOptions,
    /// Whether the API server serves ServiceMonitors.
    pub has_service_monitors: bool,
    /// Number of pods; `None` to leave the field to other field managers.
    pub replicas: Option<i32>,
    /// Whether the Service selects only pods that are to receive requests.
    pub selects_traffic: bool,
}

/// The children of `valid` in the order in which they are applied: dependencies of the pods come
/// first.
pub fn build(valid: &ValidDeployment, build_context: &BuildContext) -> Vec<ChildObject> {
    let pod = pod::template(valid, &build_context.built_in);
    let ports = network::ports(valid, &pod);
    let traffic = traffic_selector(valid, build_context.selects_traffic);
    let mut children = Vec::new();
    let mut push = |kind: ChildKind, body: Option<Value>| {
        if let Some(body) = body {
            children.push(ChildObject::new(kind, metadata(valid, kind), body));
        }
    };
    push(ChildKind::ServiceAccount, workload::service_account(valid));
    push(ChildKind::ConfigMap, server::config_map(valid));
    push(ChildKind::Service, network::service(&ports, &traffic));
    push(
        ChildKind::PodsService,
        network::pods_service(&ports, &pod, &traffic),
    );
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
        Some(workload::deployment(pod, valid, build_context.replicas)),
    );
    if build_context.has_service_monitors {
        push(ChildKind::ServiceMonitor, network::service_monitor(valid));
    }
    children
}

/// Whether the Service has a port for HTTP, and for gRPC.
pub(crate) fn exposed_protocols(valid: &ValidDeployment) -> (bool, bool) {
    // Ports do not depend on the image.
    let pod = pod::template(valid, &BuiltInOptions::default());
    let ports = network::ports(valid, &pod);
    (ports.http.is_some(), ports.grpc.is_some())
}

fn labels(valid: &ValidDeployment) -> BTreeMap<&'static str, &str> {
    BTreeMap::from([
        (NAME_LABEL, NAME),
        (INSTANCE_LABEL, valid.name.as_str()),
        (MANAGED_BY_LABEL, MANAGED_BY),
        (DEPLOYMENT_LABEL, valid.name.as_str()),
    ])
}

fn selector(valid: &ValidDeployment) -> Value {
    json!({ DEPLOYMENT_LABEL: valid.name })
}

/// The label selector of the pods that receive requests.
fn traffic_selector(valid: &ValidDeployment, selects_traffic: bool) -> Value {
    let mut selector = selector(valid);
    if selects_traffic {
        selector[TRAFFIC_LABEL] = Traffic::Serving.label().into();
    }
    selector
}

/// Metadata of a child, with the deployment as its owner.
fn metadata(valid: &ValidDeployment, kind: ChildKind) -> Value {
    let mut labels = labels(valid);
    if kind == ChildKind::PodsService {
        labels.insert(HEADLESS_LABEL, "");
    }
    json!({
        "name": kind.name_of(&valid.name),
        "namespace": valid.namespace,
        "labels": labels,
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
