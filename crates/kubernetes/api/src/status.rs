//! The status of an `InferenceDeployment`: how to call the models, and whether the placement is
//! verified. Written by the controller only.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What was observed last.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InferenceDeploymentStatus {
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, Available, Progressing, ModelLoaded, Placed and SLOMet; Reconciling, Stalled,
    /// StandbyMissing, UpgradePending and WorkersRespawning only while true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Pods that exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Ready pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// Label selector of the pods, for autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Ready pods / desired pods: `2/2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// Workers per pod x threads per worker: `4x4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// Threads verified on their planned cpu, of all threads: `32/32`. `?` while an agent that
    /// should verify them does not report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<String>,
    /// Worker processes of all pods, as reported by pods and nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<WorkerCounts>,
    /// The models of the built-in server, in the order of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub models: Vec<ModelStatus>,
    /// Image of the container `server` in the pod template in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_image: Option<String>,
    /// URL for requests over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Address for requests over gRPC, `host:port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc_url: Option<String>,
    /// Replies within the objective, per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput: Option<String>,
    /// 99th percentile of the time from arrival to reply.
    #[serde(
        default,
        rename = "latencyP99",
        skip_serializing_if = "Option::is_none"
    )]
    pub latency_p99: Option<String>,
    /// Late, shed and failed requests, of all requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bad_rate: Option<String>,
    /// Basis of autoscaling: pods needed for the current load, divided by existing pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_factor: Option<String>,
    /// How busy the servers are, the busiest pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<Utilization>,
    /// Which pods get requests, with `batching.prefer: IdleWorkers`; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<TrafficStatus>,
}

/// The fewest pods that hold the objective get requests; further ones are ready and spare.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrafficStatus {
    /// Pods that get requests / ready pods: `2/3`.
    pub serving: String,
    /// Why so many.
    pub reason: String,
}

/// Share of the time in which the parts of a server work.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Utilization {
    /// The busiest thread of the front end, in the last seconds: `97%`.
    pub front: String,
    /// All workers, in the last minute: `40%`.
    pub workers: String,
    /// What limits the server: `Front` or `Workers`; absent while neither does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<ServerLimit>,
}

/// A part of a server that works nearly all the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub enum ServerLimit {
    /// The threads that read requests and write replies.
    Front,
    /// The workers that compute.
    Workers,
}

/// Worker processes of all pods.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerCounts {
    /// Pods that exist x workers per pod.
    pub wanted: i32,
    /// Alive, as reported by their pods.
    pub live: i32,
    /// With a cpu planned for each thread, as reported by their nodes.
    pub placed: i32,
    /// With each thread read back on its planned cpu, as reported by their nodes.
    pub verified: i32,
    /// Worker processes that ended and were replaced, in the pods that exist, since their servers
    /// started.
    #[serde(default)]
    pub respawns: i64,
    /// Pod and cause of a worker that ended recently, as reported by its built-in server, or by its
    /// node for a server of the user's own. Absent if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_cause: Option<String>,
}

/// A model, as the pods report it.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelStatus {
    /// Its name in the spec.
    pub name: String,
    /// Pods that have loaded the version in the spec / desired pods: `2/2`.
    pub loaded: String,
    /// SHA-256 of the file in force, if it is the same in all pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Why a pod could not load it, and which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its replies within the objective, per second. This and the following are of the last minute,
    /// over all pods; absent while no server reports them by model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput: Option<String>,
    /// 99th percentile of the time from arrival to reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<String>,
    /// Late, shed and failed requests, of all its requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bad_rate: Option<String>,
    /// Whether no more requests were bad than the objective allows, of all and of each kind of
    /// output. Absent without an objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo_met: Option<bool>,
    /// What a batch costs, learned from batches served; the median over pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["kind"]))]
    pub latency: Vec<LatencyModel>,
    /// What batching policy Auto chose; absent under another policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["kind"]))]
    pub batching: Vec<BatchingStatus>,
}

/// Whether batches of a kind are deferred.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchingStatus {
    /// What is computed: value, contribs or interactions.
    pub kind: String,
    /// Pods that defer / pods that report it: `0/2`.
    pub deferred: String,
    /// The choice of one pod and why, with what deferring gains and costs there.
    pub reason: String,
}

/// A batch of b rows takes `perRow` x b + `perBatch`.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LatencyModel {
    /// What is computed: value, margin, contribs, interactions or leaf.
    pub kind: String,
    /// alpha, as in `1.8us`.
    pub per_row: String,
    /// beta, as in `45us`.
    pub per_batch: String,
}
