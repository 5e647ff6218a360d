//! Cache of the API objects that concern this node. While the API server is unreachable, the last
//! received state stays in force.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use albacore_api::{InferenceDeployment, NodePlacement, NodePlacementStatus, PodPlacement};
use albacore_cluster::{
    ApiResource, Cluster, ObjectChange, ObjectKey, ReadinessGates, Resource, Shutdown, Watch,
    WatchOptions,
};
use albacore_plan::Enforcement;
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, ObjectReference, Pod};

use crate::desired::{DesiredPod, KillSwitch, NODE_ANNOTATION, NodeRules, desired_pods};
use crate::opted_in_pod::{DEPLOYMENT_LABEL, OptedInPod, has_opted_in, trim_pod};
use crate::waker::LoopWaker;

/// The last version of each deployment that could be parsed: a deployment that becomes malformed
/// leaves its pods unchanged.
#[derive(Clone, Default)]
struct ParsedDeployments(Arc<Mutex<HashMap<ObjectKey, Arc<InferenceDeployment>>>>);

impl ParsedDeployments {
    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, Arc<InferenceDeployment>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: ObjectChange<InferenceDeployment>) {
        match change {
            ObjectChange::Applied { new, .. } => {
                self.lock().insert(ObjectKey::of(&*new), new);
            }
            ObjectChange::Deleted(old) => {
                self.lock().remove(&ObjectKey::of(&*old));
            }
            ObjectChange::Malformed(malformed) => {
                let name = malformed.regarding.name.unwrap_or_default();
                let error = malformed.error;
                tracing::warn!(
                    name,
                    error,
                    "a deployment is malformed; its pods stay unchanged"
                );
            }
        }
    }
}

/// The fields that the agent reads from its own NodePlacement.
#[derive(Clone, Default)]
struct OwnReport {
    /// Pods in the first version received. The previous agent wrote that version, because this
    /// agent writes its first report only after it has read the existing one.
    previous: Arc<OnceLock<Vec<PodPlacement>>>,
    /// Number of deletions of the object; it is written again after each.
    deletions: Arc<AtomicU64>,
}

/// Selects the pods that are watched.
#[derive(Clone, Debug)]
pub(crate) struct ViewOptions {
    pub(crate) node_name: String,
    /// Whether pods may opt in by annotation. If so, every pod of the node is watched, because the
    /// API server cannot select by annotation.
    pub(crate) takes_annotations: bool,
}

pub(crate) struct ClusterView {
    options: ViewOptions,
    pods: Watch<Pod>,
    deployments: Watch<InferenceDeployment>,
    parsed_deployments: ParsedDeployments,
    nodes: Watch<Node>,
    reports: Watch<NodePlacement>,
    own_report: OwnReport,
}

impl ClusterView {
    /// Starts the watches; every change wakes the reconcile loop.
    pub(crate) fn start(
        cluster: &Cluster,
        view: ViewOptions,
        gates: &ReadinessGates,
        shutdown: &Shutdown,
        waker: &LoopWaker,
    ) -> Self {
        let (parsed_deployments, own_report) = (ParsedDeployments::default(), OwnReport::default());
        let ViewOptions {
            node_name,
            takes_annotations,
        } = &view;
        let pods = {
            let mut options = options::<Pod>("pods", trim_pod);
            if !takes_annotations {
                options.labels = DEPLOYMENT_LABEL.to_owned();
            }
            options.fields = format!("spec.nodeName={node_name}");
            let waker = waker.clone();
            cluster.watch(options, gates, shutdown, move |change| {
                if concerns_opted_in(&change) {
                    waker.wake_for_cluster();
                }
            })
        };
        let deployments = {
            let options = options("deployments", trim_deployment);
            let (waker, parsed) = (waker.clone(), parsed_deployments.clone());
            cluster.watch(options, gates, shutdown, move |change| {
                parsed.update(change);
                waker.wake_for_cluster();
            })
        };
        let nodes = {
            let mut options = options("node", trim_node);
            options.fields = format!("metadata.name={node_name}");
            let waker = waker.clone();
            cluster.watch(options, gates, shutdown, move |_| waker.wake_for_cluster())
        };
        let reports = {
            let mut options = options("report", trim_report);
            options.fields = format!("metadata.name={node_name}");
            let (waker, own) = (waker.clone(), own_report.clone());
            cluster.watch(options, gates, shutdown, move |change| match change {
                ObjectChange::Applied { new, .. } => {
                    let status = || new.status.clone().unwrap_or_default();
                    own.previous.get_or_init(|| status().pods);
                }
                ObjectChange::Deleted(_) => {
                    own.deletions.fetch_add(1, Ordering::AcqRel);
                    waker.wake_for_cluster();
                }
                ObjectChange::Malformed(_) => {}
            })
        };
        Self {
            options: view,
            pods,
            deployments,
            parsed_deployments,
            nodes,
            reports,
            own_report,
        }
    }

    /// Whether the initial lists of pods, deployments and the node are complete; before that,
    /// absence proves nothing. The NodePlacement is not required, because it is written even if it
    /// cannot be watched.
    pub(crate) fn is_synced(&self) -> bool {
        self.pods.is_synced() && self.deployments.is_synced() && self.nodes.is_synced()
    }

    /// Waits until [`ClusterView::is_synced`].
    pub(crate) async fn synced(&self) {
        self.pods.synced().await;
        self.deployments.synced().await;
        self.nodes.synced().await;
    }

    /// Waits until the NodePlacement has been listed.
    pub(crate) async fn report_synced(&self) {
        self.reports.synced().await;
    }

    /// The pods whose masks were written by the previous agent of this node, according to its
    /// report; `None` until the report has been listed.
    pub(crate) fn previous_report(&self) -> Option<Vec<PodPlacement>> {
        let is_known = self.reports.is_synced();
        is_known.then(|| self.own_report.previous.get().cloned().unwrap_or_default())
    }

    fn node(&self) -> Option<Arc<Node>> {
        self.nodes.get(&ObjectKey::new("", &self.options.node_name))
    }

    pub(crate) fn kill_switch(&self) -> KillSwitch {
        let node = self.node();
        let annotations = node.as_ref().and_then(|n| n.metadata.annotations.as_ref());
        let value = annotations.and_then(|all| all.get(NODE_ANNOTATION));
        KillSwitch::of(value.map(String::as_str))
    }

    /// Number of times that the node's NodePlacement was deleted.
    pub(crate) fn report_deletions(&self) -> u64 {
        self.own_report.deletions.load(Ordering::Acquire)
    }

    pub(crate) fn node_uid(&self) -> Option<String> {
        self.node().and_then(|node| node.metadata.uid.clone())
    }

    /// Reference to the node object for events. The uid is the node name, as in the kubelet's
    /// events.
    pub(crate) fn node_reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(self.options.node_name.clone()),
            uid: Some(self.options.node_name.clone()),
            ..ObjectReference::default()
        }
    }

    /// The last version of a deployment that could be parsed.
    pub(crate) fn deployment(
        &self,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<InferenceDeployment>> {
        let key = ObjectKey::new(namespace, name);
        self.parsed_deployments.lock().get(&key).cloned()
    }

    /// Whether the pod with this name and uid runs on this node.
    pub(crate) fn has_pod(&self, key: &ObjectKey, uid: &str) -> bool {
        let pod = self.pods.get(key);
        pod.is_some_and(|pod| pod.metadata.uid.as_deref() == Some(uid))
    }

    /// The desired state of this node's pods.
    pub(crate) fn desired_pods(&self, enforcement: Enforcement) -> Vec<DesiredPod> {
        let pods = self.pods.select(|_| true);
        let takes_annotations = self.options.takes_annotations;
        let pods = pods.iter();
        let pods = pods.filter_map(|pod| OptedInPod::of(pod, takes_annotations));
        let deployments = self.parsed_deployments.lock();
        let rules = NodeRules {
            enforcement,
            kill_switch: self.kill_switch(),
        };
        let deployment_of = |pod: &OptedInPod| {
            let key = ObjectKey::new(&pod.key.namespace, pod.opt_in.deployment()?);
            deployments.get(&key).map(Arc::as_ref)
        };
        desired_pods(pods, deployment_of, rules)
    }
}

/// Whether the pod has opted in, or had before the change. Filters out the frequent changes of
/// other pods.
fn concerns_opted_in(change: &ObjectChange<Pod>) -> bool {
    match change {
        ObjectChange::Applied { old, new } => {
            has_opted_in(new) || old.as_deref().is_some_and(has_opted_in)
        }
        ObjectChange::Deleted(old) => has_opted_in(old),
        ObjectChange::Malformed(_) => true,
    }
}

fn options<K: Resource<DynamicType = ()>>(name: &'static str, trim: fn(&mut K)) -> WatchOptions<K> {
    let mut options = WatchOptions::new(name, ApiResource::erase::<K>(&()));
    options.trim = trim;
    options
}

/// Drops the fields of a deployment that the agent never reads.
fn trim_deployment(deployment: &mut InferenceDeployment) {
    deployment.metadata.annotations = None;
    deployment.status = None;
}

/// Drops everything from a report except the pods whose masks were written.
fn trim_report(report: &mut NodePlacement) {
    let mut pods = report.status.take().unwrap_or_default().pods;
    pods.retain(|pod| pod.verified > 0 && !pod.observed);
    report.status = Some(NodePlacementStatus {
        pods,
        ..NodePlacementStatus::default()
    });
}

/// Drops everything from a node object except its name and the agent's annotation.
fn trim_node(node: &mut Node) {
    node.metadata.labels = None;
    if let Some(annotations) = &mut node.metadata.annotations {
        annotations.retain(|key, _| key == NODE_ANNOTATION);
    }
    node.spec = None::<NodeSpec>;
    node.status = None::<NodeStatus>;
}
