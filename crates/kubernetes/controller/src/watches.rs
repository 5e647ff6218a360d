//! The watches of the controller, and the mapping from watch events to the deployments to queue.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use albacore_api::{InferenceDeployment, NodePlacement, PodPlacement, SERVER_IMAGE_ANNOTATION};
use albacore_cluster::{
    ApiResource, Cluster, EventDraft, EventRecorder, Malformed, ObjectChange, ObjectKey,
    ReadinessGates, Resource, ResourceExt, Scope, Shutdown, Watch, WatchOptions, WorkQueue,
};
use k8s_openapi::api::core::v1::{Namespace, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::children::ChildKind;
use crate::limits::{COALESCE_DELAY, SILENCE_TIME_MAX};
use crate::names::{DEPLOYMENT_LABEL, PODS_SUFFIX};
use crate::observe::child_from_cache;
use crate::observed::LiveObject;
use crate::record::DeploymentRecords;
use crate::renewals::Renewals;
use crate::scrape::ServerStates;
use crate::watched_child::WatchedChild;
use crate::watched_pod::WatchedPod;

type Annotations = BTreeMap<String, String>;

/// The API resource of deployments.
pub(crate) fn deployments_kind() -> ApiResource {
    ApiResource::erase::<InferenceDeployment>(&())
}

/// The API resource of a kind of children.
pub(crate) fn child_kind(kind: ChildKind) -> ApiResource {
    let api_version = kind.api_version();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: api_version.to_owned(),
        kind: kind.kind().to_owned(),
        plural: kind.plural().to_owned(),
    }
}

pub(crate) struct ControllerContext {
    pub(crate) cluster: Cluster,
    pub(crate) scope: Scope,
    pub(crate) gates: ReadinessGates,
    pub(crate) shutdown: Shutdown,
    pub(crate) queue: WorkQueue<ObjectKey>,
    pub(crate) records: DeploymentRecords,
    pub(crate) states: ServerStates,
    pub(crate) events: EventRecorder,
}

/// Clones share the watches.
#[derive(Clone)]
pub(crate) struct Watches {
    pub(crate) deployments: Watch<InferenceDeployment>,
    pub(crate) pods: Watch<WatchedPod>,
    pub(crate) nodes: Watch<NodePlacement>,
    pub(crate) namespaces: Watch<Namespace>,
    /// When the reports of nodes were last renewed.
    pub(crate) renewals: Renewals,
    /// Contains ServiceMonitors once the API server serves them.
    children: Arc<RwLock<BTreeMap<ChildKind, Watch<WatchedChild>>>>,
}

impl Watches {
    /// Starts all watches except that of ServiceMonitors.
    pub(crate) fn start(context: &ControllerContext) -> Self {
        let (pods, renewals) = (watch_pods(context), Renewals::default());
        let deployments = watch_deployments(context);
        let watches = Self {
            namespaces: watch_namespaces(context, deployments.clone()),
            deployments,
            nodes: watch_nodes(context, pods.clone(), renewals.clone()),
            renewals,
            pods,
            children: Arc::default(),
        };
        let always = ChildKind::ALL.into_iter();
        let is_watched =
            |kind: &ChildKind| !matches!(kind, ChildKind::ServiceMonitor | ChildKind::PodsService);
        for kind in always.filter(is_watched) {
            watches.add(context, kind);
        }
        watches
    }

    /// Starts the watch of another kind of children.
    pub(crate) fn add(&self, context: &ControllerContext, kind: ChildKind) {
        let watch = watch_children(context, kind);
        let mut children = self
            .children
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        children.insert(kind, watch);
    }

    /// Whether children of this kind are watched.
    pub(crate) fn has(&self, kind: ChildKind) -> bool {
        self.of(kind).is_some()
    }

    fn of(&self, kind: ChildKind) -> Option<Watch<WatchedChild>> {
        let children = self.children.read().unwrap_or_else(PoisonError::into_inner);
        // A single watch covers both kinds of Services.
        let watched = match kind {
            ChildKind::PodsService => ChildKind::Service,
            kind => kind,
        };
        children.get(&watched).cloned()
    }

    pub(crate) fn child(&self, kind: ChildKind, key: &ObjectKey) -> Option<Arc<WatchedChild>> {
        let name = kind.name_of(&key.name);
        self.of(kind)?.get(&ObjectKey::new(&key.namespace, name))
    }

    /// The Deployment of the pods of every InferenceDeployment.
    pub(crate) fn pod_deployments(&self) -> impl Iterator<Item = (ObjectKey, LiveObject)> {
        let all = self.of(ChildKind::Deployment);
        let all = all.map(|watch| watch.select(|_| true)).unwrap_or_default();
        let all = all.into_iter();
        all.filter_map(|child| {
            Some((
                child.owner.clone()?,
                child_from_cache(ChildKind::Deployment, &child),
            ))
        })
    }

    /// Waits until every kind was listed once.
    pub(crate) async fn synced(&self) {
        self.deployments.synced().await;
        self.pods.synced().await;
        self.nodes.synced().await;
        self.namespaces.synced().await;
        for kind in ChildKind::ALL {
            if let Some(watch) = self.of(kind) {
                watch.synced().await;
            }
        }
    }
}

fn watch_deployments(context: &ControllerContext) -> Watch<InferenceDeployment> {
    let mut options = WatchOptions::new("deployments", deployments_kind());
    options.scope = context.scope.clone();
    options.trim = |deployment: &mut InferenceDeployment| {
        let annotations = deployment.metadata.annotations.take();
        deployment.metadata.annotations = annotations.and_then(only_server_image);
    };
    let (queue, events) = (context.queue.clone(), context.events.clone());
    watch(context, options, move |change| match change {
        ObjectChange::Applied { new: object, .. } | ObjectChange::Deleted(object) => {
            let key = ObjectKey::of(&*object);
            // The deployment whose headless Service would have this name.
            if let Some(name) = key.name.strip_suffix(PODS_SUFFIX) {
                queue.add(ObjectKey::new(&key.namespace, name));
            }
            queue.add(key);
        }
        ObjectChange::Malformed(malformed) => record_malformed(&events, malformed),
    })
}

/// Drops all annotations except the one that is used.
fn only_server_image(mut annotations: Annotations) -> Option<Annotations> {
    let (name, value) = annotations.remove_entry(SERVER_IMAGE_ANNOTATION)?;
    Some(BTreeMap::from([(name, value)]))
}

/// Watches namespaces for their annotation, whose change affects all deployments in the namespace.
fn watch_namespaces(
    context: &ControllerContext,
    deployments: Watch<InferenceDeployment>,
) -> Watch<Namespace> {
    let kind = ApiResource::erase::<Namespace>(&());
    let mut options = WatchOptions::new("namespaces", kind);
    options.trim = |namespace: &mut Namespace| {
        let mut metadata = std::mem::take(&mut namespace.metadata);
        let annotations = metadata.annotations.take().and_then(only_server_image);
        *namespace = Namespace::default();
        namespace.metadata = ObjectMeta {
            annotations,
            ..identity(metadata)
        };
    };
    let queue = context.queue.clone();
    watch(context, options, move |change| {
        let ObjectChange::Applied { old, new } = change else {
            return;
        };
        let before = old.and_then(|old| old.metadata.annotations.clone());
        if before == new.metadata.annotations {
            return;
        }
        let affected = deployments.select(|d| d.metadata.namespace == new.metadata.name);
        affected.iter().for_each(|d| queue.add(ObjectKey::of(&**d)));
    })
}

fn record_malformed(events: &EventRecorder, malformed: Malformed) {
    let name = malformed.regarding.name.as_deref().unwrap_or_default();
    let error = malformed.error.as_str();
    tracing::warn!(
        name,
        error,
        "a deployment is malformed; its pods stay unchanged"
    );
    let note = format!("cannot be read: {error}; its pods stay unchanged until it is corrected");
    let event = EventDraft::warning("Malformed", "Read", note);
    events.record(event.regarding(malformed.regarding));
}

fn watch_children(context: &ControllerContext, kind: ChildKind) -> Watch<WatchedChild> {
    let mut options = WatchOptions::new(kind.plural(), child_kind(kind));
    options.scope = context.scope.clone();
    options.labels = DEPLOYMENT_LABEL.to_owned();
    let (queue, records) = (context.queue.clone(), context.records.clone());
    watch(context, options, move |change| match change {
        ObjectChange::Applied { new, .. } => {
            let owner = new.owner.clone().into_iter();
            owner.for_each(|key| queue.add_after(key, COALESCE_DELAY));
        }
        ObjectChange::Deleted(old) => {
            let name = old.name_any();
            // Its name may be that of the headless Service of its own or of another deployment.
            let is_service = kind == ChildKind::Service;
            let waiting = name.strip_suffix(PODS_SUFFIX).filter(|_| is_service);
            if let Some(waiting) = waiting {
                let namespace = old.namespace().unwrap_or_default();
                queue.add(ObjectKey::new(&namespace, &name));
                let key = ObjectKey::new(namespace, waiting);
                records.remove_child(&key, ChildKind::PodsService);
                queue.add(key);
            }
            if let Some(key) = old.owner.clone() {
                let is_other = is_service && name != key.name;
                let kind = if is_other {
                    ChildKind::PodsService
                } else {
                    kind
                };
                records.remove_child(&key, kind);
                queue.add(key);
            }
        }
        ObjectChange::Malformed(_) => {}
    })
}

fn watch_pods(context: &ControllerContext) -> Watch<WatchedPod> {
    let mut options = WatchOptions::new("pods", ApiResource::erase::<Pod>(&()));
    options.scope = context.scope.clone();
    options.labels = DEPLOYMENT_LABEL.to_owned();
    options.index_keys = |pod: &WatchedPod| {
        let node = pod.facts.node.as_deref().map(node_key);
        pod.facts.owner.iter().cloned().chain(node).collect()
    };
    let (queue, states) = (context.queue.clone(), context.states.clone());
    watch(context, options, move |change| {
        let pod = match change {
            ObjectChange::Applied { old, new } => {
                states.set_address(ObjectKey::of(&*new), new.facts.address);
                if old.is_some_and(|old| old.facts == new.facts) {
                    return;
                }
                new
            }
            ObjectChange::Deleted(old) => {
                states.set_address(ObjectKey::of(&*old), None);
                old
            }
            ObjectChange::Malformed(malformed) => {
                let name = |field: &Option<String>| field.clone().unwrap_or_default();
                let ObjectReference {
                    namespace,
                    name: of,
                    ..
                } = &malformed.regarding;
                states.set_address(ObjectKey::new(name(namespace), name(of)), None);
                return;
            }
        };
        if let Some(key) = pod.facts.owner.clone() {
            queue.add_after(key, COALESCE_DELAY);
        }
    })
}

/// Index key of the pods of a node; the index key of a deployment has a namespace.
fn node_key(node: &str) -> ObjectKey {
    ObjectKey::new("", node)
}

fn watch_nodes(
    context: &ControllerContext,
    pods: Watch<WatchedPod>,
    renewals: Renewals,
) -> Watch<NodePlacement> {
    let options = WatchOptions::new("placements", ApiResource::erase::<NodePlacement>(&()));
    let queue = context.queue.clone();
    watch(context, options, move |change| {
        match &change {
            ObjectChange::Applied { new, .. } => {
                let (name, status) = (new.name_any(), new.status.as_ref());
                let reported = status.and_then(|s| s.last_verification_time.as_ref());
                if renewals.record(&name, reported, Instant::now()) {
                    add_pods_of_node(&queue, &pods, &name);
                }
            }
            ObjectChange::Deleted(old) => renewals.remove(&old.name_any()),
            ObjectChange::Malformed(_) => {}
        }
        let (old, new) = match &change {
            ObjectChange::Applied { old, new } => (old.as_ref(), Some(new)),
            ObjectChange::Deleted(old) => (Some(old), None),
            ObjectChange::Malformed(_) => return,
        };
        let Some(name) = new.or(old).map(|node| node.name_any()) else {
            return;
        };
        let (old, new) = (entries(old), entries(new));
        for entry in difference(old, new).chain(difference(new, old)) {
            let key = entry
                .pod
                .split_once('/')
                .map(|(namespace, name)| ObjectKey::new(namespace, name));
            let pod = key.and_then(|key| pods.get(&key));
            // Pods whose name was too long for the report are identified by uid.
            let of_node = || pods.by_index(&node_key(&name)).into_iter();
            let pod = pod.or_else(|| of_node().find(|pod| pod.has_entry(entry)));
            if let Some(key) = pod.and_then(|pod| pod.facts.owner.clone()) {
                queue.add_after(key, COALESCE_DELAY);
            }
        }
    })
}

/// Queues the deployments with pods on a node.
fn add_pods_of_node(queue: &WorkQueue<ObjectKey>, pods: &Watch<WatchedPod>, node: &str) {
    let pods = pods.by_index(&node_key(node));
    for key in pods.iter().filter_map(|pod| pod.facts.owner.clone()) {
        queue.add_after(key, COALESCE_DELAY);
    }
}

/// Queues the deployments whose placement becomes unknown because an agent is silent, as no watch
/// event reports a missing renewal. Runs until the program stops.
pub(crate) async fn watch_silent_nodes(watches: Watches, queue: WorkQueue<ObjectKey>) {
    // bound: one turn for each node that may become silent; a node recorded during a turn cannot
    // become silent before the turn ends.
    loop {
        let now = Instant::now();
        let (silent, next) = watches.renewals.expire(now);
        for node in silent {
            tracing::warn!(node, "the agent of this node is silent");
            add_pods_of_node(&queue, &watches.pods, &node);
        }
        let pause = next.map_or(SILENCE_TIME_MAX, |at| at.saturating_duration_since(now));
        tokio::time::sleep(pause.min(SILENCE_TIME_MAX)).await;
    }
}

fn watch<K>(
    context: &ControllerContext,
    options: WatchOptions<K>,
    on_change: impl Fn(ObjectChange<K>) + Send + Sync + 'static,
) -> Watch<K>
where
    K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync + 'static,
{
    context
        .cluster
        .watch(options, &context.gates, &context.shutdown, on_change)
}

/// The entries of a report; empty without a report.
fn entries(node: Option<&Arc<NodePlacement>>) -> &[PodPlacement] {
    let status = node.and_then(|node| node.status.as_ref());
    status.map(|status| &*status.pods).unwrap_or_default()
}

/// The placements in `a` that are not in `b`.
fn difference<'a>(
    a: &'a [PodPlacement],
    b: &'a [PodPlacement],
) -> impl Iterator<Item = &'a PodPlacement> {
    a.iter().filter(|pod| !b.contains(pod))
}

/// Reduces metadata to name, namespace, uid and resource version, which the watches need.
pub(crate) fn identity(metadata: ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        ..ObjectMeta::default()
    }
}

/// The deployment in an object's label.
pub(crate) fn owner(object: &impl ResourceExt) -> Option<ObjectKey> {
    let name = object.labels().get(DEPLOYMENT_LABEL)?;
    Some(ObjectKey::new(object.namespace().unwrap_or_default(), name))
}
