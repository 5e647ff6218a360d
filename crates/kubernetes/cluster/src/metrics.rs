//! Metrics of a program as OpenMetrics text: those of this crate and its own.
//!
//! The cardinality of labels is bounded: verbs are a fixed list, resources are those that the
//! program requests, codes are those of HTTP.

use std::fmt::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Labels of requests to the API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    pub(crate) verb: &'static str,
    /// Plural of the kind, with its subresource.
    pub(crate) resource: String,
    /// HTTP status, `refused` (not sent) or `failed` (no response).
    pub(crate) code: String,
}

/// Name of a watch or queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct NameLabel {
    pub(crate) name: &'static str,
}

/// The metrics of this crate.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterMetrics {
    pub(crate) requests: Family<RequestLabels, Counter>,
    pub(crate) request_rate: Gauge,
    pub(crate) watched: Family<NameLabel, Gauge>,
    pub(crate) malformed: Family<NameLabel, Gauge>,
    pub(crate) watch_failures: Family<NameLabel, Counter>,
    pub(crate) added: Family<NameLabel, Counter>,
    pub(crate) worked: Family<NameLabel, Counter>,
    pub(crate) worked_again: Family<NameLabel, Counter>,
    pub(crate) waiting: Family<NameLabel, Gauge>,
    pub(crate) events_dropped: Counter,
    pub(crate) is_leading: Gauge,
}

/// Clones share the metrics.
#[derive(Clone, Debug)]
pub struct MetricsRegistry {
    registry: Arc<Mutex<Registry>>,
    own: ClusterMetrics,
}

impl Default for MetricsRegistry {
    fn default() -> Self {
        Self::new()
    }
}

impl MetricsRegistry {
    /// Creates the metrics of this crate; a program adds its own with
    /// [`MetricsRegistry::register`].
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("albacore");
        let own = ClusterMetrics::default();
        own.register(&mut registry);
        let registry = Arc::new(Mutex::new(registry));
        Self { registry, own }
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `add` to register further metrics; their names get the prefix `albacore_`.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.lock());
    }

    /// Encodes all metrics as text.
    ///
    /// # Errors
    /// A metric cannot be encoded.
    pub fn text(&self) -> Result<String, Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.lock())?;
        Ok(text)
    }

    pub(crate) fn own(&self) -> &ClusterMetrics {
        &self.own
    }
}

impl ClusterMetrics {
    fn register(&self, registry: &mut Registry) {
        // Destructured, so that a metric cannot be counted without being registered (L9).
        let Self {
            requests,
            request_rate,
            watched,
            malformed,
            watch_failures,
            added,
            worked,
            worked_again,
            waiting,
            events_dropped,
            is_leading,
        } = self.clone();
        registry.register("kube_requests", "Requests to the API server", requests);
        let help = "Requests per second that may be sent to the API server now";
        registry.register("kube_request_rate_limit", help, request_rate);
        registry.register(
            "watched_objects",
            "Objects in the cache of a watch",
            watched,
        );
        let help = "Objects of a watch that do not fit their type";
        registry.register("watched_malformed_objects", help, malformed);
        registry.register("watch_failures", "Failures of a watch", watch_failures);
        registry.register("queue_added", "Keys added to a queue", added);
        registry.register("queue_worked", "Keys processed", worked);
        let help = "Keys processed that are queued again";
        registry.register("queue_worked_again", help, worked_again);
        registry.register(
            "queue_waiting",
            "Keys that wait in a queue, due or not",
            waiting,
        );
        let help = "Events that were not written: too many at once or of one object";
        registry.register("events_dropped", help, events_dropped);
        registry.register(
            "leading",
            "1 while this process holds its lease",
            is_leading,
        );
    }
}
