//! `/metrics`: the counters of the front and a snapshot of the engine as OpenMetrics text, which
//! [`albacore_program::MetricsFormat`] converts to a format accepted by the scraper.
//!
//! Label values are bounded: served models (empty for unknown models), kinds, protocols, codes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::header::HeaderValue;
use prometheus_client::registry::Registry;

use super::collectors::{
    CallCollector, EngineCollector, LoadReportCollector, ParamsCollector, SupervisionCollector,
};
use super::load_report::LoadReporter;
use albacore_call_counts::{AnsweredCall, CallCounts, CallStages, FinishedCall};
use albacore_connections::LimitMetrics;
use albacore_engine::{Engine, KindSet, LoopIndex, Timing, kind_name};
use albacore_live_settings::effective_config::EffectiveConfig;
use albacore_live_settings::model_status::StatusStore;

/// Values of an infer call for metrics, recorded during the call.
pub(super) struct InferCall {
    pub(super) arrival: Instant,
    /// Name of the model; empty if it is unknown.
    pub(super) model: String,
    /// The requested outputs; empty if the request could not be parsed.
    pub(super) kinds: KindSet,
    /// Wait for a permit of the front and for queue memory.
    pub(super) admission: Duration,
    /// `None` if the call was rejected or failed.
    answered: Option<AnsweredCall>,
}

impl InferCall {
    /// For a call whose first byte arrived at `arrival`.
    pub(super) fn new(arrival: Instant) -> Self {
        Self {
            arrival,
            model: String::new(),
            kinds: KindSet::default(),
            admission: Duration::ZERO,
            answered: None,
        }
    }

    /// Records that the results are available. `input` is the time from the end of the body until
    /// its rows are in shared memory.
    pub(super) fn set_answered(&mut self, rows: usize, input: Duration, timing: Timing) {
        let stages = CallStages {
            parse: input.saturating_sub(self.admission),
            admission: self.admission,
            timing,
            computed_at: Instant::now(),
        };
        self.answered = Some(AnsweredCall { rows, stages });
    }

    /// Value of `Server-Timing`, after the reply is encoded; `None` for an error.
    pub(super) fn server_timing(&self) -> Option<HeaderValue> {
        let text = self.answered?.stages.header(self.kinds);
        // infallible: consists of digits, letters and punctuation
        HeaderValue::try_from(text).ok()
    }
}

/// All metrics of this server.
pub(super) struct Metrics {
    registry: Registry,
    pub(super) calls: Arc<CallCounts>,
}

impl Metrics {
    /// Registers all collectors, for this number of event loops.
    pub(super) fn new(
        engine: Arc<Engine>,
        config: Arc<EffectiveConfig>,
        status: Arc<StatusStore>,
        limit_metrics: LimitMetrics,
        load_reports: Arc<LoadReporter>,
        loops: usize,
    ) -> Self {
        let mut registry = Registry::with_prefix("albacore");
        let calls = Arc::new(CallCounts::new(loops));
        registry.register_collector(Box::new(CallCollector(Arc::clone(&calls))));
        registry.register_collector(Box::new(EngineCollector(engine)));
        registry.register_collector(Box::new(ParamsCollector(config)));
        registry.register_collector(Box::new(SupervisionCollector(status)));
        registry.register_collector(Box::new(limit_metrics));
        registry.register_collector(Box::new(LoadReportCollector(load_reports)));
        Self { registry, calls }
    }

    /// Counts one infer call of an event loop after its reply is encoded. `code` is the HTTP status
    /// or gRPC code.
    pub(super) fn count(
        &self,
        event_loop: LoopIndex,
        call: &InferCall,
        protocol: &'static str,
        code: &str,
    ) {
        let ended_at = Instant::now();
        let finished = FinishedCall {
            model: &call.model,
            kind: call.kinds.costliest().map_or("none", kind_name),
            protocol,
            code,
            took: ended_at.duration_since(call.arrival),
            ended_at,
            answered: call.answered,
        };
        self.calls.count(event_loop, &finished);
    }

    pub(super) fn print(&self) -> String {
        let mut text = String::new();
        // infallible: writing to a string cannot fail
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}
