//! The answer to `GET /albacore/v1/state`: what a controller has to know of this server.
//!
//! Fields may be added, none is taken away. Figures are those of the last minute; a model's
//! `sha256` and `loaded_at_unix_ms` are of what is served, `source`, `state` and `error` of what
//! the settings name: a model that `failed` and has a digest is served as it was before.

use serde::Serialize;

use crate::live::{Notice, Posted, Progress};
use crate::told::Link;
use albacore_batching::Policy;
use albacore_engine::{BatchingParams, Engine, Kernels, ModelStats, Outcomes, kind_name};

#[derive(Debug, Serialize)]
pub(super) struct State {
    /// Of the file of the settings in force; absent without a settings file.
    #[serde(skip_serializing_if = "Option::is_none")]
    settings_sha256: Option<String>,
    /// Of the settings as they are in force, written as the controller writes them: what the params
    /// stream told wins over the file. Absent without a settings file.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_force_sha256: Option<String>,
    /// Why the file that is there is not in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    settings_error: Option<String>,
    workers: Workers,
    threads: usize,
    batching: Batching,
    queue: Queue,
    /// The stream of `--params`; absent without.
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<Params>,
    models: Vec<Model>,
    window_seconds: f64,
    goodput_per_second: f64,
    bad_rate: f64,
    idle_share: f64,
    load_factor: f64,
    latency_p50_ms: Option<f64>,
    latency_p99_ms: Option<f64>,
    requests: Requests,
    /// Those of the last 15 to 20 s.
    requests_newest: Requests,
}

#[derive(Debug, Serialize)]
struct Workers {
    wanted: usize,
    alive: usize,
    /// Workers started again after a death, since the server started.
    restarts: u64,
    /// How the last of them ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_end: Option<String>,
}

/// The rules in force.
#[derive(Debug, Serialize)]
struct Batching {
    policy: &'static str,
    max_rows: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_delay_us: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Queue {
    max_rows: usize,
}

#[derive(Debug, Serialize)]
struct Params {
    connected: bool,
    /// Of the parameters in force; null while those of the settings are.
    generation: Option<u64>,
    /// Why what was told last is not in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

/// Requests of the window by how they ended.
#[derive(Debug, Serialize)]
struct Requests {
    good: u64,
    late: u64,
    shed: u64,
    failed: u64,
}

#[derive(Debug, Serialize)]
struct Model {
    name: String,
    source: String,
    sha256: Option<String>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    loaded_at_unix_ms: Option<u64>,
    latency: Vec<Latency>,
    /// What computes predictions of so many rows on this cpu; empty while nothing is served.
    kernels: Vec<KernelOf>,
}

/// The kernel for batches of up to so many rows, above those of the one before.
#[derive(Debug, Serialize)]
struct KernelOf {
    /// Null: of any size.
    rows_max: Option<usize>,
    kernel: &'static str,
    /// What a row took when the model was loaded: the fastest. Null: chosen by rule.
    row_ns: Option<f64>,
    reads_bytes: usize,
}

/// A batch of b rows takes alpha b + beta on one worker.
#[derive(Debug, Serialize)]
struct Latency {
    kind: &'static str,
    alpha_us: f64,
    beta_us: f64,
    samples: u64,
}

pub(super) fn describe(
    engine: &Engine,
    posted: Posted,
    (rules, link): (BatchingParams, Option<Link>),
) -> State {
    let (stats, editions) = (&engine.stats(), engine.models());
    let load = &stats.load;
    let outcomes = load.outcomes;
    let millis = |nanos: f64| nanos / 1e6;
    let in_force_sha256 = in_force(&posted, link.as_ref());
    let models = posted.models.into_iter();
    State {
        in_force_sha256,
        settings_sha256: posted.settings_sha256.map(|digest| digest.to_string()),
        settings_error: posted.settings_error,
        workers: Workers {
            wanted: stats.workers,
            alive: stats.workers_ready,
            restarts: stats.worker_restarts_total,
            last_end: stats.worker_last_end.clone(),
        },
        threads: stats.threads,
        batching: batching(rules),
        queue: Queue {
            max_rows: rules.queue_rows_max,
        },
        params: link.map(|link| Params {
            connected: link.is_connected,
            generation: link.generation,
            refused: link.refused,
        }),
        models: models
            .map(|notice| {
                let served = editions.iter().find(|it| it.info().name == notice.name);
                let kernels = served.map(|edition| kernels(edition.kernels()));
                model(notice, &stats.models, kernels.unwrap_or_default())
            })
            .collect(),
        window_seconds: load.window_seconds,
        goodput_per_second: load.goodput_per_second,
        bad_rate: load.bad_rate,
        idle_share: load.idle_share,
        load_factor: load.factor,
        latency_p50_ms: load.latency_p50_nanos.map(millis),
        latency_p99_ms: load.latency_p99_nanos.map(millis),
        requests: requests(outcomes),
        requests_newest: requests(load.newest),
    }
}

fn in_force(posted: &Posted, link: Option<&Link>) -> Option<String> {
    let file = posted.settings.as_ref()?;
    let text = match link.and_then(|link| link.parameters.as_ref()) {
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

fn batching(rules: BatchingParams) -> Batching {
    let (policy, delay) = match rules.policy {
        Policy::Auto => ("auto", None),
        Policy::Deferred => ("deferred", None),
        Policy::Eager => ("eager", None),
        Policy::Timeout { delay } => ("timeout", Some(delay)),
    };
    Batching {
        policy,
        max_rows: rules.batch_rows_max,
        max_delay_us: delay.map(|delay| delay.0 / 1000),
    }
}

fn kernels(known: &Kernels) -> Vec<KernelOf> {
    let last = known.choices.len().saturating_sub(1);
    let choices = known.choices.iter().enumerate();
    let choices = choices.map(|(at, choice)| KernelOf {
        rows_max: (at < last).then_some(choice.rows),
        kernel: choice.kernel,
        row_ns: choice.nanoseconds,
        reads_bytes: choice.reads_bytes,
    });
    choices.collect()
}

fn model(notice: Notice, stats: &[ModelStats], kernels: Vec<KernelOf>) -> Model {
    let learned = stats.iter().find(|model| model.name == notice.name);
    let learned = learned.map(|model| model.latency.as_slice());
    let latency = learned
        .unwrap_or_default()
        .iter()
        .map(|(kind, cost)| Latency {
            kind: kind_name(*kind),
            alpha_us: cost.line.alpha_ns() / 1e3,
            beta_us: cost.line.beta_ns() / 1e3,
            samples: cost.samples,
        });
    Model {
        name: notice.name,
        source: notice.source,
        sha256: notice.serving.map(|(digest, _)| digest.to_string()),
        state: match notice.progress {
            Progress::Loading => "loading",
            Progress::Loaded => "loaded",
            Progress::Failed => "failed",
        },
        error: notice.error,
        loaded_at_unix_ms: notice.serving.map(|(_, at)| at),
        latency: latency.collect(),
        kernels,
    }
}
