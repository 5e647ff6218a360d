//! What the API server says of this node, held in memory: it may be away, and what it said last
//! goes on to hold.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use albacore_api::{InferenceDeployment, NodePlacement, NodePlacementStatus, PodPlacement};
use albacore_cluster::{ApiResource, Change, Cluster, Gates, Key, Shutdown, Watch, WatchOptions};
use albacore_plan::Enforcement;
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, ObjectReference, Pod};

use crate::pods::{DEPLOYMENT_LABEL, pod_seen, trim};
use crate::wish::{NODE_ANNOTATION, NodeRules, Switch, Wish, decide};

/// Wakes the loop; clones wake the same one.
#[derive(Clone, Debug)]
pub(crate) struct Bell {
    sender: SyncSender<()>,
    has_cluster_news: Arc<AtomicBool>,
}

/// Where the loop waits.
#[derive(Debug)]
pub(crate) struct Ears {
    receiver: Receiver<()>,
    has_cluster_news: Arc<AtomicBool>,
}

/// A bell and who hears it.
pub(crate) fn bell() -> (Bell, Ears) {
    // One ring that waits is as good as many.
    let (sender, receiver) = sync_channel(1);
    let has_cluster_news = Arc::new(AtomicBool::new(true));
    let bell = Bell {
        sender,
        has_cluster_news: has_cluster_news.clone(),
    };
    (
        bell,
        Ears {
            receiver,
            has_cluster_news,
        },
    )
}

impl Bell {
    /// The placer told something.
    pub(crate) fn ring(&self) {
        // Full: a ring waits already. Without ears the program ends.
        let _ = self.sender.try_send(());
    }

    /// The API server told something.
    pub(crate) fn ring_for_cluster(&self) {
        self.has_cluster_news.store(true, Ordering::Release);
        self.ring();
    }
}

impl Ears {
    /// Waits for a ring, at most `time`; false if nobody can ring any more.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        self.receiver.recv_timeout(time) != Err(RecvTimeoutError::Disconnected)
    }

    /// Whether the API server told something since this was asked last.
    pub(crate) fn take_cluster_news(&self) -> bool {
        self.has_cluster_news.swap(false, Ordering::AcqRel)
    }
}

/// The deployments as they were when they could last be read: one that cannot be read now leaves
/// its pods as they are.
type Readable = Arc<Mutex<HashMap<Key, Arc<InferenceDeployment>>>>;

/// What the API server says.
pub(crate) struct View {
    node_name: String,
    pods: Watch<Pod>,
    deployments: Watch<InferenceDeployment>,
    nodes: Watch<Node>,
    /// Watched for what a former life told, and to write it again when it is deleted.
    report: Watch<NodePlacement>,
    former: Arc<OnceLock<Vec<PodPlacement>>>,
    deletions: Arc<AtomicU64>,
    readable: Readable,
}

impl View {
    pub(crate) fn start(
        cluster: &Cluster,
        node_name: &str,
        gates: &Gates,
        shutdown: &Shutdown,
        bell: &Bell,
    ) -> Self {
        let mut pods = WatchOptions::new("pods", ApiResource::erase::<Pod>(&()));
        pods.labels = DEPLOYMENT_LABEL.to_owned();
        pods.fields = format!("spec.nodeName={node_name}");
        pods.trim = trim;
        let mut deployments = WatchOptions::new(
            "deployments",
            ApiResource::erase::<InferenceDeployment>(&()),
        );
        deployments.trim = |deployment: &mut InferenceDeployment| {
            deployment.metadata.annotations = None;
            deployment.status = None;
        };
        let mut nodes = WatchOptions::new("node", ApiResource::erase::<Node>(&()));
        nodes.fields = format!("metadata.name={node_name}");
        nodes.trim = trim_node;
        let mut reports = WatchOptions::new("report", ApiResource::erase::<NodePlacement>(&()));
        reports.fields = format!("metadata.name={node_name}");
        reports.trim = trim_report;
        let former = Arc::new(OnceLock::new());
        let told = former.clone();
        let deletions = Arc::new(AtomicU64::new(0));
        let deleted = deletions.clone();
        let on_report = bell.clone();
        let readable = Readable::default();
        let known = readable.clone();
        let (on_pod, on_deployment, on_node) = (bell.clone(), bell.clone(), bell.clone());
        Self {
            node_name: node_name.to_owned(),
            pods: cluster.watch(pods, gates, shutdown, move |_| on_pod.ring_for_cluster()),
            deployments: cluster.watch(deployments, gates, shutdown, move |change| {
                remember(&known, change);
                on_deployment.ring_for_cluster();
            }),
            nodes: cluster.watch(nodes, gates, shutdown, move |_| on_node.ring_for_cluster()),
            report: cluster.watch(reports, gates, shutdown, move |change| match change {
                Change::Applied { new, .. } => {
                    // The first one is a former life's: this one writes none before it is known.
                    told.get_or_init(|| new.status.clone().unwrap_or_default().pods);
                }
                Change::Gone(_) => {
                    deleted.fetch_add(1, Ordering::AcqRel);
                    on_report.ring_for_cluster();
                }
                Change::Malformed(_) => {}
            }),
            former,
            deletions,
            readable,
        }
    }

    /// Whether all was told once: before, what is not known may be there all the same. The report
    /// is none of it: it is written whether it is watched or not.
    pub(crate) fn is_synced(&self) -> bool {
        self.pods.is_synced() && self.deployments.is_synced() && self.nodes.is_synced()
    }

    /// The pods whose masks a former life of this agent had written when it reported last; `None`
    /// before that is known.
    pub(crate) fn former(&self) -> Option<Vec<PodPlacement>> {
        let is_known = self.report.is_synced();
        is_known.then(|| self.former.get().cloned().unwrap_or_default())
    }

    /// Returns when [`View::is_synced`].
    pub(crate) async fn synced(&self) {
        self.pods.synced().await;
        self.deployments.synced().await;
        self.nodes.synced().await;
    }

    fn node(&self) -> Option<Arc<Node>> {
        self.nodes.get(&Key::new("", &self.node_name))
    }

    /// What the node's annotation asks for.
    pub(crate) fn switch(&self) -> Switch {
        let node = self.node();
        let annotations = node.as_ref().and_then(|n| n.metadata.annotations.as_ref());
        let value = annotations.and_then(|all| all.get(NODE_ANNOTATION));
        Switch::of(value.map(String::as_str))
    }

    /// How often the node's report was deleted.
    pub(crate) fn deletions(&self) -> u64 {
        self.deletions.load(Ordering::Acquire)
    }

    pub(crate) fn node_uid(&self) -> Option<String> {
        self.node().and_then(|node| node.metadata.uid.clone())
    }

    /// The node, for events: the kubelet, too, gives the name for the uid.
    pub(crate) fn node_reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(self.node_name.clone()),
            uid: Some(self.node_name.clone()),
            ..ObjectReference::default()
        }
    }

    /// The deployment `name` of a namespace, as it could last be read.
    pub(crate) fn deployment(
        &self,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<InferenceDeployment>> {
        let known = self.readable.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&Key::new(namespace, name)).cloned()
    }

    /// What is wished for.
    pub(crate) fn wishes(&self, enforcement: Enforcement) -> Vec<Wish> {
        let pods = self.pods.select(|_| true);
        let seen = pods.iter().filter_map(|pod| pod_seen(pod));
        let known = self.readable.lock().unwrap_or_else(PoisonError::into_inner);
        let rules = NodeRules {
            enforcement,
            switch: self.switch(),
        };
        let deployment_of = |pod: &crate::pods::PodSeen| {
            let key = Key::new(&pod.key.namespace, &pod.deployment);
            known.get(&key).map(Arc::as_ref)
        };
        decide(seen, deployment_of, rules)
    }

    /// Waits until all was told once, at most `time`.
    pub(crate) async fn synced_within(&self, time: Duration) -> bool {
        tokio::time::timeout(time, self.synced()).await.is_ok()
    }
}

fn remember(known: &Readable, change: Change<InferenceDeployment>) {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    match change {
        Change::Applied { new, .. } => {
            known.insert(Key::of(&*new), new);
        }
        Change::Gone(old) => {
            known.remove(&Key::of(&*old));
        }
        Change::Malformed(malformed) => {
            let (name, error) = (
                malformed.regarding.name.unwrap_or_default(),
                malformed.error,
            );
            tracing::warn!(
                name,
                error,
                "a deployment cannot be read; its pods stay as they are"
            );
        }
    }
}

/// Keeps of a report the pods with masks that its writer had written.
fn trim_report(report: &mut NodePlacement) {
    let mut pods = report.status.take().unwrap_or_default().pods;
    pods.retain(|pod| pod.verified > 0 && !pod.observed);
    report.status = Some(NodePlacementStatus {
        pods,
        ..NodePlacementStatus::default()
    });
}

/// Keeps of a node its name and our annotation.
fn trim_node(node: &mut Node) {
    node.metadata.labels = None;
    if let Some(annotations) = &mut node.metadata.annotations {
        annotations.retain(|key, _| key == NODE_ANNOTATION);
    }
    node.spec = None::<NodeSpec>;
    node.status = None::<NodeStatus>;
}
