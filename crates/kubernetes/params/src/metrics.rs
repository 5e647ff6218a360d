//! The metrics of this program; `/metrics` returns them followed by those of the agent.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::snapshots::SnapshotStore;

/// The last line of OpenMetrics text.
const END: &str = "# EOF";

/// The outcome of a snapshot line, or of a report.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OutcomeLabel {
    /// `taken` or `broken`; of a report `passed_on`, `refused` or `dropped`.
    pub(crate) outcome: &'static str,
}

/// The reason for rejecting a stream or connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ReasonLabel {
    /// `unknown`, `ambiguous`, `user`, `full`, `full_pod` or `not_fed`.
    pub(crate) reason: &'static str,
}

/// Clones share the metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct ParamsMetrics {
    pub(crate) lines: Family<OutcomeLabel, Counter>,
    pub(crate) unknown_fields: Counter,
    pub(crate) connections: Gauge,
    pub(crate) streams: Gauge,
    pub(crate) sent: Counter,
    pub(crate) refused: Family<ReasonLabel, Counter>,
    pub(crate) reports: Family<OutcomeLabel, Counter>,
}

impl ParamsMetrics {
    pub(crate) fn refuse(&self, reason: &'static str) {
        self.refused.get_or_create(&ReasonLabel { reason }).inc();
    }

    pub(crate) fn report(&self, outcome: &'static str) {
        self.reports.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    pub(crate) fn line(&self, outcome: &'static str) {
        self.lines.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Encodes all metrics as text.
    ///
    /// # Errors
    /// A metric cannot be encoded.
    pub(crate) fn text(&self, snapshots: &SnapshotStore) -> Result<String, std::fmt::Error> {
        // Destructured, so that a metric cannot be counted without being registered (L9).
        let Self {
            lines,
            unknown_fields,
            connections,
            streams,
            sent,
            refused,
            reports,
        } = self.clone();
        let mut registry = Registry::with_prefix("albacore_params");
        let of = &mut registry;
        of.register("feed_lines", "Lines of the feed, by outcome", lines);
        let help = "Fields of the feed that another version wrote";
        of.register("feed_unknown_fields", help, unknown_fields);
        of.register("connections", "Open gRPC connections", connections);
        of.register("streams", "Open streams of parameters", streams);
        of.register("messages_sent", "Parameters sent to pods", sent);
        let help = "Connections and streams refused, by reason";
        of.register("refused", help, refused);
        let help = "Latencies that pods reported, by outcome";
        of.register("reports", help, reports);
        register_snapshot(of, snapshots);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        let own = text.trim_end().trim_end_matches(END);
        let fed = snapshots.metrics();
        let fed = fed.lines().filter(|line| !line.is_empty() && *line != END);
        let lines: Vec<&str> = own.lines().chain(fed).chain([END]).collect();
        Ok(lines.join("\n") + "\n")
    }
}

/// Registers gauges whose values are computed at scrape time.
fn register_snapshot(registry: &mut Registry, snapshots: &SnapshotStore) {
    let is_fresh = Gauge::<i64>::default();
    is_fresh.set(snapshots.is_fresh().into());
    let help = "1 while the newest snapshot of the agent is younger than a minute";
    registry.register("feed_fresh", help, is_fresh);
    let Some(summary) = snapshots.summary() else {
        return;
    };
    let seconds = Gauge::<f64, AtomicU64>::default();
    seconds.set(summary.age.as_secs_f64());
    registry.register(
        "feed_age_seconds",
        "Age of the newest snapshot of the agent",
        seconds,
    );
    let gauge = |value: u64| {
        let gauge = Gauge::<i64>::default();
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        gauge
    };
    let help = "Pods in the newest snapshot of the agent";
    registry.register("feed_pods", help, gauge(summary.pods as u64));
    let help = "Sequence number of the newest snapshot since the agent started";
    registry.register("feed_sequence", help, gauge(summary.sequence));
}
