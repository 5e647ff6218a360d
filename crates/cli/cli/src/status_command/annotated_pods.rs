//! Pods without an InferenceDeployment that opt in by the annotation `albacore.dev/place`.

use albacore_api::{AnnotatedPod, CountSource, PLACE_ANNOTATION, PlaceAnnotation, counted};
use albacore_cluster::{ApiResource, Cluster, ErrorClass, ObjectKey};
use albacore_command::{Failure, sentence};
use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;

use super::findings::{Finding, finding, of_pod};
use super::report::{DEPLOYMENT_LABEL, NodesAt, PodReport};
use crate::cluster_access::typed;

/// Most annotated pods in one report; `albacore status pod/NAME` shows any pod.
const PODS_SHOWN_MAX: usize = 64;

/// Selects pods that have or will have processes.
const NOT_ENDED: &str = "status.phase!=Succeeded,status.phase!=Failed";

#[derive(Serialize)]
pub(super) struct AnnotatedPodReport {
    pub(super) namespace: String,
    #[serde(flatten)]
    pub(super) pod: PodReport,
    /// Its request, including detected counts; `None` if no agent has reported it.
    pub(super) requested: Option<AnnotationReport>,
    /// Why its placement is not as requested, as far as the pod itself shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refusal: Option<String>,
    /// Whether the pod has the annotation or the label of a deployment.
    pub(super) has_opted_in: bool,
}

#[derive(Serialize)]
pub(super) struct AnnotationReport {
    pub(super) container: String,
    pub(super) workers: Option<i32>,
    pub(super) threads: Option<i32>,
    pub(super) mode: String,
    /// Counts detected by the node's agent, because the annotation omits them.
    pub(super) counted: Vec<&'static str>,
}

impl AnnotatedPodReport {
    pub(super) fn of(pod: &Pod, nodes: NodesAt<'_>) -> Self {
        let meta = &pod.metadata;
        let text = meta
            .annotations
            .as_ref()
            .and_then(|a| a.get(PLACE_ANNOTATION));
        let is_labeled = is_of_a_deployment(pod);
        let namespace = meta.namespace.clone().unwrap_or_default();
        let name = meta.name.as_deref().unwrap_or_default();
        let uid = meta.uid.as_deref().unwrap_or_default();
        let reported = nodes.0.iter().flat_map(|node| &node.status);
        let mut reported = reported.flat_map(|status| &status.pods);
        let entry = reported.find(|entry| entry.is_of(&namespace, name, uid));
        Self {
            requested: entry
                .and_then(|entry| entry.annotation.as_ref())
                .map(AnnotationReport::of),
            refusal: text.and_then(|text| Some(PlaceAnnotation::read(text).err()?.to_string())),
            has_opted_in: text.is_some() || is_labeled,
            pod: PodReport::of(pod, nodes),
            namespace,
        }
    }

    /// The problems of the pod, ordered by causality.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let about = format!("pod {}", self.pod.name);
        if !self.has_opted_in {
            let message =
                "has not opted in: it has neither an InferenceDeployment nor the annotation";
            let remedy = "annotate the template of its Deployment: spec.template.metadata.\
                          annotations, albacore.dev/place: '{\"workers\": 4, \"threads\": 4}'";
            return vec![finding(&about, message.to_owned(), remedy)];
        }
        if let Some(refusal) = &self.refusal {
            let remedy = "correct the annotation; nothing of the pod is placed until then";
            return vec![finding(&about, refusal.clone(), remedy)];
        }
        of_pod(&self.pod)
    }
}

impl AnnotationReport {
    fn of(requested: &AnnotatedPod) -> Self {
        let is_counted = |source: CountSource| source == CountSource::ProcessTree;
        let counted = [
            ("workers", is_counted(requested.workers_from)),
            ("threads", is_counted(requested.threads_from)),
        ];
        Self {
            container: requested.container.clone(),
            workers: requested.workers,
            threads: requested.threads,
            mode: format!("{:?}", requested.mode),
            counted: counted
                .iter()
                .filter(|(_, is)| *is)
                .map(|(what, _)| *what)
                .collect(),
        }
    }

    /// Formats as `4 x 2 scatter, container app (workers counted)`.
    pub(super) fn in_words(&self) -> String {
        let number = |count: Option<i32>| count.map_or("?".to_owned(), |count| count.to_string());
        let counted = match self.counted.as_slice() {
            [] => String::new(),
            counted => format!(" ({} counted)", counted.join(" and ")),
        };
        format!(
            "{} x {} {}, container {}{counted}",
            number(self.workers),
            number(self.threads),
            self.mode.to_lowercase(),
            self.container
        )
    }
}

/// Reads one pod.
pub(super) async fn read_one(cluster: &Cluster, key: &ObjectKey) -> Result<Pod, Failure> {
    let kind = ApiResource::erase::<Pod>(&());
    let found = cluster.get(&kind, key).await;
    let found = found.map_err(|error| Failure::Failed(sentence(&error)))?;
    let mut unread = Vec::new();
    let pod = typed(found.into_iter().collect(), &mut unread).pop();
    pod.ok_or_else(|| {
        Failure::Failed(unread.pop().unwrap_or_else(|| {
            format!(
                "there is no pod \"{}\" in namespace \"{}\"; name another one with -n",
                key.name, key.namespace
            )
        }))
    })
}

/// Reads the annotated pods that have not ended, of one or all namespaces, including those that no
/// agent reports because their annotation is invalid or their node has no agent.
pub(super) async fn read_annotated(
    cluster: &Cluster,
    namespace: Option<&str>,
    unread: &mut Vec<String>,
) -> Vec<Pod> {
    let kind = ApiResource::erase::<Pod>(&());
    let found = cluster.annotated(&kind, namespace, NOT_ENDED, PLACE_ANNOTATION);
    let mut keys = found.await.unwrap_or_else(|error| {
        // If the user may not list pods, the error is already reported for the pods of deployments.
        let message = sentence(&error);
        if !unread.contains(&message) {
            unread.push(message);
        }
        Vec::new()
    });
    if keys.len() > PODS_SHOWN_MAX {
        let rest = counted(keys.len() - PODS_SHOWN_MAX, "annotated pod");
        unread.push(format!("{rest} more; albacore status pod/NAME shows one"));
        keys.truncate(PODS_SHOWN_MAX);
    }
    let mut pods = Vec::new();
    for key in keys {
        match cluster.get(&kind, &key).await {
            Ok(found) => pods.extend(typed(found.into_iter().collect(), unread)),
            Err(error) if error.class() == ErrorClass::NotFound => {}
            Err(error) => unread.push(format!("pod {key}: {}", sentence(&error))),
        }
    }
    pods.retain(|pod: &Pod| !is_of_a_deployment(pod));
    pods
}

/// Whether the pod is shown with its InferenceDeployment.
fn is_of_a_deployment(pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(DEPLOYMENT_LABEL))
}
