//! The status of an `InferenceDeployment`: how to call the models, and whether the placement is
//! verified. Written by the controller only.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State observed last.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InferenceDeploymentStatus {
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, Available, Progressing, ModelLoaded, Placed and SLOMet; Reconciling, Stalled,
    /// StandbyMissing, UpgradePending and WorkersRespawning exist only while true.
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
    /// Threads verified on their planned CPU, of all threads: `32/32`. `?` while an agent that
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
    /// Basis of autoscaling: pods required for the current load, divided by existing pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_factor: Option<String>,
    /// Utilization of the servers, in the busiest pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<Utilization>,
    /// Pods that get requests, with `batching.prefer: IdleWorkers`; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<TrafficStatus>,
}

/// The fewest pods that can meet the objective get requests; the others are ready and spare.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrafficStatus {
    /// Pods that get requests / ready pods: `2/3`.
    pub serving: String,
    /// Reason for this number.
    pub reason: String,
}

/// Share of the time in which the parts of a server are busy.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Utilization {
    /// The busiest front-end thread, in the last seconds: `97%`.
    pub front: String,
    /// All workers, in the last minute: `40%`.
    pub workers: String,
    /// Bottleneck of the server: `Front` or `Workers`; absent while neither is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<ServerLimit>,
}

/// A part of a server that is busy nearly all the time.
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
    /// Existing pods x workers per pod.
    pub wanted: i32,
    /// Workers alive, as reported by their pods.
    pub live: i32,
    /// Workers with a planned CPU for each thread, as reported by their nodes.
    pub placed: i32,
    /// Workers with each thread verified on its planned CPU, as reported by their nodes.
    pub verified: i32,
    /// Worker processes that ended and were replaced, in existing pods, since their servers
    /// started.
    #[serde(default)]
    pub respawns: i64,
    /// Pod and cause of a worker that ended recently, as reported by its built-in server, or by its
    /// node for your own server. Absent if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_cause: Option<String>,
}

/// State of a model, as reported by the pods.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelStatus {
    /// Name of the model in the spec.
    pub name: String,
    /// Pods that have loaded the version in the spec / desired pods: `2/2`.
    pub loaded: String,
    /// SHA-256 of the loaded file, if it is the same in all pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Pod that could not load it, and the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Replies within the objective, per second. This and the following fields cover the last
    /// minute, over all pods; absent while no server reports them by model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput: Option<String>,
    /// 99th percentile of the time from arrival to reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<String>,
    /// Late, shed and failed requests, of all requests of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bad_rate: Option<String>,
    /// Whether the share of bad requests is within the objective, overall and for each kind of
    /// output. Absent without an objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo_met: Option<bool>,
    /// Cost of a batch, learned from served batches; the median over pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["kind"]))]
    pub latency: Vec<LatencyModel>,
    /// Choice of batching policy Auto; absent with another policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["kind"]))]
    pub batching: Vec<BatchingStatus>,
}

/// Whether batches of a kind are deferred.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchingStatus {
    /// Kind of output: value, contribs or interactions.
    pub kind: String,
    /// Pods that defer / pods that report it: `0/2`.
    pub deferred: String,
    /// Choice of one pod and its reason, with the gain and cost of deferring there.
    pub reason: String,
}

/// A batch of b rows takes `perRow` x b + `perBatch`.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LatencyModel {
    /// Kind of output: value, margin, contribs, interactions or leaf.
    pub kind: String,
    /// Cost of a row (alpha), as in `1.8us`.
    pub per_row: String,
    /// Fixed cost of a batch (beta), as in `45us`.
    pub per_batch: String,
}
