//! Load reports for load balancers, in the format of Open Request Cost Aggregation (ORCA): in HTTP
//! replies (`endpoint-load-metrics`), in gRPC replies (`endpoint-load-metrics-bin`), and as a
//! stream (`grpc/load_stream.rs`).
//!
//! Problem: a load balancer needs the load of the pod that served the request. Computing it for
//! each reply would cost more than many requests do.
//!
//! Approach: a task computes the reports ten times per second and encodes them in every format; a
//! reply copies the encoded value. `application_utilization` is not the busy time of the workers,
//! because small batches keep workers busy at any load. It is the work of the answered requests, as
//! if computed in batches of the size under load, divided by the capacity of the workers: see
//! docs/decisions/2026-11-26-routing.md.

mod encoded;
mod rates;

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use albacore_engine::{Engine, LoadTotals};
use albacore_proto::orca::OrcaLoadReport;
use arc_swap::ArcSwapOption;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};

use super::limits::{LOAD_FACTOR_PERIODS, LOAD_PERIOD, LOAD_PERIODS};
use albacore_server_args::LoadReportMode;
use encoded::EncodedReport;
use rates::Rates;

/// Request header: the format of the report in the reply.
const FORMAT: HeaderName = HeaderName::from_static("endpoint-load-metrics-format");

/// Header of HTTP replies that contains the report.
const REPORT: HeaderName = HeaderName::from_static("endpoint-load-metrics");

/// Trailer of gRPC replies that contains the report.
const TRAILER: HeaderName = HeaderName::from_static("endpoint-load-metrics-bin");

/// Report formats of HTTP replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportFormat {
    /// `TEXT name:value,name:value`.
    Text,
    /// `JSON {...}`.
    Json,
    /// `BIN` and the base64 of the protobuf message.
    Binary,
}

/// The newest reports.
struct CurrentReports {
    /// Report of all models, as sent by the stream.
    all: OrcaLoadReport,
    /// For replies without a served model.
    server: EncodedReport,
    /// For the replies of each model, by name.
    models: HashMap<String, EncodedReport>,
}

/// Computes and stores the load reports of a server.
pub(super) struct LoadReporter {
    mode: LoadReportMode,
    /// `None` in the first 0.1 s.
    current: ArcSwapOption<CurrentReports>,
    /// Number of requests with an unknown format.
    unknown_formats: AtomicU64,
}

impl LoadReporter {
    pub(super) fn new(mode: LoadReportMode) -> Self {
        Self {
            mode,
            current: ArcSwapOption::empty(),
            unknown_formats: AtomicU64::new(0),
        }
    }

    /// Number of requests with an unknown format, which was ignored.
    pub(super) fn unknown_formats(&self) -> u64 {
        self.unknown_formats.load(Ordering::Relaxed)
    }

    /// Whether load reports are enabled in any form.
    pub(super) fn is_enabled(&self) -> bool {
        self.mode != LoadReportMode::Never
    }

    /// The report of all models; `None` before the first report.
    pub(super) fn newest(&self) -> Option<OrcaLoadReport> {
        let current = self.current.load();
        current.as_ref().map(|current| current.all.clone())
    }

    /// Adds the report of `model` to the headers of an HTTP reply, if the request asks for it.
    pub(super) fn add_to_head(&self, request: &HeaderMap, model: &str, head: &mut HeaderMap) {
        if let Some(format) = self.format(request) {
            self.insert(head, REPORT, model, |report| report.header(format));
        }
    }

    /// Adds the report of `model` to the trailers of a gRPC reply, if the request asks for it.
    pub(super) fn add_to_trailers(&self, request: &HeaderMap, model: &str, to: &mut HeaderMap) {
        if self.format(request).is_some() {
            self.insert(to, TRAILER, model, EncodedReport::trailer);
        }
    }

    fn insert(
        &self,
        to: &mut HeaderMap,
        name: HeaderName,
        model: &str,
        value: impl Fn(&EncodedReport) -> Option<HeaderValue>,
    ) {
        let current = self.current.load();
        let report = current
            .as_ref()
            .map(|current| current.models.get(model).unwrap_or(&current.server));
        if let Some(value) = report.and_then(value) {
            to.insert(name, value);
        }
    }

    /// The format for the reply to `request`; `None` for no report.
    fn format(&self, request: &HeaderMap) -> Option<ReportFormat> {
        if !self.is_enabled() {
            return None;
        }
        let default_format = match self.mode {
            LoadReportMode::Always => Some(ReportFormat::Text),
            LoadReportMode::OnRequest | LoadReportMode::Never => None,
        };
        let Some(requested) = request.get(&FORMAT) else {
            return default_format;
        };
        let formats = [
            ("text", ReportFormat::Text),
            ("json", ReportFormat::Json),
            ("bin", ReportFormat::Binary),
        ];
        let known = formats
            .iter()
            .find(|(name, _)| requested.as_bytes().eq_ignore_ascii_case(name.as_bytes()));
        if known.is_none() {
            self.unknown_formats.fetch_add(1, Ordering::Relaxed);
        }
        known.map(|&(_, format)| format).or(default_format)
    }

    /// Updates the reports for as long as it is polled.
    pub(super) async fn update(&self, engine: &Engine) -> Infallible {
        if !self.is_enabled() {
            return std::future::pending().await;
        }
        let mut period = tokio::time::interval(LOAD_PERIOD);
        let mut window: VecDeque<LoadTotals> = VecDeque::with_capacity(LOAD_PERIODS + 1);
        let mut load_factor = 0.0;
        let mut until_load_factor = 0;
        loop {
            // bound: one pass per LOAD_PERIOD; dropped with the server
            period.tick().await;
            // Computed less often, because its window is one minute and it costs as much as a
            // scrape.
            if until_load_factor == 0 {
                load_factor = engine.stats().load.factor;
                until_load_factor = LOAD_FACTOR_PERIODS;
            }
            until_load_factor -= 1;
            let totals = engine.load_totals();
            if let Some(oldest) = window.front() {
                let rates = Rates::between(oldest, &totals, load_factor);
                self.current
                    .store(Some(Arc::new(CurrentReports::new(&rates))));
            }
            window.push_back(totals);
            if window.len() > LOAD_PERIODS {
                window.pop_front();
            }
        }
    }
}

impl CurrentReports {
    fn new(rates: &Rates) -> Self {
        let models = rates.models.iter();
        let models = models.map(|model| {
            let report = rates.report(std::slice::from_ref(model));
            (model.name.clone(), EncodedReport::new(&report))
        });
        Self {
            all: rates.report(&rates.models),
            server: EncodedReport::new(&rates.report(&[])),
            models: models.collect(),
        }
    }
}

#[cfg(test)]
mod tests;
