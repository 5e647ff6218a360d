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

use crate::deployment::Mode;
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

/// What the agent observed last.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePlacementStatus {
    /// Enforcing says whether masks are written, MasksRemembered whether the kernel restores them
    /// after a change of a cpuset. Degraded, Throttled, CpusetEmpty and TopologyOmitted exist only
    /// while true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// When the agent last read all masks of this node back, by the node's clock. Renewed every 30
    /// to 40 s while it does: without a renewal for 60 s, the state of the pods is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_verification_time: Option<Time>,
    /// Hash of the cpus, cores and caches that plans are made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// These cpus, cores and caches themselves, and the distances between them where the node knows
    /// its own, as in `cpus=0-31 core=0-15x2 l3=0-1*8x2 numa=0*32`: the domain of each cpu at each
    /// level, which is that of the level before where it is not given. Absent with condition
    /// TopologyOmitted. `kubectl albacore plan` plans for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = TOPOLOGY_BYTES_MAX))]
    pub cpu_topology: Option<String>,
    /// Cpus of threads that plans make room for: of pods that the solver does not place, where a
    /// thread has one cpu. As in `3*2,7`: two on cpu 3, one on cpu 7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed_threads: Option<String>,
    /// Threads with a planned cpu, of all pods.
    #[serde(default)]
    pub planned: i32,
    /// Threads read back on their planned cpu, of all pods.
    #[serde(default)]
    pub verified: i32,
    /// Masks found other than planned, since the agent started.
    #[serde(default)]
    pub drifts: i64,
    /// Time from the start of a thread to its verified mask, since the agent started.
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
    /// Upper end, in milliseconds; absent for the last bucket, which has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<i32>,
    /// Threads up to this end and above the one before.
    pub threads: i64,
}

/// The placement of one pod.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodPlacement {
    /// `namespace/name`; the beginning of it, `~` and the pod's uid where a report would be too
    /// large otherwise.
    pub pod: String,
    /// Workers found.
    pub workers: i32,
    /// Workers with every thread read back on its planned cpu.
    pub workers_verified: i32,
    /// Threads with a planned cpu.
    pub planned: i32,
    /// Threads read back on their planned cpu.
    pub verified: i32,
    /// The event loops of the built-in server's front end; absent for other servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub front: Option<FrontPlacement>,
    /// Threads of each worker that the pod's cpu quota lets run at once, if fewer than
    /// `spec.threads`: these are placed, the others share the cpus of their worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_threads: Option<i32>,
    /// Threads of workers that run or wait for a cpu for half of the time, or for more than a
    /// quarter since they did. Changes at most every ten minutes; absent until it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot_threads: Option<i32>,
    /// The cpus that the pod may use, as in `0-7,16-23`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpuset: Option<String>,
    /// Whether the pod shares its cpus.
    #[serde(default)]
    pub isolation: Isolation,
    /// Whether the pod's threads are only observed; absent while their masks are written.
    #[serde(default, skip_serializing_if = "is_false")]
    pub observed: bool,
    /// Hash of the plan in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The plan in force; absent where the report would be too large with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapping: Option<PodMapping>,
    /// Since when this plan is verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// The last drift, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
    /// Worker processes that replaced another one, since the agent first saw the pod.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub respawns: i64,
    /// Why the pod, or a part of it, is not placed; absent if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the pod's annotation `albacore.dev/place` asks, and what was found where it leaves
    /// numbers out; absent for a pod of an InferenceDeployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotation: Option<AnnotatedPod>,
    /// What the last trial of `spec.placement.trial` decided, if the pod is still placed: ratios to
    /// the placement that stays, with intervals. Absent where the report would be too large with
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
    /// Worker processes; absent until they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<i32>,
    /// Where that number is from.
    #[serde(default, skip_serializing_if = "is_annotation")]
    pub workers_from: CountSource,
    /// Compute threads of each worker; absent until they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<i32>,
    /// Where that number is from.
    #[serde(default, skip_serializing_if = "is_annotation")]
    pub threads_from: CountSource,
    /// Whether threads of one worker are far apart or close together.
    #[serde(default)]
    pub mode: Mode,
}

/// Where the number of workers or threads of an annotated pod is from.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
pub enum CountSource {
    /// The annotation.
    #[default]
    Annotation,
    /// `OMP_NUM_THREADS` of the container.
    Environment,
    /// The processes and threads that were found.
    ProcessTree,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_annotation(source: &CountSource) -> bool {
    *source == CountSource::Annotation
}

/// The plan in force of a pod, with what the agent solved it from.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodMapping {
    /// Workers and threads, and the cpu of each thread, worker by worker and rank by rank:
    /// `2x4:0-7` has worker 0 on cpus 0 to 3. Also `0-12/4` for 0, 4, 8, 12; `5*2` for 5, 5;
    /// `0-1x2` for 0, 1, 0, 1.
    pub cpus: String,
    /// Whether threads of one worker are far apart or close together.
    #[serde(default)]
    pub mode: Mode,
    /// Place of the pod among those that are planned together, from 0; absent for a pod that plans
    /// of others do not move: it is observed, or its policy is RoundRobin.
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
    /// Event loops with a planned mask: the cpus that carry no main thread of a worker, or all cpus
    /// of the pod where these are too few.
    pub planned: i32,
    /// Event loops read back with their planned mask.
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

/// Masks found other than planned.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Drift {
    /// How many, since the agent first saw the pod.
    pub count: i64,
    /// Cause of the last one.
    pub cause: DriftCause,
}

/// Why masks that were as planned were found otherwise. The masks of new threads and of new plans
/// are no drift.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
pub enum DriftCause {
    /// The cpuset of the container changed.
    CpusetChange,
    /// A cpu of the node went online or offline.
    Hotplug,
    /// Another program, or the process itself, wrote the mask of a thread; the kernel does not
    /// report which.
    // Written by agents of version 0.1.
    #[serde(alias = "SelfPin")]
    ForeignWrite,
    /// None of the others explains it.
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

/// Whether a pod shares its cpus.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
pub enum Isolation {
    /// With everything on the node: other processes may run on the cpus of pinned threads.
    #[default]
    None,
    /// With the other pods of the kubelet's shared pool.
    SharedPool,
    /// With no other pod: the kubelet's static policy assigned them to this pod alone.
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

const ABOUT: &str = "Thread placement on one node: planned and verified masks, and drift. Has the \
                     name of the node; written by its Albacore agent alone.";

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
                    column("Planned", "integer", ".status.planned", "Threads with a planned cpu."),
                    column("Verified", "integer", ".status.verified",
                        "Threads read back on their planned cpu."),
                    column("Drifts", "integer", ".status.drifts",
                        "Masks found other than planned, since the agent started."),
                    column("Last-Verified", "date", ".status.lastVerificationTime",
                        "Time since all masks were last read back; above 60 s it is out of date."),
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
