//! The reply to `GET /albacore/v1/state`, read by the controller.
//!
//! Fields may be added, but not removed. Rates and latencies cover the last minute. `sha256` and
//! `loaded_at_unix_ms` of a model describe the served version; `source`, `state` and `error`
//! describe the version in the settings: if a `failed` model has a digest, its previous version is
//! served.

use serde::Serialize;

use super::micros;
use albacore_engine::{
    Choice, Engine, KernelChoice, Kind, KindLoad, Latencies, ModelBatching, ModelStats, Outcomes,
    Prefer, ServerLoad, Stats, kind_name, kind_or_unread,
};
use albacore_live_settings::effective_config::{EffectiveConfig, StreamStatus};
use albacore_live_settings::model_status::{ConfigStatus, LoadState, ModelLoadStatus};
use albacore_supervision::StandbyState;

#[derive(Debug, Serialize)]
pub(super) struct ServerStateJson {
    /// Digest of the settings file in force; absent without a settings file.
    #[serde(skip_serializing_if = "Option::is_none")]
    settings_sha256: Option<String>,
    /// Digest of the effective settings (the file, overridden by the params stream), in the form
    /// written by the controller. Absent without a settings file.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_force_sha256: Option<String>,
    /// Why the current settings file is not in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    settings_error: Option<String>,
    workers: Workers,
    threads: usize,
    batching: BatchingJson,
    queue: QueueJson,
    /// The params stream; absent without `--params`.
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<ParamsStateJson>,
    models: Vec<ModelStateJson>,
    window_seconds: f64,
    goodput_per_second: f64,
    bad_rate: f64,
    idle_share: f64,
    front: FrontStateJson,
    load_factor: f64,
    latency_p50_ms: Option<f64>,
    latency_p99_ms: Option<f64>,
    requests: Requests,
    /// Requests of the last 15 to 20 s.
    requests_newest: Requests,
}

#[derive(Debug, Serialize)]
struct Workers {
    wanted: usize,
    alive: usize,
    /// Restarts of workers since the server started.
    restarts: u64,
    /// Exit reason of the last restarted worker.
    #[serde(rename = "last_end", skip_serializing_if = "Option::is_none")]
    last_exit: Option<String>,
}

/// State of the front end.
#[derive(Debug, Serialize)]
struct FrontStateJson {
    threads: usize,
    /// CPU utilization of its busiest thread over the last seconds, 0 to 1.
    busy: f64,
    /// Process ID of the front.
    pid: u32,
    /// Front processes that died since the server was started, and their open connections.
    deaths: u64,
    connections_reset: u64,
    /// Fronts that were replaced by a standby.
    takeovers: u64,
    /// Binary upgrades while the server was running.
    upgrades: u64,
    /// Whether a standby is ready to take over from the front.
    standby_ready: bool,
    /// Why a standby cannot be started.
    #[serde(skip_serializing_if = "Option::is_none")]
    standby_error: Option<String>,
}

/// The batching params in force.
#[derive(Debug, Serialize)]
struct BatchingJson {
    policy: &'static str,
    max_rows: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_delay_us: Option<u64>,
    /// Preference of policy auto.
    #[serde(skip_serializing_if = "Option::is_none")]
    prefer: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window_us: Option<u64>,
}

#[derive(Debug, Serialize)]
struct QueueJson {
    max_rows: usize,
}

#[derive(Debug, Serialize)]
struct ParamsStateJson {
    connected: bool,
    /// Generation of the params from the stream; null while those of the settings are in force.
    generation: Option<u64>,
    /// Why the last message was rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

/// Number of requests in the window, by outcome.
#[derive(Debug, Serialize)]
struct Requests {
    good: u64,
    late: u64,
    shed: u64,
    failed: u64,
}

#[derive(Debug, Serialize)]
struct ModelStateJson {
    name: String,
    source: String,
    sha256: Option<String>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    loaded_at_unix_ms: Option<u64>,
    latency: Vec<BatchCost>,
    /// Maximum number of threads of a worker for one of its batches; null: all threads.
    threads: Option<usize>,
    /// Its share of the server during overload.
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<u32>,
    /// Its batching params.
    #[serde(skip_serializing_if = "Option::is_none")]
    batching_params: Option<BatchingJson>,
    /// Its requests in the last minute.
    #[serde(flatten)]
    requests: ModelRequests,
    /// Choices of policy auto for the same kinds; absent under another policy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    batching: Vec<BatchingChoiceJson>,
    /// Prediction kernels by number of rows in a batch; empty while the model is not served.
    kernels: Vec<KernelState>,
}

/// Requests of a model in the window.
#[derive(Debug, Default, Serialize)]
struct ModelRequests {
    goodput_per_second: f64,
    bad_rate: f64,
    latency_p99_ms: Option<f64>,
    /// Whether the ratio of bad requests is within the objective, over all requests and for each
    /// kind; null without an objective or a request.
    slo_met: Option<bool>,
    outcomes: Vec<KindOutcomesJson>,
}

/// Requests of the window whose costliest output is of this kind.
#[derive(Debug, Serialize)]
struct KindOutcomesJson {
    /// `unread`: rejected before the body was read.
    kind: &'static str,
    #[serde(flatten)]
    requests: Requests,
    /// Requests of the last 15 to 20 s.
    newest: Requests,
    /// Histogram of latencies from arrival to reply: upper bounds of buckets in microseconds, and
    /// number of replies. Empty buckets are omitted.
    latency_us: Vec<(u64, u64)>,
}

/// The kernel for batches of at most `rows_max` rows, and more than `rows_max` of the previous
/// entry.
#[derive(Debug, Serialize)]
struct KernelState {
    /// Null means no limit.
    rows_max: Option<usize>,
    kernel: &'static str,
    /// Time per row, measured when the model was loaded; null if the kernel was chosen by rule.
    row_ns: Option<f64>,
    reads_bytes: usize,
}

/// Cost of batches: a batch of b rows takes alpha b + beta on one worker.
#[derive(Debug, Serialize)]
struct BatchCost {
    kind: &'static str,
    alpha_us: f64,
    beta_us: f64,
    samples: u64,
}

/// Whether batches of a kind are deferred, and why.
#[derive(Debug, Serialize)]
struct BatchingChoiceJson {
    kind: &'static str,
    deferred: bool,
    /// One word, for programs.
    reason: &'static str,
    /// One sentence with figures.
    explanation: String,
    /// Work in all queues with eager batching, relative to the capacity of the workers.
    load_ratio: f64,
    /// Gain and cost of deferring; absent while costs, objective or arrival rate are unknown.
    #[serde(flatten)]
    deferral: Option<Deferral>,
}

#[derive(Debug, Serialize)]
struct Deferral {
    /// Gain in goodput, relative to eager goodput.
    goodput_gain_ratio: f64,
    idle_workers_gain: f64,
    p50_cost_ms: f64,
}

pub(super) fn describe(
    engine: &Engine,
    status: ConfigStatus,
    config: &EffectiveConfig,
) -> ServerStateJson {
    let (params, stream) = config.current();
    let (stats, revisions) = (&engine.stats(), engine.models());
    let load = &stats.load;
    let outcomes = load.outcomes;
    let millis = |nanos: u64| nanos as f64 / 1e6;
    let in_force_sha256 = effective_sha256(&status, stream.as_ref());
    let supervision = status.supervision;
    let models = status.models.into_iter();
    ServerStateJson {
        in_force_sha256,
        settings_sha256: status.settings_sha256.map(|digest| digest.to_string()),
        settings_error: status.settings_error,
        workers: Workers {
            wanted: stats.workers,
            alive: stats.workers_ready,
            restarts: stats.worker_restarts_total,
            last_exit: stats.worker_last_exit.clone(),
        },
        threads: stats.threads,
        batching: batching(params.of_models()),
        queue: QueueJson {
            max_rows: params.queue_rows_max,
        },
        params: stream.map(|stream| ParamsStateJson {
            connected: stream.is_connected,
            generation: stream.parameters.map(|parameters| parameters.generation),
            refused: stream.refused,
        }),
        models: models
            .map(|status| {
                let served = revisions.iter().find(|it| it.info().name == status.name);
                let kernels = served.map(|revision| kernels(revision.kernels()));
                model_state(status, stats, config, kernels.unwrap_or_default())
            })
            .collect(),
        window_seconds: load.window_seconds,
        goodput_per_second: load.goodput_per_second,
        bad_rate: load.bad_rate,
        idle_share: load.idle_share,
        front: FrontStateJson {
            threads: stats.front_threads,
            busy: stats.front_busy_ratios.iter().copied().fold(0.0, f64::max),
            pid: std::process::id(),
            deaths: supervision.front_deaths,
            connections_reset: supervision.connections_reset,
            takeovers: supervision.takeovers,
            upgrades: supervision.upgrades,
            standby_ready: supervision.standby == StandbyState::Ready,
            standby_error: match supervision.standby {
                StandbyState::Failed { reason } => Some(reason),
                StandbyState::Starting | StandbyState::Ready => None,
            },
        },
        load_factor: load.factor,
        latency_p50_ms: load.latency_p50_nanos.map(millis),
        latency_p99_ms: load.latency_p99_nanos.map(millis),
        requests: requests(outcomes),
        requests_newest: requests(load.newest),
    }
}

fn effective_sha256(status: &ConfigStatus, stream: Option<&StreamStatus>) -> Option<String> {
    let file = status.settings.as_ref()?;
    let text = match stream.and_then(|stream| stream.parameters.as_ref()) {
        Some(parameters) => file.overridden_by(parameters).to_yaml(),
        None => file.to_yaml(),
    };
    Some(albacore_storage::sha256(text.as_bytes()).to_string())
}

fn requests(outcomes: Outcomes) -> Requests {
    Requests {
        good: outcomes.good,
        late: outcomes.late,
        shed: outcomes.shed,
        failed: outcomes.failed,
    }
}

fn batching(params: ModelBatching) -> BatchingJson {
    BatchingJson {
        policy: params.policy.name(),
        max_rows: params.batch_rows_max,
        max_delay_us: params.policy.delay().map(micros),
        prefer: params.policy.prefer().map(Prefer::name),
        window_us: params.window.map(micros),
    }
}

fn kernels(choices: &[KernelChoice]) -> Vec<KernelState> {
    let last = choices.len().saturating_sub(1);
    let choices = choices.iter().enumerate();
    let choices = choices.map(|(index, choice)| KernelState {
        rows_max: (index < last).then_some(choice.rows),
        kernel: choice.kernel,
        row_ns: choice.nanoseconds,
        reads_bytes: choice.reads_bytes,
    });
    choices.collect()
}

fn batching_choice(kind: Kind, choice: &Choice) -> BatchingChoiceJson {
    BatchingChoiceJson {
        kind: kind_name(kind),
        deferred: choice.is_deferred,
        reason: choice.reason.name(),
        explanation: choice.to_string(),
        load_ratio: choice.load,
        deferral: choice.forecast.map(|forecast| Deferral {
            goodput_gain_ratio: forecast.goodput_gain(),
            idle_workers_gain: forecast.idle_workers_gain,
            p50_cost_ms: forecast.p50_cost.0 as f64 / 1e6,
        }),
    }
}

fn model_requests(model: &ModelStats, load: &ServerLoad) -> ModelRequests {
    let (counts, mut latencies) = (model.load(), Latencies::default());
    let kinds = model.window.iter();
    kinds.for_each(|kind| latencies.merge(&kind.latencies));
    let good = counts.all.requests - counts.all.bad;
    let p99 = latencies.quantile_bound(0.99);
    ModelRequests {
        goodput_per_second: good as f64 / load.window_seconds.max(1.0),
        bad_rate: counts.all.bad_rate(),
        latency_p99_ms: p99.map(|micros| micros as f64 / 1e3),
        slo_met: counts.is_objective_met(),
        outcomes: model.window.iter().map(kind_outcomes).collect(),
    }
}

fn kind_outcomes(load: &KindLoad) -> KindOutcomesJson {
    KindOutcomesJson {
        kind: kind_or_unread(load.kind),
        requests: requests(load.outcomes),
        newest: requests(load.newest),
        latency_us: load.latencies.buckets().collect(),
    }
}

fn model_state(
    status: ModelLoadStatus,
    stats: &Stats,
    config: &EffectiveConfig,
    kernels: Vec<KernelState>,
) -> ModelStateJson {
    let mut models = stats.models.iter();
    let counted = models.find(|model| model.name == status.name);
    let learned = counted.map(|model| model.latency.as_slice());
    let choices = counted.into_iter().flat_map(|model| &model.choices);
    let choices = choices.map(|(kind, choice)| batching_choice(*kind, choice));
    let latency = learned
        .unwrap_or_default()
        .iter()
        .map(|(kind, cost)| BatchCost {
            kind: kind_name(*kind),
            alpha_us: cost.line.alpha_ns() / 1e3,
            beta_us: cost.line.beta_ns() / 1e3,
            samples: cost.samples,
        });
    ModelStateJson {
        weight: config.weight(&status.name),
        name: status.name,
        source: status.source,
        sha256: status.serving.map(|(digest, _)| digest.to_string()),
        state: match status.load_state {
            LoadState::Loading => "loading",
            LoadState::Loaded => "loaded",
            LoadState::Failed => "failed",
            LoadState::Unloaded => "unloaded",
        },
        error: status.error,
        loaded_at_unix_ms: status.serving.map(|(_, at)| at),
        latency: latency.collect(),
        batching: choices.collect(),
        threads: counted.and_then(|model| model.threads),
        batching_params: counted.map(|model| batching(model.batching)),
        requests: counted
            .map(|model| model_requests(model, &stats.load))
            .unwrap_or_default(),
        kernels,
    }
}
