//! Metrics of a program, those of this crate and its own, in OpenMetrics text.
//!
//! Labels are bounded: verbs are a list, kinds are those that the program asks for, codes are
//! HTTP's.

use std::fmt::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Labels of requests to the API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Asked {
    pub(crate) verb: &'static str,
    /// Plural of the kind, with its subresource.
    pub(crate) resource: String,
    /// HTTP status, `refused` (by us, before it was sent) or `failed` (no answer).
    pub(crate) code: String,
}

/// Label of what belongs to one watch or queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Named {
    pub(crate) name: &'static str,
}

/// What this crate counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: Family<Asked, Counter>,
    pub(crate) watched: Family<Named, Gauge>,
    pub(crate) malformed: Family<Named, Gauge>,
    pub(crate) watch_failures: Family<Named, Counter>,
    pub(crate) added: Family<Named, Counter>,
    pub(crate) worked: Family<Named, Counter>,
    pub(crate) worked_again: Family<Named, Counter>,
    pub(crate) waiting: Family<Named, Gauge>,
    pub(crate) events_dropped: Counter,
    pub(crate) is_leading: Gauge,
}

/// The metrics of a program. Clones are the same metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    counts: Counts,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Metrics of this crate; a program adds its own with [`Metrics::register`].
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("albacore");
        let counts = Counts::default();
        counts.register(&mut registry);
        let registry = Arc::new(Mutex::new(registry));
        Self { registry, counts }
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `add` register further metrics; their names get the prefix `albacore_`.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.lock());
    }

    /// All metrics as text.
    ///
    /// # Errors
    /// A metric cannot be printed.
    pub fn text(&self) -> Result<String, Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.lock())?;
        Ok(text)
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }
}

impl Counts {
    fn register(&self, registry: &mut Registry) {
        // Destructured, so that no metric is counted and never shown (L9).
        let Self {
            requests,
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
        registry.register("watched_objects", "Objects that a watch knows", watched);
        let help = "Objects that a watch cannot read";
        registry.register("watched_malformed_objects", help, malformed);
        registry.register("watch_failures", "Failures of a watch", watch_failures);
        registry.register("queue_added", "Keys added to a queue", added);
        registry.register("queue_worked", "Keys worked on", worked);
        let help = "Keys worked on that have to be worked on again";
        registry.register("queue_worked_again", help, worked_again);
        registry.register("queue_waiting", "Keys that wait, due or not", waiting);
        let help = "Events that were not written: too many at once or of one object";
        registry.register("events_dropped", help, events_dropped);
        registry.register(
            "leading",
            "1 while this process holds its lease",
            is_leading,
        );
    }
}
