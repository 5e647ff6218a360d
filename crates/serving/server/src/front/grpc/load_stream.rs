//! Out-of-band load reports: one stream per connection of a load-balancing client.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use albacore_proto::orca::open_rca_service_server::OpenRcaService;
use albacore_proto::orca::{self, OrcaLoadReport, OrcaLoadReportRequest};
use futures_util::stream::{Stream, unfold};
use tokio::time::{Interval, MissedTickBehavior};
use tonic::{Request, Response, Status};

use super::super::limits::{LOAD_STREAM_PERIOD, LOAD_STREAM_PERIOD_MAX, LOAD_STREAM_PERIOD_MIN};
use super::super::load_report::LoadReporter;

/// Streams the newest report. At shutdown `ReplyBody` ends the streams.
pub(super) struct LoadStreams(pub(super) Arc<LoadReporter>);

struct LoadStream {
    reports: Arc<LoadReporter>,
    period: Interval,
}

#[tonic::async_trait]
impl OpenRcaService for LoadStreams {
    type StreamCoreMetricsStream =
        Pin<Box<dyn Stream<Item = Result<OrcaLoadReport, Status>> + Send>>;

    async fn stream_core_metrics(
        &self,
        request: Request<OrcaLoadReportRequest>,
    ) -> Result<Response<Self::StreamCoreMetricsStream>, Status> {
        if !self.0.is_enabled() {
            // Clients do not retry after this status code.
            return Err(Status::unimplemented(
                "this server sends no load reports: it was started with --load-reports never",
            ));
        }
        let interval = request.into_inner().report_interval;
        let mut period = tokio::time::interval(interval.map_or(LOAD_STREAM_PERIOD, clamp_interval));
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let stream = LoadStream {
            reports: Arc::clone(&self.0),
            period,
        };
        Ok(Response::new(Box::pin(unfold(stream, LoadStream::next))))
    }
}

impl LoadStream {
    async fn next(mut self) -> Option<(Result<OrcaLoadReport, Status>, Self)> {
        let report = loop {
            // bound: the first report exists 0.1 s after startup
            self.period.tick().await;
            if let Some(report) = self.reports.newest() {
                break report;
            }
        };
        Some((Ok(report), self))
    }
}

/// Clamps the interval requested by a client; zero selects the default.
fn clamp_interval(interval: orca::Duration) -> Duration {
    let seconds = u64::try_from(interval.seconds).unwrap_or_default();
    let nanos = u32::try_from(interval.nanos).unwrap_or_default();
    match Duration::new(seconds.min(LOAD_STREAM_PERIOD_MAX.as_secs()), nanos) {
        Duration::ZERO => LOAD_STREAM_PERIOD,
        interval => interval.clamp(LOAD_STREAM_PERIOD_MIN, LOAD_STREAM_PERIOD_MAX),
    }
}
