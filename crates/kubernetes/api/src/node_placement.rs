//! The `NodePlacement`: the plans, verified threads and drifts of one node. One object per node,
//! with the name of the node, written only by the agent of that node.
//!
//! It has no spec, because there is no desired state. 20 pods must fit into 4 KiB in addition to
//! the short texts from which plans are computed (at most 1 KiB of the node's topology, 3 KiB of
//! mappings). Therefore an entry contains counts and hashes; `albacore-agent dump` shows the rest.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use kube::Resource;
use kube::core::schema::StructuralSchemaRewriter;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::deployment::PlacementMode;
use crate::limits::{NODE_PODS_MAX, TOPOLOGY_BYTES_MAX};

/// What the agent of a node planned, verified and saw drift.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePlacement {
    /// `albacore.dev/v1alpha1`.
    #[serde(default = "api_version")]
    pub api_version: String,
    /// `NodePlacement`.
    #[serde(default = "kind")]
    pub kind: String,
    /// The name is that of the node.
    pub metadata: ObjectMeta,
    /// What was observed last; `None` before the agent's first report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<NodePlacementStatus>,
}

fn api_version() -> String {
    "albacore.dev/v1alpha1".to_owned()
}

fn kind() -> String {
    "NodePlacement".to_owned()
}

/// State observed last by the agent.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePlacementStatus {
    /// Enforcing: whether masks are written. MasksRemembered: whether the kernel restores them
    /// after a change of a cpuset. Degraded, Throttled, CpusetEmpty and TopologyOmitted exist only
    /// while true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// When the agent last read back all masks of this node, by the node's clock. Renewed every 30
    /// to 40 s; without a renewal for 60 s, the state of the pods is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_verification_time: Option<Time>,
    /// Hash of the CPUs, cores and caches that plans are made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// These CPUs, cores and caches, and the distances between them if the node has its own, as in
    /// `cpus=0-31 core=0-15x2 l3=0-1*8x2 numa=0*32`: the domain of each CPU at each level; an
    /// omitted level has the domains of the previous one. Absent with condition TopologyOmitted.
    /// Used by `kubectl albacore plan`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = TOPOLOGY_BYTES_MAX))]
    pub cpu_topology: Option<String>,
    /// CPUs of fixed threads that plans avoid: threads with a single CPU, of pods that the solver
    /// does not place. As in `3*2,7`: two on CPU 3, one on CPU 7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed_threads: Option<String>,
    /// Threads with a planned CPU, in all pods.
    #[serde(default)]
    pub planned: i32,
    /// Threads verified on their planned CPU, in all pods.
    #[serde(default)]
    pub verified: i32,
    /// Masks found to differ from the plan, since the agent started.
    #[serde(default)]
    pub drifts: i64,
    /// Histogram of the time from the start of a thread to its verified mask, since the agent
    /// started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub births: Vec<SpawnBucket>,
    /// The pods of this node that opted in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = NODE_PODS_MAX))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["pod"]))]
    pub pods: Vec<PodPlacement>,
}

/// A bucket of a histogram: threads by the time from their start to their verified mask.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpawnBucket {
    /// Upper bound in milliseconds; absent for the last bucket, which has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<i32>,
    /// Threads up to this bound and above the previous one.
    pub threads: i64,
}

/// The placement of one pod.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodPlacement {
    /// `namespace/name`; its beginning, `~` and the uid of the pod if the report would be too large
    /// otherwise.
    pub pod: String,
    /// Number of workers found.
    pub workers: i32,
    /// Workers with every thread verified on its planned CPU.
    pub workers_verified: i32,
    /// Threads with a planned CPU.
    pub planned: i32,
    /// Threads verified on their planned CPU.
    pub verified: i32,
    /// The event loops of the built-in server's front end; absent for other servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub front: Option<FrontPlacement>,
    /// Threads of each worker that can run at once within the pod's CPU quota, if fewer than
    /// `spec.threads`: these are placed, the others share the CPUs of their worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_threads: Option<i32>,
    /// Worker threads that run or wait for a CPU for at least half of the time; a thread is counted
    /// until this falls to a quarter. Changes at most every ten minutes; absent until measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot_threads: Option<i32>,
    /// CPUs that the pod may use, as in `0-7,16-23`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpuset: Option<String>,
    /// Whether the pod shares its CPUs.
    #[serde(default)]
    pub isolation: Isolation,
    /// Whether the pod's threads are only observed; absent while their masks are written.
    #[serde(default, skip_serializing_if = "is_false")]
    pub observed: bool,
    /// Hash of the plan in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The plan in force; absent if the report would be too large with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapping: Option<PodMapping>,
    /// Time at which this plan became verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// The last drift, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
    /// Worker processes that replaced another one since the agent first saw the pod.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub respawns: i64,
    /// Why the pod, or a part of it, is not placed; absent if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Values of the pod's annotation `albacore.dev/place`, with detected numbers where it omits
    /// them; absent for a pod of an InferenceDeployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotation: Option<AnnotatedPod>,
    /// Result of the last trial of `spec.placement.trial`, if the pod is still placed: ratios to
    /// the placement that was kept, with intervals. Absent if the report would be too large with
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<String>,
}

/// A pod that opted in by its annotation.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnnotatedPod {
    /// The container whose processes are placed.
    pub container: String,
    /// Number of worker processes; absent until known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<i32>,
    /// Source of this number.
    #[serde(default, skip_serializing_if = "is_annotation")]
    pub workers_from: CountSource,
    /// Compute threads per worker; absent until known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<i32>,
    /// Source of this number.
    #[serde(default, skip_serializing_if = "is_annotation")]
    pub threads_from: CountSource,
    /// Whether the threads of a worker are far apart or close together.
    #[serde(default)]
    pub mode: PlacementMode,
}

/// Source of the number of workers or threads of an annotated pod.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
pub enum CountSource {
    /// The annotation.
    #[default]
    Annotation,
    /// `OMP_NUM_THREADS` of the container.
    Environment,
    /// The processes and threads found.
    ProcessTree,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_annotation(source: &CountSource) -> bool {
    *source == CountSource::Annotation
}

/// The plan in force of a pod, with the input that the agent solved it from.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodMapping {
    /// Workers and threads, and the CPU of each thread, by worker and then by rank: `2x4:0-7` has
    /// worker 0 on CPUs 0 to 3. Also `0-12/4` for 0, 4, 8, 12; `5*2` for 5, 5; `0-1x2` for 0, 1, 0,
    /// 1.
    pub cpus: String,
    /// Whether the threads of a worker are far apart or close together.
    #[serde(default)]
    pub mode: PlacementMode,
    /// Position of the pod among those planned together, from 0; absent for a pod that plans of
    /// others do not move: it is observed, or its policy is RoundRobin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<i32>,
    /// Its `spec.placement.distances`, as in `l3=60,machine=300`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distances: Option<String>,
}

/// The event loops of a pod's front end.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FrontPlacement {
    /// Event loops with a planned mask: the CPUs without a main thread of a worker, or all CPUs of
    /// the pod if these are too few.
    pub planned: i32,
    /// Event loops verified with their planned mask.
    pub verified: i32,
}

fn is_false(value: &bool) -> bool {
    !value
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_zero(count: &i64) -> bool {
    *count == 0
}

/// Separates the prefix of a pod's name from its uid; names never contain it.
const UID_MARK: char = '~';

impl PodPlacement {
    /// The name of a pod in a report: `namespace/name`, or a prefix that fits into `bytes` together
    /// with the uid. The API server assigns uids, so a user cannot choose a name that looks like
    /// that of another pod.
    pub fn short_name(namespace: &str, name: &str, uid: &str, bytes: usize) -> String {
        let whole = format!("{namespace}/{name}");
        if whole.len() <= bytes {
            return whole;
        }
        let room = bytes.saturating_sub(UID_MARK.len_utf8() + uid.len());
        let fits = |&(at, c): &(usize, char)| at + c.len_utf8() <= room;
        let begin: String = whole.char_indices().take_while(fits).map(|c| c.1).collect();
        format!("{begin}{UID_MARK}{uid}")
    }

    /// Whether this entry belongs to the given pod.
    pub fn is_of(&self, namespace: &str, name: &str, uid: &str) -> bool {
        match self.pod.split_once(UID_MARK) {
            Some((_, reported)) => reported == uid,
            None => self.pod.split_once('/') == Some((namespace, name)),
        }
    }

    /// Threads that should be pinned to one CPU each, of the W x T threads of the spec.
    pub fn slots(&self, workers: u16, threads: u16) -> i32 {
        let each = i32::from(threads);
        i32::from(workers)
            * self
                .quota_threads
                .map_or(each, |quota| quota.clamp(0, each))
    }
}

/// Masks found to differ from the plan.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Drift {
    /// Number of drifts since the agent first saw the pod.
    pub count: i64,
    /// Cause of the last drift.
    pub cause: DriftCause,
}

/// Why a mask that was as planned has changed. Masks of new threads and of new plans are not drift.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
pub enum DriftCause {
    /// The cpuset of the container changed.
    CpusetChange,
    /// A CPU of the node went online or offline.
    Hotplug,
    /// Another program, or the process itself, wrote the mask of a thread; the kernel does not
    /// report which.
    // Written by agents of version 0.1.
    #[serde(alias = "SelfPin")]
    ForeignWrite,
    /// No other cause explains it.
    #[default]
    Unknown,
}

impl DriftCause {
    /// Every cause.
    pub const ALL: [Self; 4] = [
        Self::CpusetChange,
        Self::Hotplug,
        Self::ForeignWrite,
        Self::Unknown,
    ];

    /// The name of the cause in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CpusetChange => "CpusetChange",
            Self::Hotplug => "Hotplug",
            Self::ForeignWrite => "ForeignWrite",
            Self::Unknown => "Unknown",
        }
    }
}

/// Whether a pod shares its CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
pub enum Isolation {
    /// Shared with everything on the node: other processes may run on the CPUs of pinned threads.
    #[default]
    None,
    /// Shared with the other pods of the kubelet's shared pool.
    SharedPool,
    /// Not shared: assigned to this pod only by the kubelet's static policy.
    Exclusive,
}

impl Resource for NodePlacement {
    type DynamicType = ();
    type Scope = k8s_openapi::ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "NodePlacement".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "albacore.dev".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1alpha1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "nodeplacements".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

const ABOUT: &str = "Thread placement on one node: planned and verified masks, and drift. Named \
                     like the node; written only by its Albacore agent.";

/// The CustomResourceDefinition in the form that the derive macro would generate if it supported
/// kinds without a spec.
pub(crate) fn definition() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let generator = settings.with_transform(StructuralSchemaRewriter);
    let mut status = generator
        .into_generator()
        .into_root_schema_for::<NodePlacementStatus>()
        .to_value();
    status.as_object_mut().map(|status| status.remove("title"));
    let column = |name: &str, kind: &str, path: &str, text: &str| json!({"name": name, "type": kind, "jsonPath": path, "description": text});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "nodeplacements.albacore.dev"},
        "spec": {
            "group": "albacore.dev",
            "scope": "Cluster",
            "names": {
                "kind": "NodePlacement", "plural": "nodeplacements", "singular": "nodeplacement",
                "shortNames": ["npl"], "categories": ["albacore"],
            },
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    column("Planned", "integer", ".status.planned", "Threads with a planned CPU."),
                    column("Verified", "integer", ".status.verified",
                        "Threads verified on their planned CPU."),
                    column("Drifts", "integer", ".status.drifts",
                        "Masks found to differ from the plan, since the agent started."),
                    column("Last-Verified", "date", ".status.lastVerificationTime",
                        "Time since all masks were last read back; outdated above 60 s."),
                    column("Age", "date", ".metadata.creationTimestamp", "Time since creation."),
                ],
                "schema": {"openAPIV3Schema": {
                    "type": "object", "title": "NodePlacement", "description": ABOUT,
                    "properties": {"status": status},
                }},
            }],
        },
    })
}
