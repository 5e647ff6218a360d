//! `/metrics`: the counters of the front and a snapshot of the engine as OpenMetrics text, which
//! [`albacore_program::MetricsFormat`] converts to the format that the scraper accepts.
//!
//! Label values are bounded: served models (unknown ones count as empty), kinds, protocols, codes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::collectors::{EngineCollector, ParamsCollector};
use super::statistics::{AnsweredCall, Statistics};
use crate::effective_config::EffectiveConfig;
use albacore_connections::LimitMetrics;
use albacore_engine::{Engine, KindSet, Timing, kind_name};

/// Buckets of a request's duration, seconds: fine where a single row lands, coarse up to the
/// longest SHAP batches.
const BOUNDS: [f64; 15] = [
    50e-6, 100e-6, 150e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 1.0,
    10.0,
];

/// Labels of the counter of finished requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    model: String,
    kind: &'static str,
    protocol: &'static str,
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    model: String,
    kind: &'static str,
    protocol: &'static str,
}

type Durations = Family<DurationLabels, Histogram, fn() -> Histogram>;

/// What the metrics need of an infer call; filled while the call proceeds.
pub(super) struct InferCall {
    pub(super) arrival: Instant,
    /// Name of the model; empty if there is no such model.
    pub(super) model: String,
    /// The requested outputs; empty if the request could not be parsed.
    pub(super) kinds: KindSet,
    /// `None` if the call was refused or failed.
    answered: Option<AnsweredCall>,
}

impl InferCall {
    /// A call whose first byte came at `arrival`.
    pub(super) fn new(arrival: Instant) -> Self {
        Self {
            arrival,
            model: String::new(),
            kinds: KindSet::default(),
            answered: None,
        }
    }

    /// Records that results are available; `parsing` is the time from the end of the body to rows
    /// in shared memory.
    pub(super) fn answered(&mut self, rows: usize, parsing: Duration, timing: Timing) {
        self.answered = Some(AnsweredCall {
            rows,
            parsing,
            timing,
            computed_at: Instant::now(),
        });
    }
}

/// All metrics of this server.
pub(super) struct Metrics {
    registry: Registry,
    finished: Family<RequestLabels, Counter>,
    durations: Durations,
    /// For the statistics extension.
    pub(super) statistics: Statistics,
}

impl Metrics {
    pub(super) fn new(
        engine: Arc<Engine>,
        config: Arc<EffectiveConfig>,
        limit_metrics: LimitMetrics,
    ) -> Self {
        let mut registry = Registry::with_prefix("albacore");
        let finished = Family::<RequestLabels, Counter>::default();
        registry.register("requests", "Finished infer calls", finished.clone());
        let durations: Durations = Family::new_with_constructor(|| Histogram::new(BOUNDS));
        registry.register_with_unit(
            "request_duration",
            "From the head of an infer call to its serialized reply",
            Unit::Seconds,
            durations.clone(),
        );
        registry.register_collector(Box::new(EngineCollector(engine)));
        registry.register_collector(Box::new(ParamsCollector(config)));
        registry.register_collector(Box::new(limit_metrics));
        Self {
            registry,
            finished,
            durations,
            statistics: Statistics::default(),
        }
    }

    /// Counts one infer call, whose reply is encoded. `code` is the HTTP status or gRPC code.
    pub(super) fn count(&self, call: &InferCall, protocol: &'static str, code: String) {
        let took = call.arrival.elapsed();
        let model = call.model.clone();
        if !model.is_empty() {
            self.statistics.count(&model, took, call.answered.as_ref());
        }
        let kind = costliest_kind(call.kinds);
        let class = DurationLabels {
            model: model.clone(),
            kind,
            protocol,
        };
        self.durations
            .get_or_create(&class)
            .observe(took.as_secs_f64());
        self.finished
            .get_or_create(&RequestLabels {
                model,
                kind,
                protocol,
                code,
            })
            .inc();
    }

    pub(super) fn print(&self) -> String {
        let mut text = String::new();
        // infallible: writing to a string does not fail
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

/// The costliest kind of a request, which determines its duration.
fn costliest_kind(kinds: KindSet) -> &'static str {
    kinds.costliest().map_or("none", kind_name)
}
