//! The pods' Deployment and what stands beside it: ServiceAccount and PodDisruptionBudget.

use serde_json::{Value, json};

use super::selector;
use crate::validate::Valid;

/// `None` where the template names an account of the user's.
pub(super) fn service_account(valid: &Valid) -> Option<Value> {
    let pod = valid.spec.template.as_ref().and_then(|t| t.spec.as_ref());
    let names_another = pod.is_some_and(|p| {
        let another = |name: &Option<String>| name.as_ref().is_some_and(|n| *n != valid.name);
        another(&p.service_account_name) || another(&p.service_account)
    });
    (!names_another).then(|| json!({ "automountServiceAccountToken": false }))
}

/// One pod at a time: always possible, so that nodes can be drained, and never all at once. Pods
/// that do not serve may always go.
pub(super) fn disruption_budget(valid: &Valid) -> Value {
    json!({"spec": {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": selector(valid)},
    }})
}

/// New pods serve before old ones go: no request falls between them.
pub(super) fn deployment(pod: Value, valid: &Valid, replicas: Option<i32>) -> Value {
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
