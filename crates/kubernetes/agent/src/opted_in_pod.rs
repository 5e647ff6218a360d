//! A pod of this node that opted in by the label of an InferenceDeployment or by its annotation,
//! reduced to the fields needed to place it.

use albacore_api::{PLACE_ANNOTATION, PlaceAnnotation, PlaceAnnotationError, SERVER_CONTAINER};
use albacore_cluster::{ObjectKey, Resource as _};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, ObjectReference, Pod, PodSpec};

/// The label that opts a pod in; its value names the InferenceDeployment.
pub(crate) const DEPLOYMENT_LABEL: &str = "albacore.dev/deployment";

/// Annotations of static pods, which the kubelet runs from a file or a URL instead of from the API
/// server.
const STATIC_ANNOTATIONS: [&str; 2] =
    ["kubernetes.io/config.mirror", "kubernetes.io/config.source"];

/// Annotation by which kubectl also selects the default container of a pod.
const DEFAULT_CONTAINER_ANNOTATION: &str = "kubectl.kubernetes.io/default-container";

/// Limits the threads of OpenMP, and therefore those of XGBoost and LightGBM.
const THREADS_VARIABLE: &str = "OMP_NUM_THREADS";

/// The container of a pod that is placed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PlacedContainer {
    /// It runs with this container ID, without the prefix of the runtime.
    Running { name: String, id: String },
    /// It does not run, or its container ID is not reported yet.
    NotRunning { name: String },
    /// The pod has no such container, or the choice is ambiguous.
    Missing { reason: String },
}

/// How a pod opted in.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum OptIn {
    /// By the label of a deployment.
    Deployment {
        name: String,
        /// Its annotation, if it also has one.
        annotation: Option<Result<PlaceAnnotation, PlaceAnnotationError>>,
    },
    /// By its annotation alone.
    Annotation {
        annotation: Result<PlaceAnnotation, PlaceAnnotationError>,
        /// `OMP_NUM_THREADS` of the container, if it is a number.
        omp_threads: Option<u16>,
    },
}

impl OptIn {
    /// The InferenceDeployment that the pod belongs to.
    pub(crate) fn deployment(&self) -> Option<&str> {
        match self {
            Self::Deployment { name, .. } => Some(name),
            Self::Annotation { .. } => None,
        }
    }
}

/// A pod that opted in.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct OptedInPod {
    pub(crate) key: ObjectKey,
    /// The uid, which is part of the pod's cgroup names.
    pub(crate) uid: String,
    pub(crate) opt_in: OptIn,
    /// IPv4 and IPv6 addresses.
    pub(crate) addresses: Vec<String>,
    pub(crate) container: PlacedContainer,
    /// Whether it is a static pod.
    pub(crate) is_static: bool,
    /// Whether its phase is terminal.
    pub(crate) has_ended: bool,
    /// Reference to the pod, for events.
    pub(crate) regarding: ObjectReference,
}

impl OptedInPod {
    /// Returns `None` for a pod without label and annotation, and for a pod without a uid.
    /// Annotations are ignored unless `takes_annotations` is set.
    pub(crate) fn of(pod: &Pod, takes_annotations: bool) -> Option<Self> {
        let meta = &pod.metadata;
        let label = meta.labels.as_ref().and_then(|l| l.get(DEPLOYMENT_LABEL));
        let annotation = annotation(pod, PLACE_ANNOTATION).filter(|_| takes_annotations);
        let annotation = annotation.map(PlaceAnnotation::read);
        let (opt_in, container) = match (label, annotation) {
            (Some(name), annotation) => {
                let name = name.clone();
                let container = named_container(pod, SERVER_CONTAINER);
                (OptIn::Deployment { name, annotation }, container)
            }
            (None, Some(annotation)) => {
                let named = annotation
                    .as_ref()
                    .ok()
                    .and_then(|a| a.container.as_deref());
                let container = annotated_container(pod, named);
                let omp_threads = omp_threads(pod, &container);
                (
                    OptIn::Annotation {
                        annotation,
                        omp_threads,
                    },
                    container,
                )
            }
            (None, None) => return None,
        };
        let uid = meta.uid.clone().filter(|uid| !uid.is_empty())?;
        let status = pod.status.as_ref();
        let phase = status.and_then(|s| s.phase.as_deref()).unwrap_or_default();
        Some(Self {
            key: ObjectKey::of(pod),
            uid,
            opt_in,
            addresses: addresses(pod),
            container,
            is_static: is_static(pod),
            has_ended: ["Succeeded", "Failed"].contains(&phase),
            regarding: ObjectReference {
                resource_version: None,
                ..pod.object_ref(&())
            },
        })
    }
}

/// Whether a pod has the label or the annotation, regardless of the value.
pub(crate) fn has_opted_in(pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(DEPLOYMENT_LABEL))
        || annotation(pod, PLACE_ANNOTATION).is_some()
}

fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let annotations = pod.metadata.annotations.as_ref()?;
    annotations.get(name).map(String::as_str)
}

/// The containers of a pod; init and ephemeral containers are in other lists and are ignored.
fn containers(pod: &Pod) -> &[Container] {
    pod.spec.as_ref().map_or(&[], |spec| &spec.containers)
}

/// The container selected by an annotation: the named one, the only one, or the default container
/// of kubectl.
fn annotated_container(pod: &Pod, named: Option<&str>) -> PlacedContainer {
    let default = annotation(pod, DEFAULT_CONTAINER_ANNOTATION);
    match (named.or(default), containers(pod)) {
        (Some(name), _) => named_container(pod, name),
        (None, [only]) => named_container(pod, &only.name),
        (None, all) => PlacedContainer::Missing {
            reason: format!(
                "the pod has several containers ({}): name one in {PLACE_ANNOTATION}, as in \
                 '{{\"container\": \"{}\"}}'",
                names(all),
                all.first().map_or("", |first| &first.name)
            ),
        },
    }
}

fn names(containers: &[Container]) -> String {
    let names: Vec<&str> = containers.iter().map(|c| c.name.as_str()).collect();
    names.join(", ")
}

fn named_container(pod: &Pod, name: &str) -> PlacedContainer {
    let all = containers(pod);
    if !all.iter().any(|container| container.name == name) {
        let names = names(all);
        return PlacedContainer::Missing {
            reason: format!("the pod has no container named {name}, only {names}"),
        };
    }
    let statuses = pod
        .status
        .as_ref()
        .and_then(|s| s.container_statuses.as_ref());
    let status = statuses.into_iter().flatten().find(|c| c.name == name);
    let name = name.to_owned();
    match status.and_then(running_id) {
        Some(id) => PlacedContainer::Running { name, id },
        None => PlacedContainer::NotRunning { name },
    }
}

/// OpenMP threads set by the container's environment. Only the first element of a list is used,
/// which applies to regions that are not nested.
fn omp_threads(pod: &Pod, container: &PlacedContainer) -> Option<u16> {
    let (PlacedContainer::Running { name, .. } | PlacedContainer::NotRunning { name }) = container
    else {
        return None;
    };
    let container = containers(pod).iter().find(|c| c.name == *name)?;
    let variables = container.env.iter().flatten();
    let value = variables
        .filter(|variable| variable.name == THREADS_VARIABLE)
        .find_map(|variable| variable.value.as_deref())?;
    let threads: u16 = value.split(',').next()?.trim().parse().ok()?;
    (1..=albacore_api::limits::THREADS_MAX)
        .contains(&threads)
        .then_some(threads)
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

fn running_id(status: &ContainerStatus) -> Option<String> {
    status.state.as_ref()?.running.as_ref()?;
    let (_, id) = status.container_id.as_deref()?.split_once("://")?;
    Some(id.to_owned()).filter(|id| !id.is_empty())
}

/// Drops the fields of a pod that are never read, before it is cached; of a pod that did not opt
/// in, only the name is kept.
pub(crate) fn trim_pod(pod: &mut Pod) {
    if let Some(annotations) = &mut pod.metadata.annotations {
        let read = [PLACE_ANNOTATION, DEFAULT_CONTAINER_ANNOTATION];
        annotations.retain(|key, _| {
            STATIC_ANNOTATIONS.contains(&key.as_str()) || read.contains(&key.as_str())
        });
    }
    if !has_opted_in(pod) {
        (pod.spec, pod.status) = (None, None);
        return;
    }
    if let Some(spec) = &mut pod.spec {
        let containers = std::mem::take(&mut spec.containers).into_iter();
        *spec = PodSpec {
            containers: containers.map(trimmed).collect(),
            node_name: spec.node_name.take(),
            ..PodSpec::default()
        };
    }
    if let Some(status) = &mut pod.status {
        *status = k8s_openapi::api::core::v1::PodStatus {
            phase: status.phase.take(),
            pod_ip: status.pod_ip.take(),
            pod_ips: status.pod_ips.take(),
            container_statuses: status.container_statuses.take(),
            ..Default::default()
        };
    }
}

fn trimmed(container: Container) -> Container {
    let mut env = container.env;
    if let Some(variables) = &mut env {
        variables.retain(|variable| variable.name == THREADS_VARIABLE);
    }
    Container {
        name: container.name,
        env,
        ..Container::default()
    }
}

#[cfg(test)]
mod tests;
