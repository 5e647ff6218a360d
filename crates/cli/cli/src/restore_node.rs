//! `albacore restore --node`: requests the agent of a node to restore every mask and to stop
//! placing.
//!
//! The request is an annotation of the node object, so agents that start later also comply with it.

use std::time::{Duration, Instant};

use albacore_api::NodePlacement;
use albacore_cluster::{ApiResource, Cluster, ErrorClass, ObjectKey};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::args::NodeClusterArgs;
use crate::cluster_access::{block_on, connect};
use crate::limits::{NODE_RESTORE_PAUSE, NODE_RESTORE_TIME_MAX};
use albacore_command::print;
use albacore_command::{Failure, sentence};

/// The annotation, and the condition by which the agent reports that it complies.
const ANNOTATION: &str = "albacore.dev/enforcement";
const VALUE: &str = "None";
const CONDITION: &str = "Enforcing";
const REASON: &str = "KillSwitch";

/// Sets the annotation and waits for the report of the agent.
pub(crate) fn run(node: &str, args: &NodeClusterArgs) -> Result<(), Failure> {
    block_on(restore(node, args))
}

async fn restore(node: &str, args: &NodeClusterArgs) -> Result<(), Failure> {
    let cluster = connect(args.kubeconfig.as_ref(), args.context.as_ref()).await?;
    let key = ObjectKey::new("", node);
    let kind = ApiResource::erase::<Node>(&());
    let annotated = cluster.annotate(&kind, &key, ANNOTATION, VALUE).await;
    annotated.map_err(|error| match error.class() {
        ErrorClass::NotFound => Failure::Failed(format!(
            "there is no node \"{node}\"; `kubectl get nodes` lists them"
        )),
        _ => Failure::Failed(sentence(&error)),
    })?;
    print(&format!(
        "node {node}: annotation {ANNOTATION} is {VALUE}; waiting for its agent\n"
    ))?;
    let done = wait(&cluster, &key).await?;
    print(&format!(
        "{done}\nTo let it pin again: kubectl annotate node {node} {ANNOTATION}-\n"
    ))
}

/// Waits until the agent reports that masks are restored; returns its message.
async fn wait(cluster: &Cluster, key: &ObjectKey) -> Result<String, Failure> {
    let kind = ApiResource::erase::<NodePlacement>(&());
    let start = Instant::now();
    let mut last = "it has not reported yet".to_owned();
    // bound: NODE_RESTORE_TIME_MAX.
    while start.elapsed() < NODE_RESTORE_TIME_MAX {
        let found = cluster.get(&kind, key).await;
        let found = found.map_err(|error| {
            let message = sentence(&error);
            Failure::Failed(format!(
                "the annotation is set, but the report of the agent cannot be read: {message}"
            ))
        })?;
        let placement = found
            .and_then(|object| serde_json::to_value(object).ok())
            .and_then(|object| serde_json::from_value::<NodePlacement>(object).ok());
        match progress(placement.as_ref()) {
            RestoreProgress::Done(text) => return Ok(text),
            RestoreProgress::NotYet(text) => last = text,
        }
        tokio::time::sleep(NODE_RESTORE_PAUSE).await;
    }
    Err(Failure::Failed(not_in_time(
        &key.name,
        NODE_RESTORE_TIME_MAX,
        &last,
    )))
}

fn not_in_time(node: &str, time: Duration, last: &str) -> String {
    format!(
        "the agent of node {node} has not restored the masks within {} s: {last}; check that its \
         pod runs (`kubectl get pods -A -l app.kubernetes.io/component=agent --field-selector \
         spec.nodeName={node}`): the annotation stays, and the agent restores the masks as soon as \
         it runs",
        time.as_secs()
    )
}

/// State of the request according to a report of the agent.
#[derive(PartialEq, Eq, Debug)]
enum RestoreProgress {
    Done(String),
    NotYet(String),
}

fn progress(placement: Option<&NodePlacement>) -> RestoreProgress {
    let Some(status) = placement.and_then(|placement| placement.status.as_ref()) else {
        return RestoreProgress::NotYet("it has not reported yet".to_owned());
    };
    let is_it = |c: &&Condition| c.type_ == CONDITION;
    let Some(enforcing) = status.conditions.iter().find(is_it) else {
        return RestoreProgress::NotYet(format!("its report has no condition {CONDITION}"));
    };
    let Condition {
        status: value,
        reason,
        message,
        ..
    } = enforcing;
    // The annotation value Observe has the same reason; the message contains the value in effect.
    let is_ours = value == "False" && reason == REASON && message.contains(VALUE);
    match is_ours && status.verified == 0 {
        true => RestoreProgress::Done(message.clone()),
        false => RestoreProgress::NotYet(format!(
            "{CONDITION} is {value} ({reason}), {} threads are on their planned cpu",
            status.verified
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DONE: &str = "the node's annotation is None: masks were restored";

    fn placement(status: &str, reason: &str, message: &str, verified: i32) -> NodePlacement {
        let condition = json!({"type": "Enforcing", "status": status, "reason": reason,
            "message": message, "lastTransitionTime": "2026-11-21T20:00:00Z"});
        serde_json::from_value(json!({
            "apiVersion": "albacore.dev/v1alpha1", "kind": "NodePlacement",
            "metadata": {"name": "n"},
            "status": {"planned": 4, "verified": verified, "conditions": [condition]},
        }))
        .unwrap()
    }

    #[test]
    fn only_the_report_of_the_agent_counts() {
        let done = placement("False", "KillSwitch", DONE, 0);
        assert_eq!(
            progress(Some(&done)),
            RestoreProgress::Done(DONE.to_owned())
        );
        for other in [
            placement("False", "KillSwitch", DONE, 3),
            placement("False", "KillSwitch", "the annotation holds it back", 0),
            placement("True", "Enforcing", "", 0),
            placement("False", "Observe", "", 0),
        ] {
            assert!(matches!(progress(Some(&other)), RestoreProgress::NotYet(_)));
        }
        assert!(matches!(progress(None), RestoreProgress::NotYet(_)));
    }
}
