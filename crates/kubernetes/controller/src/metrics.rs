//! Metrics of the controller itself, in addition to those of the client.

use albacore_cluster::MetricsRegistry;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// Whether a server responded to a scrape of its state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ScrapeLabel {
    /// `answered` or `silent`.
    pub(crate) result: &'static str,
}

/// The result of a reconcile.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ReconcileLabel {
    /// `applied`, `invalid`, `taken`, `collecting`, `refused`, `gone` or `failed`.
    pub(crate) result: &'static str,
}

/// Direction of a change of the number of pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ScaleLabel {
    /// `up` or `down`.
    pub(crate) direction: &'static str,
}

/// Clones share the metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct ControllerMetrics {
    pub(crate) scrapes: Family<ScrapeLabel, Counter>,
    pub(crate) reconciles: Family<ReconcileLabel, Counter>,
    pub(crate) scalings: Family<ScaleLabel, Counter>,
}

impl ControllerMetrics {
    pub(crate) fn registered(metrics: &MetricsRegistry) -> Self {
        let counts = Self::default();
        // Destructured, so that a metric cannot be counted without being registered (L9).
        let Self {
            scrapes,
            reconciles,
            scalings,
        } = counts.clone();
        metrics.register(|registry| {
            registry.register(
                "state_scrapes",
                "Requests to servers for their state, by result",
                scrapes,
            );
            registry.register(
                "reconciles",
                "Reconciles of deployments, by result",
                reconciles,
            );
            registry.register(
                "scalings",
                "Changes of the number of pods by autoscaling",
                scalings,
            );
        });
        counts
    }
}
