//! The answer to `GET /albacore/v1/state`: what a controller has to know of this server.
//!
//! Fields may be added, none is taken away. Figures are those of the last minute; a model's
//! `sha256` and `loaded_at_unix_ms` are of what is served, `source`, `state` and `error` of what the
//! settings name: a model that `failed` and has a digest is served as it was before.

use serde::Serialize;

use crate::live::{Notice, Posted, Progress};
use albacore_engine::{ModelStats, Stats, kind_name};

/// This server.
#[derive(Debug, Serialize)]
pub(super) struct State {
    /// Of the settings in force; absent without a settings file.
    #[serde(skip_serializing_if = "Option::is_none")]
    settings_sha256: Option<String>,
    /// Why the file that is there is not in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    settings_error: Option<String>,
    workers: Workers,
    threads: usize,
    models: Vec<Model>,
    window_seconds: f64,
    goodput_per_second: f64,
    bad_rate: f64,
    idle_share: f64,
    load_factor: f64,
    latency_p50_ms: Option<f64>,
    latency_p99_ms: Option<f64>,
    requests: Requests,
}

#[derive(Debug, Serialize)]
struct Workers {
    wanted: usize,
    alive: usize,
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
}

/// A batch of b rows takes alpha b + beta on one worker.
#[derive(Debug, Serialize)]
struct Latency {
    kind: &'static str,
    alpha_us: f64,
    beta_us: f64,
    samples: u64,
}

/// Describes the server.
pub(super) fn describe(stats: &Stats, posted: Posted) -> State {
    let load = &stats.load;
    let outcomes = load.outcomes;
    let millis = |nanos: f64| nanos / 1e6;
    let models = posted.models.into_iter();
    State {
        settings_sha256: posted.settings_sha256.map(|digest| digest.to_string()),
        settings_error: posted.settings_error,
        workers: Workers {
            wanted: stats.workers,
            alive: stats.workers_ready,
        },
        threads: stats.threads,
        models: models.map(|notice| model(notice, &stats.models)).collect(),
        window_seconds: load.window_seconds,
        goodput_per_second: load.goodput_per_second,
        bad_rate: load.bad_rate,
        idle_share: load.idle_share,
        load_factor: load.factor,
        latency_p50_ms: load.latency_p50_nanos.map(millis),
        latency_p99_ms: load.latency_p99_nanos.map(millis),
        requests: Requests {
            good: outcomes.good,
            late: outcomes.late,
            shed: outcomes.shed,
            failed: outcomes.failed,
        },
    }
}

fn model(notice: Notice, stats: &[ModelStats]) -> Model {
    let learned = stats.iter().find(|model| model.name == notice.name);
    let learned = learned.map(|model| model.latency.as_slice());
    let latency = learned
        .unwrap_or_default()
        .iter()
        .map(|(kind, line)| Latency {
            kind: kind_name(*kind),
            alpha_us: line.alpha / 1e3,
            beta_us: line.beta / 1e3,
            samples: line.samples,
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
    }
}
