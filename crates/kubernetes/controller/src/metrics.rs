//! What the controller counts beside what its client does.

use albacore_cluster::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// Whether a server told its state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Scraped {
    /// `told` or `silent`.
    pub(crate) result: &'static str,
}

/// What came of a reconcile.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Reconciled {
    /// `applied`, `invalid`, `taken`, `collecting`, `refused`, `gone` or `failed`.
    pub(crate) result: &'static str,
}

/// Why the number of pods was changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Scaled {
    /// `up` or `down`.
    pub(crate) direction: &'static str,
}

/// The counts. Clones are the same counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) scrapes: Family<Scraped, Counter>,
    pub(crate) reconciles: Family<Reconciled, Counter>,
    pub(crate) scalings: Family<Scaled, Counter>,
}

impl Counts {
    /// Counts that `metrics` shows.
    pub(crate) fn registered(metrics: &Metrics) -> Self {
        let counts = Self::default();
        // Destructured, so that no metric is counted and never shown (L9).
        let Self {
            scrapes,
            reconciles,
            scalings,
        } = counts.clone();
        metrics.register(|registry| {
            registry.register("state_scrapes", "Servers asked for their state", scrapes);
            registry.register(
                "reconciles",
                "Deployments looked at, by outcome",
                reconciles,
            );
            registry.register(
                "scalings",
                "Changes of a number of pods by its load",
                scalings,
            );
        });
        counts
    }
}
