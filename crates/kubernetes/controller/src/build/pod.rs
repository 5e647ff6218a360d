//! The pod template: a security context that meets the PodSecurity standard *restricted*, graceful
//! shutdown without lost requests, pods spread over nodes, the server, and the user's template
//! merged over all of it.

use serde_json::{Value, json};

use super::{BuiltInOptions, labels, overlay, selector, server};
use crate::limits::{DRAIN_DELAY_SECONDS, GRACE_SECONDS};
use crate::names::TRAFFIC_LABEL;
use crate::observed::Traffic;
use crate::validate::ValidDeployment;

/// User and group ID of the containers; not used on the node.
const USER: i64 = 65_532;

/// The template of the pods of `valid`.
pub(super) fn template(valid: &ValidDeployment, built_in: &BuiltInOptions) -> Value {
    let user = valid.spec.template.as_ref();
    let user = serde_json::to_value(user).unwrap_or_default();
    let mut metadata = json!({ "labels": labels(valid) });
    if valid.spec.is_built_in() {
        // Set even if the Service does not select by it, because a change of the preference must
        // not restart pods.
        metadata["labels"][TRAFFIC_LABEL] = Traffic::Serving.label().into();
    }
    overlay::merge(&mut metadata, &user["metadata"]);
    let mut pod = pod(valid, built_in);
    overlay::merge(&mut pod, &user["spec"]);
    if let Some(containers) = pod["containers"].as_array_mut() {
        order(containers);
    }
    json!({"metadata": metadata, "spec": pod})
}

fn pod(valid: &ValidDeployment, built_in: &BuiltInOptions) -> Value {
    let mut container = server::container(valid, built_in);
    container["securityContext"] = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": true,
    });
    // The built-in server itself delays its shutdown and announces it to clients.
    if !valid.spec.is_built_in() {
        container["lifecycle"] = json!({"preStop": {"sleep": {"seconds": DRAIN_DELAY_SECONDS}}});
    }
    json!({
        "serviceAccountName": valid.name,
        "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [{
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": selector(valid)},
        }],
        "containers": [container],
        "volumes": server::volumes(valid),
    })
}

/// The server comes first, because `kubectl logs` and `kubectl exec` select the first container by
/// default.
fn order(containers: &mut [Value]) {
    containers.sort_by_key(|container| container["name"] != "server");
}
