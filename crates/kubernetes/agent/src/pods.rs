//! A pod of this node, as far as placing it is concerned.

use albacore_api::SERVER_CONTAINER;
use albacore_cluster::{Key, Resource as _};
use k8s_openapi::api::core::v1::{ContainerStatus, ObjectReference, Pod};

/// The label that opts a pod in; its value names the InferenceDeployment.
pub(crate) const DEPLOYMENT_LABEL: &str = "albacore.dev/deployment";

/// What the kubelet writes into pods that it runs from a file or from elsewhere than the API
/// server.
const STATIC_ANNOTATIONS: [&str; 2] =
    ["kubernetes.io/config.mirror", "kubernetes.io/config.source"];

/// The container that serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Container {
    /// It runs under this id, without the runtime's name.
    Running(String),
    /// It does not run, or its id is not known yet.
    NotRunning,
    /// The pod has no container of the name `server`.
    Absent,
}

/// A pod that carries the label.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PodSeen {
    pub(crate) key: Key,
    /// Its uid, which its cgroups carry.
    pub(crate) uid: String,
    /// The InferenceDeployment that its label names.
    pub(crate) deployment: String,
    /// Its addresses, all families.
    pub(crate) addresses: Vec<String>,
    /// The container that serves.
    pub(crate) container: Container,
    /// Whether the kubelet runs it without being asked by the API server.
    pub(crate) is_static: bool,
    /// Whether it has ended for good.
    pub(crate) is_over: bool,
    /// The pod, for events.
    pub(crate) regarding: ObjectReference,
}

/// What is known of `pod`; `None` without the label or before it has a uid.
pub(crate) fn pod_seen(pod: &Pod) -> Option<PodSeen> {
    let meta = &pod.metadata;
    let deployment = meta.labels.as_ref()?.get(DEPLOYMENT_LABEL)?.clone();
    let uid = meta.uid.clone().filter(|uid| !uid.is_empty())?;
    let annotations = meta.annotations.iter().flatten();
    let is_static = |key: &str, value: &str| {
        STATIC_ANNOTATIONS.contains(&key) && !(key.ends_with("source") && value == "api")
    };
    let is_static = annotations
        .into_iter()
        .any(|(key, value)| is_static(key, value))
        || meta
            .owner_references
            .iter()
            .flatten()
            .any(|o| o.kind == "Node");
    let status = pod.status.as_ref();
    let phase = status.and_then(|s| s.phase.as_deref()).unwrap_or_default();
    Some(PodSeen {
        key: Key::of(pod),
        uid,
        deployment,
        addresses: addresses(pod),
        container: container(pod),
        is_static,
        is_over: ["Succeeded", "Failed"].contains(&phase),
        regarding: ObjectReference {
            resource_version: None,
            ..pod.object_ref(&())
        },
    })
}

fn addresses(pod: &Pod) -> Vec<String> {
    let Some(status) = &pod.status else {
        return Vec::new();
    };
    let all = status.pod_ips.iter().flatten().map(|ip| ip.ip.clone());
    let mut all: Vec<String> = all.chain(status.pod_ip.clone()).collect();
    all.retain(|address| !address.is_empty());
    all.sort();
    all.dedup();
    all
}

fn container(pod: &Pod) -> Container {
    let spec = pod.spec.as_ref();
    let is_server = |name: &str| name == SERVER_CONTAINER;
    // Init containers and ephemeral ones have lists of their own: they are never meant.
    if !spec.is_some_and(|spec| spec.containers.iter().any(|c| is_server(&c.name))) {
        return Container::Absent;
    }
    let statuses = pod
        .status
        .as_ref()
        .and_then(|s| s.container_statuses.as_ref());
    let server = statuses.into_iter().flatten().find(|c| is_server(&c.name));
    match server.and_then(running_id) {
        Some(id) => Container::Running(id),
        None => Container::NotRunning,
    }
}

fn running_id(status: &ContainerStatus) -> Option<String> {
    status.state.as_ref()?.running.as_ref()?;
    let (_, id) = status.container_id.as_deref()?.split_once("://")?;
    Some(id.to_owned()).filter(|id| !id.is_empty())
}

/// Drops what nobody reads of a pod before it is kept.
pub(crate) fn trim(pod: &mut Pod) {
    if let Some(annotations) = &mut pod.metadata.annotations {
        annotations.retain(|key, _| STATIC_ANNOTATIONS.contains(&key.as_str()));
    }
    if let Some(spec) = &mut pod.spec {
        let containers = std::mem::take(&mut spec.containers);
        let names = containers
            .into_iter()
            .map(|c| k8s_openapi::api::core::v1::Container {
                name: c.name,
                ..Default::default()
            });
        *spec = k8s_openapi::api::core::v1::PodSpec {
            containers: names.collect(),
            node_name: spec.node_name.take(),
            ..Default::default()
        };
    }
    if let Some(status) = &mut pod.status {
        let statuses = status.container_statuses.take().into_iter().flatten();
        let server = statuses.filter(|c| c.name == SERVER_CONTAINER);
        *status = k8s_openapi::api::core::v1::PodStatus {
            phase: status.phase.take(),
            pod_ip: status.pod_ip.take(),
            pod_ips: status.pod_ips.take(),
            container_statuses: Some(server.collect()),
            ..Default::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn seen(change: impl FnOnce(&mut Value)) -> Option<PodSeen> {
        let mut pod = json!({
            "metadata": {"name": "a-1", "namespace": "x", "uid": "u-1",
                "labels": {"albacore.dev/deployment": "a"}},
            "spec": {"containers": [{"name": "proxy"}, {"name": "server"}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1",
                "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
                "containerStatuses": [
                    {"name": "proxy", "containerID": "containerd://p", "state": {"running": {}},
                        "image": "", "imageID": "", "ready": true, "restartCount": 0},
                    {"name": "server", "containerID": "containerd://c1", "state": {"running": {}},
                        "image": "", "imageID": "", "ready": true, "restartCount": 0}]}});
        change(&mut pod);
        let mut pod: Pod = serde_json::from_value(pod).unwrap();
        trim(&mut pod);
        pod_seen(&pod)
    }

    #[test]
    fn the_container_named_server_is_meant_and_no_other() {
        let pod = seen(|_| {}).unwrap();
        assert_eq!(pod.container, Container::Running("c1".to_owned()));
        assert_eq!(pod.addresses, ["10.0.0.1", "fd00::1"]);
        assert_eq!(pod.key, Key::new("x", "a-1"));
        let waiting = seen(|pod| {
            pod["status"]["containerStatuses"][1]["state"] = json!({"waiting": {}});
        });
        assert_eq!(waiting.unwrap().container, Container::NotRunning);
        let absent = seen(|pod| pod["spec"]["containers"][1]["name"] = json!("other"));
        assert_eq!(absent.unwrap().container, Container::Absent);
        // An init container of that name, told in its own list, is not the server.
        let init = seen(|pod| {
            let list = pod["status"]["containerStatuses"].take();
            pod["status"]["initContainerStatuses"] = list;
        });
        assert_eq!(init.unwrap().container, Container::NotRunning);
    }

    #[test]
    fn pods_of_the_kubelet_are_static_and_those_without_the_label_are_nobodys() {
        assert!(seen(|pod| pod["metadata"]["labels"] = json!({"app": "a"})).is_none());
        assert!(!seen(|_| {}).unwrap().is_static);
        for annotations in [
            json!({"kubernetes.io/config.mirror": "0123"}),
            json!({"kubernetes.io/config.source": "file"}),
        ] {
            assert!(
                seen(|pod| pod["metadata"]["annotations"] = annotations)
                    .unwrap()
                    .is_static
            );
        }
        let api = json!({"kubernetes.io/config.source": "api"});
        assert!(
            !seen(|pod| pod["metadata"]["annotations"] = api)
                .unwrap()
                .is_static
        );
        let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"}]);
        assert!(
            seen(|pod| pod["metadata"]["ownerReferences"] = owner)
                .unwrap()
                .is_static
        );
        assert!(
            seen(|pod| pod["status"]["phase"] = json!("Failed"))
                .unwrap()
                .is_over
        );
    }
}
