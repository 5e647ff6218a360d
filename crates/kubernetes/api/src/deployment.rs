//! The `InferenceDeployment`, which users write. Doc comments on fields are shown by `kubectl
//! explain`.
//!
//! The types only mirror the wire format: constraints between fields are in [`crate::rules`], the
//! interpretation on one machine is in [`crate::for_one_machine`].
// Each printer column repeats the keys `name`, `json_path`...: the lint reports them as duplicates.
#![allow(clippy::duplicated_attributes)]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodTemplateSpec, ResourceRequirements};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::categories;
use crate::iterations::{self, IterationsSpec};
use crate::limits;
use crate::missing_columns::MissingColumns;
use crate::model_batching::ModelBatchingSpec;
use crate::model_threads::{self, ModelThreads};
use crate::output::OutputSpec;
use crate::status::InferenceDeploymentStatus;
use crate::timespan::Timespan;
use crate::uri::ModelUri;

/// Models to serve, number of workers and threads, placement of the threads and batching of
/// requests. Only `models` (or a `template` with your own server) is required.
#[derive(CustomResource, Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "albacore.dev",
    version = "v1alpha1",
    kind = "InferenceDeployment",
    namespaced,
    shortname = "infd",
    category = "all",
    category = "albacore",
    status = "InferenceDeploymentStatus",
    derive = "PartialEq",
    doc = "CPU inference service: pods that serve a model with W workers of T threads each, every \
           thread pinned to the CPU chosen by the planner.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.ready",
        description = "Ready pods / desired pods."
    ),
    printcolumn(
        name = "Model",
        type_ = "string",
        json_path = ".spec.models[0].name",
        description = "The first model."
    ),
    printcolumn(
        name = "Mode",
        type_ = "string",
        json_path = ".spec.mode",
        description = "Relative placement of the threads of a worker."
    ),
    printcolumn(
        name = "WxT",
        type_ = "string",
        json_path = ".status.shape",
        description = "Workers per pod x threads per worker."
    ),
    printcolumn(
        name = "SLO",
        type_ = "string",
        json_path = ".spec.models[0].slo.latency",
        description = "Latency objective of the first model."
    ),
    printcolumn(
        name = "Pinned",
        type_ = "string",
        json_path = ".status.pinned",
        description = "Threads verified on their planned CPU, of all threads."
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since creation."
    ),
    printcolumn(
        name = "Goodput",
        type_ = "string",
        json_path = ".status.goodput",
        priority = 1,
        description = "Replies within the objective, per second."
    ),
    printcolumn(
        name = "P99",
        type_ = "string",
        json_path = ".status.latencyP99",
        priority = 1,
        description = "99th percentile of the time from arrival to reply."
    ),
    printcolumn(
        name = "BadRate",
        type_ = "string",
        json_path = ".status.badRate",
        priority = 1,
        description = "Late, shed and failed requests, of all requests."
    ),
    printcolumn(
        name = "URL",
        type_ = "string",
        json_path = ".status.url",
        priority = 1,
        description = "URL for requests over HTTP."
    )
)]
#[serde(rename_all = "camelCase")]
pub struct InferenceDeploymentSpec {
    /// Number of pods. Omit it if an autoscaler (an HPA, KEDA or `autoscaling` below) sets it:
    /// applying a manifest without it keeps the autoscaler's number.
    // The API server sets the default, because the scale subresource of an object without the field
    // is an error for an HPA.
    #[serde(default = "replicas_default", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = limits::REPLICAS_MAX))]
    pub replicas: Option<i32>,

    /// W: serving processes per pod. Many workers with few threads suit many small requests; few
    /// workers with many threads suit few large ones. workers x threads is at most 2048.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = limits::WORKERS_MAX))]
    pub workers: u16,

    /// T: compute threads per worker, including its main thread.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = limits::THREADS_MAX))]
    pub threads: u16,

    /// Relative placement of the threads of a worker. Main threads always run as far apart as
    /// possible. Which mode is faster depends on model, batches and machine; `albacore experiment`
    /// measures it.
    #[serde(default)]
    pub mode: PlacementMode,

    /// Placement of threads on CPUs, and whether it is enforced.
    #[serde(default)]
    pub placement: PlacementSpec,

    /// Tree models (XGBoost, LightGBM) for the built-in server. Omit it to run your own server from
    /// `template`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limits::MODELS_MAX))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub models: Vec<ModelSpec>,

    /// When queued rows are dispatched to a worker. Built-in server only.
    #[serde(default)]
    pub batching: Batching,

    /// Limit on queued rows. Built-in server only.
    #[serde(default)]
    pub queue: Queue,

    /// The threads that receive requests and send replies. Built-in server only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub front: Option<Front>,

    /// Scales the number of pods with the load: up while requests are late or rejected, down while
    /// workers are idle. Omit it to use an HPA or KEDA through the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaling: Option<Autoscaling>,

    /// Requests and limits of the server container, as in a Pod. To get exclusive CPUs on a node
    /// whose CPU manager policy is static, specify at least workers x threads CPUs, as a whole
    /// number with requests equal to limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,

    /// Pod template merged into the one that Albacore builds, field by field, containers by name;
    /// see `kubectl explain pod.spec`. With a container named `server` and without `models`, any
    /// pre-fork server (such as gunicorn with XGBoost) is run and placed instead of the built-in
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<PodTemplateSpec>,
}

#[allow(
    clippy::unnecessary_wraps,
    reason = "serde wants the type of the field"
)]
fn replicas_default() -> Option<i32> {
    Some(one_replica())
}

fn one() -> u16 {
    1
}

/// Relative placement of the threads of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
pub enum PlacementMode {
    /// Far apart: each thread gets the most cache. For large models and large batches.
    #[default]
    Scatter,
    /// Close together: threads share caches. For small models and small batches.
    Compact,
}

/// Placement of threads on CPUs, and whether it is enforced.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacementSpec {
    /// Policy that assigns threads to CPUs.
    #[serde(default)]
    pub policy: PlacementPolicy,
    /// Whether affinity masks are written, or only planned and compared.
    #[serde(default)]
    pub enforcement: EnforcementPolicy,
    /// CPUs that the main thread of a worker may run on.
    #[serde(default)]
    pub main_thread: MainThreadPolicy,
    /// Distances between CPUs that the planner uses. Default: those measured on the node, or
    /// derived from its topology. Deployments on one node are planned together: if their distances
    /// differ, those of the node apply to all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distances: Option<LevelDistances>,
    /// Compare placements on the live pod, window by window, and keep the best: the deployment's
    /// own unless another is better, the kernel's if none is better than that. Each pod runs its
    /// own trial under its load, and repeats it when the deployment or the load changes. Your own
    /// servers are compared by the time that their threads wait for a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
}

/// Distances by the closest level that two CPUs share, in clock cycles. An omitted level keeps the
/// node's own distance, adjusted where the order of the levels requires it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LevelDistances {
    /// Two hardware threads of one core. Default: 4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = limits::DISTANCE_MAX))]
    pub l1: Option<u32>,
    /// Two cores that share an L2. Default: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = limits::DISTANCE_MAX))]
    pub l2: Option<u32>,
    /// Two cores that share an L3. Default: 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = limits::DISTANCE_MAX))]
    pub l3: Option<u32>,
    /// Two L3 caches of one NUMA node. Default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = limits::DISTANCE_MAX))]
    pub numa: Option<u32>,
    /// Two NUMA nodes of one package. Default: 100 times their distance in the firmware's table
    /// relative to the local one; 200 without a table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = limits::DISTANCE_MAX))]
    pub package: Option<u32>,
    /// Two packages. Default: as for `package`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = limits::DISTANCE_MAX))]
    pub machine: Option<u32>,
}

/// A trial: rounds with one window per placement, in varying order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Trial {
    /// Length of a window: a whole number of ms or s, as in `10s`, at least 1s. It should cover
    /// several hundred requests.
    #[serde(default = "ten_seconds")]
    pub window: Timespan,
    /// Maximum number of rounds. Placements are compared after half, three quarters and all of
    /// them; one that is behind the best by more than the noise gets no further windows.
    #[serde(default = "eight")]
    #[schemars(range(min = limits::TRIAL_ROUNDS_MIN, max = limits::TRIAL_ROUNDS_MAX))]
    pub windows: u16,
    /// Placements to compare with the deployment's own. Default: all. Without None the pod is
    /// placed regardless of the result.
    #[serde(default = "all_arms")]
    #[schemars(length(min = limits::TRIAL_ARMS_MIN, max = limits::TRIAL_ARMS_MAX))]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub arms: Vec<TrialArm>,
}

impl Default for Trial {
    fn default() -> Self {
        Self {
            window: ten_seconds(),
            windows: eight(),
            arms: all_arms(),
        }
    }
}

/// A placement that a trial compares with others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub enum TrialArm {
    /// Policy Tuna with mode Scatter.
    Scatter,
    /// Policy Tuna with mode Compact.
    Compact,
    /// Policy RoundRobin.
    RoundRobin,
    /// The kernel schedules the threads.
    None,
}

fn all_arms() -> Vec<TrialArm> {
    use TrialArm::{Compact, None, RoundRobin, Scatter};
    vec![Scatter, Compact, RoundRobin, None]
}

fn ten_seconds() -> Timespan {
    Timespan::TEN_SECONDS
}

fn eight() -> u16 {
    limits::TRIAL_ROUNDS_MIN
}

/// Policy that assigns threads to CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
pub enum PlacementPolicy {
    /// The best mapping found for workers, threads and mode on the CPUs of the pod, with a proven
    /// bound.
    #[default]
    Tuna,
    /// Threads are assigned to CPUs in order; a baseline for comparison.
    RoundRobin,
    /// The kernel schedules the threads; nothing is planned or written.
    None,
}

/// Whether affinity masks are written, or only planned and compared.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
pub enum EnforcementPolicy {
    /// Masks are written, verified, and rewritten when they drift.
    #[default]
    Enforce,
    /// No mask is written; the plan is only compared with the actual masks. Masks written before
    /// are reset once, when this takes effect.
    Observe,
}

/// CPUs that the main thread of a worker may run on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
pub enum MainThreadPolicy {
    /// Its one planned CPU, like every other thread.
    #[default]
    Pinned,
    /// All CPUs planned for its worker: for servers whose main thread does more than compute.
    WorkerSet,
}

/// A model that the built-in server loads.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelSpec {
    /// Name of the model in request paths (`/v2/models/NAME/infer`) and metrics.
    #[schemars(length(max = limits::MODEL_NAME_CHARS_MAX), regex(pattern = MODEL_NAME_PATTERN))]
    pub name: String,
    /// Location of the model file: `file:///path` (in the container), `file://./path` (relative to
    /// the YAML file; `albacore run` only), `pvc://claim/path`, `configmap://name/key`,
    /// `http(s)://...`, an object: `s3://bucket/key`, `gs://bucket/key`, `az://container/key`, or
    /// an artifact: `oci://registry/repository:tag` or `oci://registry/repository@sha256:...`. With
    /// `#sha256=` and 64 hexadecimal digits appended, only a file with that checksum is loaded.
    pub uri: ModelUri,
    /// Boosting iterations to use: All, Best, or `{begin: 0, end: 100}` (`end` is exclusive).
    /// Applies to values, margins, contributions, interactions and leaves. If omitted, the model
    /// predicts like the object that saved its file: up to the best iteration if a scikit-learn
    /// class of XGBoost saved it after early stopping, else with all of them.
    ///
    /// All: every iteration of the file.
    ///
    /// Best: up to the best iteration, which XGBoost records in the file on early stopping; a file
    /// without one is rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "iterations::schema")]
    pub iterations: Option<IterationsSpec>,
    /// Latency objective that batching works towards. Without one, no reply counts as late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<SloSpec>,
    /// Outputs advertised in the model's metadata and configuration; `[output]` if the list is
    /// empty. A request can ask for every output of the model by name, advertised or not: clients
    /// that request all advertised outputs should not pay for those that they do not need.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limits::OUTPUTS_MAX), extend("x-kubernetes-list-type" = "set"))]
    pub outputs: Vec<OutputSpec>,
    /// How to handle a column that is missing from a request with named columns.
    #[serde(default)]
    pub missing: MissingColumns,
    /// Names of the model's classes, by number, one per class: `[legit, fraud]` for a binary model.
    /// Replies then have the output `label`, the name of each row's class, in addition to the
    /// value. A model without classes, or with a different number of them, is not loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limits::CLASSES_MAX), inner(length(max = limits::CLASS_CHARS_MAX)))]
    pub classes: Vec<String>,
    /// Texts of the categories of columns, by column name, in the order of the category numbers
    /// used in training, from 0: `color: [blue, green, red]`. Requests may then send these texts in
    /// the column. Replaces those of the model file. A model without a column of this name is not
    /// loaded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "categories::schema")]
    pub categories: BTreeMap<String, Vec<String>>,
    /// Maximum number of threads of a worker that compute one batch of this model: `auto`, or a
    /// number from 1 to `spec.threads`. If omitted, auto.
    ///
    /// auto: all threads of the worker, as far as busy workers leave CPUs for them.
    ///
    /// A number: at most this many of them. For a model whose batches are too short to benefit from
    /// more, or that should leave CPUs to others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "model_threads::schema")]
    pub threads: Option<ModelThreads>,
    /// Share of the server relative to the weights of the other models while requests must be
    /// rejected, like `cpu.weight` of a cgroup. What a model does not use is left to the others.
    #[serde(default = "weight_default")]
    #[schemars(range(min = 1, max = limits::WEIGHT_MAX))]
    pub weight: u16,
    /// When queued rows of the model are dispatched to a worker; omitted fields are those of
    /// `spec.batching`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batching: Option<ModelBatchingSpec>,
}

fn weight_default() -> u16 {
    limits::WEIGHT_DEFAULT
}

/// The threads that receive requests and send replies.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Front {
    /// Number of threads, each with its own connections; at most the CPUs of the server container.
    /// If omitted, the server derives it from its CPUs. A change starts new pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = limits::FRONT_THREADS_MAX))]
    pub threads: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_reports: Option<LoadReportPolicy>,
    /// Whether a stopping pod sends `x-envoy-immediate-health-check-fail` in its replies, so that
    /// an Envoy with health checks sends it no more requests. Use it only if each endpoint of Envoy
    /// is one pod: an Envoy whose endpoint is the Service would stop using all pods. A change
    /// starts new pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envoy_health_header: Option<bool>,
}

/// Which replies carry a load report (ORCA) for routers that weight pods. Default: OnRequest. A
/// change starts new pods.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub enum LoadReportPolicy {
    /// Replies to requests with the header `endpoint-load-metrics-format`.
    OnRequest,
    /// All replies.
    Always,
    /// No replies, and no streams of reports.
    Never,
}

/// The pattern of a model's name in the schema.
pub(crate) const MODEL_NAME_PATTERN: &str = "^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$";

/// Latency objective: a percentage of the replies within a time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SloSpec {
    /// Time from the arrival of a request to its reply; a whole number of us, ms or s, as in
    /// `25ms`.
    pub latency: Timespan,
    /// Percentage of the requests that must meet it.
    #[serde(default = "ninety_nine")]
    #[schemars(range(min = limits::PERCENTILE_MIN, max = limits::PERCENTILE_MAX))]
    pub percentile: f64,
    /// Same as `latency`, for requests for SHAP contributions, which cost many times as much as
    /// values. If omitted, `latency` applies to them, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contribs: Option<Timespan>,
    /// Same as `latency`, for requests for interactions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interactions: Option<Timespan>,
}

fn ninety_nine() -> f64 {
    99.0
}

/// When queued rows are dispatched to a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Batching {
    /// Dispatch policy.
    #[serde(default)]
    pub policy: BatchingPolicy,
    /// Maximum number of rows per batch.
    #[serde(default = "batch_rows_default")]
    #[schemars(range(min = 1, max = limits::BATCH_ROWS_MAX))]
    pub max_rows: u32,
    /// Maximum time that the oldest row of a batch waits for further rows; a whole number of us, ms
    /// or s, as in `2ms`. Required with policy Timeout, rejected with any other. Must be shorter
    /// than every latency objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_delay: Option<Timespan>,
    /// Preference of policy Auto when both eager and deferred dispatch can sustain the load.
    /// Default: ShortWaits. Rejected with any other policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer: Option<BatchingPreference>,
    /// Maximum time that the oldest row of a deferred batch waits for further rows; a whole number
    /// of us, ms or s, as in `5ms`. If omitted, a batch waits as long as its latency objective
    /// allows; it never waits longer than that. Rejected with policy Timeout or Eager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Timespan>,
}

impl Default for Batching {
    fn default() -> Self {
        Self {
            policy: BatchingPolicy::Auto,
            max_rows: limits::BATCH_ROWS_DEFAULT,
            max_delay: None,
            prefer: None,
            window: None,
        }
    }
}

fn batch_rows_default() -> u32 {
    limits::BATCH_ROWS_DEFAULT
}

/// Dispatch policy.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
pub enum BatchingPolicy {
    /// Deferred or Eager, chosen for each model and kind of output by the gain and cost of
    /// deferring.
    #[default]
    Auto,
    /// As late as the latency objective allows.
    Deferred,
    /// When the oldest row has waited for `maxDelay`, or the batch is full.
    Timeout,
    /// As soon as a worker is free.
    Eager,
}

/// Preference of policy Auto.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub enum BatchingPreference {
    /// Requests are answered as soon as possible, until eager dispatch cannot sustain the load and
    /// deferred dispatch sustains more.
    ShortWaits,
    /// Requests wait for most of their latency objective, so that the number of busy workers is
    /// proportional to the load and idle ones can be removed. In a cluster, with
    /// `spec.batching.prefer`, requests go to the fewest pods that can sustain the load; the others
    /// are removed first.
    IdleWorkers,
}

/// Limit on queued rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// Maximum number of queued rows in a pod; further requests are rejected at once (429,
    /// RESOURCE_EXHAUSTED). Not below `batching.maxRows`.
    #[serde(default = "queue_rows_default")]
    #[schemars(range(min = 1, max = limits::QUEUE_ROWS_MAX))]
    pub max_rows: u32,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            max_rows: limits::QUEUE_ROWS_DEFAULT,
        }
    }
}

fn queue_rows_default() -> u32 {
    limits::QUEUE_ROWS_DEFAULT
}

/// Bounds of the number of pods.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Autoscaling {
    /// Minimum number of pods.
    #[serde(default = "one_replica")]
    #[schemars(range(min = 1, max = limits::REPLICAS_MAX))]
    pub min_replicas: i32,
    /// Maximum number of pods; not below `minReplicas`.
    #[schemars(range(min = 1, max = limits::REPLICAS_MAX))]
    pub max_replicas: i32,
}

fn one_replica() -> i32 {
    limits::REPLICAS_DEFAULT
}
