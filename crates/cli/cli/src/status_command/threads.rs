//! `albacore status --threads`: every thread of a deployment's pods, as reported by the agents of
//! their nodes.
//!
//! Agents have no listener, so `albacore-agent dump` is executed in their pods, as with `kubectl
//! exec` and with the user's permissions.

use albacore_cluster::{ApiResource, Cluster, ErrorClass, ExecOutput, ObjectKey};
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;

use super::report::{PodReport, StatusReport, ThreadReport};
use crate::cluster_access::typed;
use albacore_command::sentence;

/// Selects the agents' pods by the labels of the chart.
const AGENTS: &str = "app.kubernetes.io/part-of=albacore,app.kubernetes.io/component=agent";
const CONTAINER: &str = "agent";
const PROGRAM: &str = "/albacore-agent";

/// A pod in the output of `dump`.
#[derive(Deserialize)]
struct Dumped {
    pod: String,
    reason: Option<String>,
    threads: Vec<ThreadReport>,
    /// The event loops of its front end; empty for an older agent.
    #[serde(default)]
    front: Vec<ThreadReport>,
}

/// Adds the threads of all pods in the report; errors are added to the report.
pub(super) async fn add(cluster: &Cluster, report: &mut StatusReport) {
    let kind = ApiResource::erase::<Pod>(&());
    let agents: Vec<Pod> = match cluster.list(&kind, None, AGENTS).await {
        Ok(found) => typed(found, &mut report.unread),
        Err(error) => {
            let message = sentence(&error);
            report.unread.push(format!(
                "threads, because the agents cannot be listed: {message}"
            ));
            return;
        }
    };
    let StatusReport {
        deployments,
        pods,
        unread,
    } = report;
    let of_deployments = deployments
        .iter_mut()
        .map(|of| (&of.namespace, of.pods.iter_mut().collect()));
    let annotated = pods.iter_mut().map(|of| (&of.namespace, vec![&mut of.pod]));
    let all: Vec<(&String, Vec<&mut PodReport>)> = of_deployments.chain(annotated).collect();
    for (namespace, pods) in all {
        for pod in pods {
            let key = format!("{namespace}/{}", pod.name);
            match dump_threads(cluster, &agents, pod, &key).await {
                Ok(threads) => pod.threads = Some(threads),
                Err(message) => unread.push(format!("threads of pod {key}: {message}")),
            }
        }
    }
}

async fn dump_threads(
    cluster: &Cluster,
    agents: &[Pod],
    pod: &PodReport,
    key: &str,
) -> Result<Vec<ThreadReport>, String> {
    let node = pod.node.as_deref().ok_or("it has no node yet")?;
    let agent = agents.iter().find(|agent| runs_on(agent, node));
    let agent = agent.ok_or_else(|| format!("no agent runs on its node {node}"))?;
    let agent = ObjectKey::of(agent);
    let command = [PROGRAM, "dump", "--pod", key];
    match cluster.exec(&agent, CONTAINER, &command).await {
        Ok(said) => threads_of(said, key),
        Err(error) if error.class() == ErrorClass::Forbidden => Err(format!(
            "{}; the right to pods/exec in namespace {} is required",
            sentence(&error),
            agent.namespace
        )),
        Err(error) => Err(sentence(&error)),
    }
}

fn runs_on(agent: &Pod, node: &str) -> bool {
    let is_there = agent.spec.as_ref().and_then(|s| s.node_name.as_deref()) == Some(node);
    let phase = agent.status.as_ref().and_then(|s| s.phase.as_deref());
    is_there && phase == Some("Running") && agent.metadata.deletion_timestamp.is_none()
}

fn threads_of(said: ExecOutput, key: &str) -> Result<Vec<ThreadReport>, String> {
    if let Some(failure) = said.failure {
        let why = said.error.lines().last().unwrap_or_default().to_owned();
        return Err(format!("the agent reports: {why} ({failure})"));
    }
    let dumped: Vec<Dumped> = serde_json::from_slice(&said.output)
        .map_err(|error| format!("cannot parse the agent's list of threads: {error}"))?;
    let mut own = dumped.into_iter().filter(|entry| entry.pod == key);
    let own = own.next().ok_or("the agent does not know it")?;
    match own.reason {
        Some(reason) => Err(reason),
        None => Ok([own.threads, own.front].concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(output: &str, failure: Option<&str>) -> ExecOutput {
        ExecOutput {
            output: output.as_bytes().to_vec(),
            error: "albacore-agent: no such pod".to_owned(),
            failure: failure.map(str::to_owned),
        }
    }

    #[test]
    fn output_of_the_agent_is_parsed_and_unknown_pods_are_reported() {
        let text = r#"[{"pod": "a/b", "uid": "u", "deployment": "d", "plan": "1", "topology": "2", "threads": [
            {"worker": 0, "rank": 1, "pid": 7, "tid": 8, "planned": "1", "mask": "0-3", "state": "drifted"},
            {"worker": 1, "rank": 0, "pid": null, "tid": null, "planned": null, "mask": null, "state": "missing"}],
            "front": [{"front": 1, "pid": 6, "tid": 9, "planned": "1-3", "mask": "1-3", "state": "verified"}]},
            {"pod": "a/c", "reason": "its container is not there yet", "threads": []}]"#;
        let threads = threads_of(said(text, None), "a/b").ok().unwrap();
        assert_eq!((threads.len(), threads[0].tid), (3, Some(8)));
        let labels: Vec<String> = threads.iter().map(ThreadReport::label).collect();
        assert_eq!(labels, ["0.1", "1.0", "front 1"]);
        let says = |key: &str, failure| threads_of(said(text, failure), key).err().unwrap();
        assert_eq!(says("a/c", None), "its container is not there yet");
        assert_eq!(says("a/d", None), "the agent does not know it");
        let failed = says("a/b", Some("command terminated with exit code 1"));
        assert!(failed.contains("no such pod (command"), "{failed}");
        let cut = threads_of(said(&text[..50], None), "a/b").err().unwrap();
        assert!(
            cut.contains("cannot parse the agent's list of threads"),
            "{cut}"
        );
    }
}
