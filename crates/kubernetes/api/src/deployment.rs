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
use crate::iterations::{self, Iterations};
use crate::limits;
use crate::missing_columns::MissingColumns;
use crate::model_batching::ModelBatching;
use crate::model_threads::{self, ModelThreads};
use crate::output::Output;
use crate::status::InferenceDeploymentStatus;
use crate::timespan::Timespan;
use crate::uri::ModelUri;

/// What is served, by how many workers of how many threads, where those threads run and how
/// requests are batched. Only `models` (or a `template` with a server of your own) is needed.
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
           thread pinned to the cpu that the planner chose.",
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
        description = "Where the threads of a worker run relative to each other."
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
        description = "Threads verified on their planned cpu, of all threads."
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
        description = "Where to send requests."
    )
)]
#[serde(rename_all = "camelCase")]
pub struct InferenceDeploymentSpec {
    /// Number of pods. Leave it out where an autoscaler (an HPA, KEDA or `autoscaling` below)
    /// decides: an applied manifest without it leaves the autoscaler's number alone.
    // The API server sets the default, because the scale subresource of an object without the field
    // is an error for an HPA.
    #[serde(default = "replicas_default", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = limits::REPLICAS_MAX))]
    pub replicas: Option<i32>,

    /// W: serving processes per pod. Many workers of few threads serve many small requests; few
    /// workers of many threads serve few large ones. workers x threads is at most 2048.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = limits::WORKERS_MAX))]
    pub workers: u16,

    /// T: compute threads per worker, its main thread included.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = limits::THREADS_MAX))]
    pub threads: u16,

    /// Where the threads of one worker run relative to each other. Main threads always run as far
    /// apart as possible. Which mode is faster depends on model, batches and machine: `albacore
    /// experiment` measures it.
    #[serde(default)]
    pub mode: Mode,

    /// How threads are placed on cpus, and whether that is enforced.
    #[serde(default)]
    pub placement: Placement,

    /// Tree models (XGBoost, LightGBM) for the built-in server. Leave it out to run a server of
    /// your own from `template`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limits::MODELS_MAX))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub models: Vec<Model>,

    /// When waiting rows are released to a worker. Built-in server only.
    #[serde(default)]
    pub batching: Batching,

    /// Bound on waiting rows. Built-in server only.
    #[serde(default)]
    pub queue: Queue,

    /// The threads that receive requests and send replies. Built-in server only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub front: Option<Front>,

    /// Scales the number of pods with the load: up while requests are late or refused, down while
    /// workers are idle. Leave it out to use an HPA or KEDA through the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaling: Option<Autoscaling>,

    /// Requests and limits of the server container, as in a Pod. Give it at least workers x threads
    /// cpus, as whole numbers with requests equal to limits, to get exclusive cpus on a node whose
    /// CPU manager policy is static.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,

    /// Pod template merged over the one that Albacore builds, field by field, containers by name;
    /// see `kubectl explain pod.spec`. With a container named `server` and without `models`, any
    /// pre-fork server (gunicorn with XGBoost, for one) is run and placed instead of the built-in.
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

/// Where the threads of one worker run relative to each other.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// Far apart: each thread gets the most cache. Meant for large models and large batches.
    #[default]
    Scatter,
    /// Close together: threads share caches. Meant for small models and small batches.
    Compact,
}

/// How threads are placed on cpus, and whether that is enforced.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// What decides on which cpu a thread runs.
    #[serde(default)]
    pub policy: PlacementPolicy,
    /// Whether masks are written or only planned and compared.
    #[serde(default)]
    pub enforcement: Enforcement,
    /// Where the main thread of a worker may run.
    #[serde(default)]
    pub main_thread: MainThread,
    /// Distances between cpus that the plan goes by. Default: those measured on the node, or
    /// derived from its topology. Deployments on one node are planned together: if theirs differ,
    /// those of the node hold for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distances: Option<LevelDistances>,
    /// Compare placements on the live pod, window by window, and keep the best: the deployment's
    /// own unless another is better, the kernel's if none is better than that. Each pod runs its
    /// own trial under its load, again when the deployment or the load changes. Servers of your own
    /// are compared by the time that their threads wait for a cpu.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
}

/// Distances by the nearest thing that two cpus share, in clock cycles. A level that is not given
/// keeps the node's own distance, moved as far as the order of the levels demands.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LevelDistances {
    /// Two threads of one core. Default: 4.
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
    /// Two L3 of one NUMA node. Default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = limits::DISTANCE_MAX))]
    pub numa: Option<u32>,
    /// Two NUMA nodes of one package. Default: 100 times their distance in the firmware's table
    /// relative to the local one, 200 without a table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = limits::DISTANCE_MAX))]
    pub package: Option<u32>,
    /// Two packages. Default: as of `package`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = limits::DISTANCE_MAX))]
    pub machine: Option<u32>,
}

/// A trial: rounds in which each placement has one window, in an order that changes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Trial {
    /// Length of a window: a whole number of ms or s, as in `10s`, at least 1s. It should cover
    /// several hundred requests.
    #[serde(default = "ten_seconds")]
    pub window: Timespan,
    /// Most rounds. Placements are compared after half of them, three quarters and all; one that
    /// is behind the best by more than the noise has no further windows.
    #[serde(default = "eight")]
    #[schemars(range(min = limits::TRIAL_ROUNDS_MIN, max = limits::TRIAL_ROUNDS_MAX))]
    pub windows: u16,
    /// The placements that are compared, beside the deployment's own. Default: all. Without None
    /// the pod is placed whatever the trial shows.
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

/// What decides on which cpu a thread runs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
pub enum PlacementPolicy {
    /// The best mapping for workers, threads and mode on the cpus of the pod, with a proof.
    #[default]
    Tuna,
    /// Threads are assigned to cpus in order; a baseline for comparison.
    RoundRobin,
    /// The kernel schedules the threads; nothing is planned or written.
    None,
}

/// Whether masks are written or only planned and compared.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
pub enum Enforcement {
    /// Masks are written, verified and written again when they drift.
    #[default]
    Enforce,
    /// No mask is written; the plan is only compared with the masks found. Masks that were written
    /// before are reset once, when this takes effect.
    Observe,
}

/// Where the main thread of a worker may run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
pub enum MainThread {
    /// On its one planned cpu, as every other thread.
    #[default]
    Pinned,
    /// On any cpu planned for its worker: for servers whose main thread does more than compute.
    WorkerSet,
}

/// A model that the built-in server loads.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// Its name in request paths (`/v2/models/NAME/infer`) and metrics.
    #[schemars(length(max = limits::MODEL_NAME_CHARS_MAX), regex(pattern = MODEL_NAME_PATTERN))]
    pub name: String,
    /// Location of its file: `file:///path` (in the container), `file://./path` (beside the YAML
    /// file; `albacore run` only), `pvc://claim/path`, `configmap://name/key`, `http(s)://...`, an
    /// object, `s3://bucket/key`, `gs://bucket/key`, `az://container/key`, or an artifact,
    /// `oci://registry/repository:tag` or `oci://registry/repository@sha256:...`.
    /// With `#sha256=` and 64 hexadecimal digits appended, only a file with that checksum is
    /// loaded.
    pub uri: ModelUri,
    /// Boosting iterations that predict: All, Best, or `{begin: 0, end: 100}` (`end` is exclusive).
    /// Values, margins, contributions, interactions and leaves follow. Left out, the model answers
    /// as the object that saved its file: up to the best iteration if a scikit-learn class of
    /// XGBoost saved it after early stopping, else with all of them.
    ///
    /// All: every iteration of the file.
    ///
    /// Best: up to the best iteration, which XGBoost notes in the file on early stopping; a file
    /// without one is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "iterations::schema")]
    pub iterations: Option<Iterations>,
    /// The latency objective that batching works towards. Without one, nothing counts as late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<Slo>,
    /// The outputs that the model's metadata and configuration advertise; `[output]` if none is
    /// listed. A request may ask by name for every output that the model has, advertised or not:
    /// clients that ask for all that is advertised should not pay for what they do not need.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limits::OUTPUTS_MAX), extend("x-kubernetes-list-type" = "set"))]
    pub outputs: Vec<Output>,
    /// What becomes of a column that a request with named columns lacks.
    #[serde(default)]
    pub missing: MissingColumns,
    /// Names of the model's classes, by number, as many as it has: `[legit, fraud]` of a binary
    /// one. Replies then have the output `label`, the name of each row's class, beside the value. A
    /// model without classes, or with another number of them, is not loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limits::CLASSES_MAX), inner(length(max = limits::CLASS_CHARS_MAX)))]
    pub classes: Vec<String>,
    /// The texts of the categories of columns, by the name of the column, in the order of the
    /// numbers that the model was trained with, from 0: `color: [blue, green, red]`. Requests may
    /// then send these texts in the column. In place of those of the model's file. A model without
    /// a column of such a name is not loaded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "categories::schema")]
    pub categories: BTreeMap<String, Vec<String>>,
    /// Most threads of a worker that compute one batch of this model: `auto`, or a number from 1 to
    /// `spec.threads`. Left out, auto.
    ///
    /// auto: all threads of the worker, as far as busy workers leave cpus for them.
    ///
    /// A number: at most so many of these. For a model whose batches are too short to gain from
    /// more, or that should leave cpus to others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "model_threads::schema")]
    pub threads: Option<ModelThreads>,
    /// Its share of the server, relative to the weights of the other models, while requests have to
    /// be refused; as `cpu.weight` of a cgroup. What a model does not use is left to the others.
    #[serde(default = "weight_default")]
    #[schemars(range(min = 1, max = limits::WEIGHT_MAX))]
    pub weight: u16,
    /// When its waiting rows are released to a worker; a field that is left out is that of
    /// `spec.batching`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batching: Option<ModelBatching>,
}

fn weight_default() -> u16 {
    limits::WEIGHT_DEFAULT
}

/// The threads that receive requests and send replies.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Front {
    /// Number of threads, each with connections of its own; at most the cpus of the server
    /// container. Left out, as many as the server derives from its cpus. A change starts new pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = limits::FRONT_THREADS_MAX))]
    pub threads: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_reports: Option<LoadReportMode>,
    /// Whether a pod that is to stop says `x-envoy-immediate-health-check-fail` in its replies, so
    /// that an Envoy with health checks sends it nothing more. Only where each endpoint of Envoy is
    /// one pod: an Envoy whose endpoint is the Service would give up all pods. A change starts new
    /// pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envoy_health_header: Option<bool>,
}

/// Which replies carry a load report (ORCA) for routers that weigh pods; OnRequest if left out. A
/// change starts new pods.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub enum LoadReportMode {
    /// Replies to requests with the header `endpoint-load-metrics-format`.
    OnRequest,
    /// All replies.
    Always,
    /// No reply, and no stream of reports.
    Never,
}

/// The pattern of a model's name in the schema.
pub(crate) const MODEL_NAME_PATTERN: &str = "^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$";

/// A latency objective: a percentage of the replies within a time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Slo {
    /// From the arrival of a request to its reply; a whole number of us, ms or s, as in `25ms`.
    pub latency: Timespan,
    /// Percentage of the requests that must meet it.
    #[serde(default = "ninety_nine")]
    #[schemars(range(min = limits::PERCENTILE_MIN, max = limits::PERCENTILE_MAX))]
    pub percentile: f64,
    /// As `latency`, of requests that ask for SHAP contributions, which cost many times as much as
    /// values. Without it `latency` holds for them, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contribs: Option<Timespan>,
    /// As `latency`, of requests that ask for interactions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interactions: Option<Timespan>,
}

fn ninety_nine() -> f64 {
    99.0
}

/// When waiting rows are released to a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Batching {
    /// The release rule.
    #[serde(default)]
    pub policy: BatchingPolicy,
    /// Maximum number of rows of one batch.
    #[serde(default = "batch_rows_default")]
    #[schemars(range(min = 1, max = limits::BATCH_ROWS_MAX))]
    pub max_rows: u32,
    /// Longest time that the oldest row of a batch waits for further rows; a whole number of us, ms
    /// or s, as in `2ms`. Needed with policy Timeout, refused with any other. Shorter than every
    /// latency objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_delay: Option<Timespan>,
    /// What policy Auto prefers where eager and deferred batches both carry the load; absent:
    /// ShortWaits. Refused with any other policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer: Option<BatchingPreference>,
    /// Longest time that the oldest row of a deferred batch waits for further rows; a whole number
    /// of us, ms or s, as in `5ms`. Left out, a batch waits for as long as its latency objective
    /// allows; it never waits longer than that. Refused with policy Timeout or Eager.
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

/// The release rule.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
pub enum BatchingPolicy {
    /// Deferred or Eager, chosen for each model and kind of output by what deferring gains and
    /// costs.
    #[default]
    Auto,
    /// As late as the latency objective allows.
    Deferred,
    /// When the oldest row has waited `maxDelay`, or the batch is full.
    Timeout,
    /// As soon as a worker is free.
    Eager,
}

/// What policy Auto prefers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub enum BatchingPreference {
    /// Requests are answered as soon as possible, until eager batches do not carry the load and
    /// deferred ones carry more.
    ShortWaits,
    /// Requests wait for most of their latency objective, so that workers are idle in proportion to
    /// the load and some can be removed. In a cluster, with `spec.batching.prefer`, the fewest pods
    /// that hold the load get requests; the others are the first to be removed.
    IdleWorkers,
}

/// Bound on waiting rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// Maximum number of rows that wait in a pod; further requests are refused at once (429,
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
