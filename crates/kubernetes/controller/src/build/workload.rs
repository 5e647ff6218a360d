//! The Deployment of the pods, its ServiceAccount and its PodDisruptionBudget.

use serde_json::{Value, json};

use super::selector;
use crate::validate::ValidDeployment;

/// `None` if the template names a service account of the user.
pub(super) fn service_account(valid: &ValidDeployment) -> Option<Value> {
    let pod = valid.spec.template.as_ref().and_then(|t| t.spec.as_ref());
    let names_another = pod.is_some_and(|p| {
        let another = |name: &Option<String>| name.as_ref().is_some_and(|n| *n != valid.name);
        another(&p.service_account_name) || another(&p.service_account)
    });
    (!names_another).then(|| json!({ "automountServiceAccountToken": false }))
}

/// Allows the eviction of one pod at a time, so that nodes can be drained while the deployment
/// keeps serving. Pods that are not ready may always be evicted.
pub(super) fn disruption_budget(valid: &ValidDeployment) -> Value {
    json!({"spec": {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": selector(valid)},
    }})
}

/// New pods are ready before old ones stop, so that no request is lost during a roll-out.
pub(super) fn deployment(pod: Value, valid: &ValidDeployment, replicas: Option<i32>) -> Value {
    let mut spec = json!({
        "selector": {"matchLabels": selector(valid)},
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0},
        },
        "template": pod,
    });
    if let Some(replicas) = replicas {
        spec["replicas"] = replicas.into();
    }
    json!({ "spec": spec })
}
