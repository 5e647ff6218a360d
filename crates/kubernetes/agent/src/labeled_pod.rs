//! A pod of this node that carries the label, reduced to what placing it needs.

use albacore_api::SERVER_CONTAINER;
use albacore_cluster::{ObjectKey, Resource as _};
use k8s_openapi::api::core::v1::{ContainerStatus, ObjectReference, Pod};

/// The label that opts a pod in; its value names the InferenceDeployment.
pub(crate) const DEPLOYMENT_LABEL: &str = "albacore.dev/deployment";

/// Annotations of static pods: the kubelet runs these from a file or a URL, not from the API
/// server.
const STATIC_ANNOTATIONS: [&str; 2] =
    ["kubernetes.io/config.mirror", "kubernetes.io/config.source"];

/// The container `server` of a pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ServerContainer {
    /// It runs under this id, without the runtime's name.
    Running(String),
    /// It does not run, or its id is not reported yet.
    NotRunning,
    /// The pod has no such container.
    Missing,
}

/// A pod that carries the label.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LabeledPod {
    pub(crate) key: ObjectKey,
    /// The uid, which is part of the names of its cgroups.
    pub(crate) uid: String,
    /// The InferenceDeployment that its label names.
    pub(crate) deployment: String,
    /// IPv4 and IPv6 addresses.
    pub(crate) addresses: Vec<String>,
    pub(crate) container: ServerContainer,
    /// Whether the kubelet runs it without the API server.
    pub(crate) is_static: bool,
    /// Whether its phase is final.
    pub(crate) is_over: bool,
    /// Reference to the pod, for events.
    pub(crate) regarding: ObjectReference,
}

impl LabeledPod {
    /// `None` without the label or before the pod has a uid.
    pub(crate) fn of(pod: &Pod) -> Option<Self> {
        let meta = &pod.metadata;
        let deployment = meta.labels.as_ref()?.get(DEPLOYMENT_LABEL)?.clone();
        let uid = meta.uid.clone().filter(|uid| !uid.is_empty())?;
        let status = pod.status.as_ref();
        let phase = status.and_then(|s| s.phase.as_deref()).unwrap_or_default();
        Some(Self {
            key: ObjectKey::of(pod),
            uid,
            deployment,
            addresses: addresses(pod),
            container: server_container(pod),
            is_static: is_static(pod),
            is_over: ["Succeeded", "Failed"].contains(&phase),
            regarding: ObjectReference {
                resource_version: None,
                ..pod.object_ref(&())
            },
        })
    }
}

fn is_static(pod: &Pod) -> bool {
    let mut annotations = pod.metadata.annotations.iter().flatten();
    let mut owners = pod.metadata.owner_references.iter().flatten();
    annotations.any(|(key, value)| {
        let is_from_api = key.ends_with("source") && value == "api";
        STATIC_ANNOTATIONS.contains(&key.as_str()) && !is_from_api
    }) || owners.any(|owner| owner.kind == "Node")
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

fn server_container(pod: &Pod) -> ServerContainer {
    let spec = pod.spec.as_ref();
    let is_server = |name: &str| name == SERVER_CONTAINER;
    // Init and ephemeral containers are in other lists, which are not looked at.
    if !spec.is_some_and(|spec| spec.containers.iter().any(|c| is_server(&c.name))) {
        return ServerContainer::Missing;
    }
    let statuses = pod
        .status
        .as_ref()
        .and_then(|s| s.container_statuses.as_ref());
    let server = statuses.into_iter().flatten().find(|c| is_server(&c.name));
    match server.and_then(running_id) {
        Some(id) => ServerContainer::Running(id),
        None => ServerContainer::NotRunning,
    }
}

fn running_id(status: &ContainerStatus) -> Option<String> {
    status.state.as_ref()?.running.as_ref()?;
    let (_, id) = status.container_id.as_deref()?.split_once("://")?;
    Some(id.to_owned()).filter(|id| !id.is_empty())
}

/// Drops the fields of a pod that are never read, before it is cached.
pub(crate) fn trim_pod(pod: &mut Pod) {
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

    fn pod_with(change: impl FnOnce(&mut Value)) -> Option<LabeledPod> {
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
        trim_pod(&mut pod);
        LabeledPod::of(&pod)
    }

    #[test]
    fn only_the_container_named_server_is_placed() {
        let pod = pod_with(|_| {}).unwrap();
        assert_eq!(pod.container, ServerContainer::Running("c1".to_owned()));
        assert_eq!(pod.addresses, ["10.0.0.1", "fd00::1"]);
        assert_eq!(pod.key, ObjectKey::new("x", "a-1"));
        let waiting = pod_with(|pod| {
            pod["status"]["containerStatuses"][1]["state"] = json!({"waiting": {}});
        });
        assert_eq!(waiting.unwrap().container, ServerContainer::NotRunning);
        let absent = pod_with(|pod| pod["spec"]["containers"][1]["name"] = json!("other"));
        assert_eq!(absent.unwrap().container, ServerContainer::Missing);
        // An init container of that name, in its own list, is not the server.
        let init = pod_with(|pod| {
            let list = pod["status"]["containerStatuses"].take();
            pod["status"]["initContainerStatuses"] = list;
        });
        assert_eq!(init.unwrap().container, ServerContainer::NotRunning);
    }

    #[test]
    fn pods_of_the_kubelet_are_static_and_pods_without_the_label_are_ignored() {
        assert!(pod_with(|pod| pod["metadata"]["labels"] = json!({"app": "a"})).is_none());
        assert!(!pod_with(|_| {}).unwrap().is_static);
        for annotations in [
            json!({"kubernetes.io/config.mirror": "0123"}),
            json!({"kubernetes.io/config.source": "file"}),
        ] {
            assert!(
                pod_with(|pod| pod["metadata"]["annotations"] = annotations)
                    .unwrap()
                    .is_static
            );
        }
        let api = json!({"kubernetes.io/config.source": "api"});
        assert!(
            !pod_with(|pod| pod["metadata"]["annotations"] = api)
                .unwrap()
                .is_static
        );
        let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"}]);
        assert!(
            pod_with(|pod| pod["metadata"]["ownerReferences"] = owner)
                .unwrap()
                .is_static
        );
        assert!(
            pod_with(|pod| pod["status"]["phase"] = json!("Failed"))
                .unwrap()
                .is_over
        );
    }
}
