//! Events: what happened to an object, for `kubectl describe`.
//!
//! Whoever tells one does not wait. Repetitions are counted in `series` (events.k8s.io), see
//! `series`. A program that stops waits for what was told, see [`Events::flush`].

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube_client::Api;
use kube_client::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;

use crate::error::with_causes;
use crate::limits::{
    EVENT_NAME_BYTES_MAX, EVENTS_FLUSH_TIME_MAX, EVENTS_QUEUE_MAX, NOTE_BYTES_MAX,
};
use crate::metrics::Metrics;
use crate::series::{Repeated, SeriesBook, Verdict};
use crate::{Cluster, Shutdown};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// As it should be.
    Normal,
    Warning,
}

/// Something that happened to an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Happening {
    /// The object; `Resource::object_ref` makes it.
    pub regarding: ObjectReference,
    /// How bad it is.
    pub severity: Severity,
    /// Why, as one word in CamelCase that never changes: alerts depend on it.
    pub reason: &'static str,
    /// What was done or tried, as one word in CamelCase.
    pub action: &'static str,
    /// A sentence for people.
    pub note: String,
}

/// What the writer is sent.
#[derive(Debug)]
enum Order {
    Tell(Box<Happening>),
    /// Everything that was told before is to be written, counts too; then this is answered.
    Flush(oneshot::Sender<()>),
}

/// Where events are told. Clones write through the same queue.
#[derive(Clone, Debug)]
pub struct Events {
    queue: mpsc::Sender<Order>,
    metrics: Metrics,
}

impl Events {
    pub(crate) fn start(cluster: &Cluster, shutdown: &Shutdown) -> Self {
        let (queue, orders) = mpsc::channel(EVENTS_QUEUE_MAX);
        let metrics = cluster.keeper.metrics().clone();
        let writer = Writer {
            cluster: cluster.clone(),
            book: SeriesBook::default(),
            instance: crate::unique(cluster.manager),
            number: 0,
        };
        // What is told while the program stops is written, too.
        shutdown.spawn_to_the_end("events", writer.run(orders));
        Self { queue, metrics }
    }

    /// Tells what happened. Never waits: what does not fit is dropped and counted.
    pub fn tell(&self, happening: Happening) {
        if self
            .queue
            .try_send(Order::Tell(Box::new(happening)))
            .is_err()
        {
            self.metrics.counts().events_dropped.inc();
        }
    }

    /// Returns when everything that was told is written, or [`EVENTS_FLUSH_TIME_MAX`] is over; for
    /// a program that stops, while it still may write.
    pub async fn flush(&self) {
        let (answer, answered) = oneshot::channel();
        let flushed = async {
            self.queue.send(Order::Flush(answer)).await.ok()?;
            answered.await.ok()
        };
        let flushed = tokio::time::timeout(EVENTS_FLUSH_TIME_MAX, flushed).await;
        if !matches!(flushed, Ok(Some(()))) {
            tracing::warn!("some events were not written in time and are lost");
        }
    }
}

struct Writer {
    cluster: Cluster,
    book: SeriesBook,
    instance: String,
    number: u64,
}

impl Writer {
    async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // bound: until nobody can tell anything any more.
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Tell(happening)) => self.take(*happening).await,
                    Some(Order::Flush(answer)) => {
                        for repeated in self.book.rest(Instant::now()) {
                            self.count(repeated).await;
                        }
                        // Whoever asked may have waited long enough.
                        let _ = answer.send(());
                    }
                    None => return,
                },
                _ = tick.tick() => {
                    for repeated in self.book.due(Instant::now()) {
                        self.count(repeated).await;
                    }
                }
            }
        }
    }

    async fn take(&mut self, happening: Happening) {
        match self.book.note(&happening, Instant::now()) {
            Verdict::Counted => {}
            Verdict::Dropped => {
                self.cluster.keeper.metrics().counts().events_dropped.inc();
            }
            Verdict::Create(key) => {
                let event = self.event(happening);
                let namespace = event.metadata.namespace.clone().unwrap_or_default();
                let name = event.metadata.name.clone().unwrap_or_default();
                let api = self.api(&namespace);
                match api.create(&PostParams::default(), &event).await {
                    Ok(_) => self.book.written(&key, &namespace, &name),
                    Err(error) => {
                        self.book.forget(&key);
                        let error = with_causes(&error);
                        tracing::debug!(error, name, "an event could not be written");
                    }
                }
            }
        }
    }

    async fn count(&mut self, repeated: Repeated) {
        let Repeated {
            key,
            namespace,
            event,
            count,
        } = repeated;
        let series = EventSeries {
            count,
            last_observed_time: MicroTime(Timestamp::now()),
        };
        let patch = Patch::Merge(json!({ "series": series }));
        let api = self.api(&namespace);
        if let Err(error) = api.patch(&event, &PatchParams::default(), &patch).await {
            // It expired, most likely: the next one begins a new series.
            self.book.forget(&key);
            let error = with_causes(&error);
            tracing::debug!(error, event, "the count of an event could not be written");
        }
    }

    fn api(&self, namespace: &str) -> Api<Event> {
        Api::namespaced(self.cluster.client.clone(), namespace)
    }

    fn event(&mut self, happening: Happening) -> Event {
        let Happening {
            regarding,
            severity,
            reason,
            action,
            note,
        } = happening;
        let now = Timestamp::now();
        self.number += 1;
        let object = regarding.name.as_deref().unwrap_or("object");
        let object = cut(object, EVENT_NAME_BYTES_MAX).trim_end_matches(['.', '-']);
        let name = format!("{object}.{:x}{:x}", now.as_microsecond(), self.number);
        // Events of objects without a namespace are written into this one by everybody.
        let namespace = regarding.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| "default".to_owned());
        let metadata = ObjectMeta {
            name: Some(name),
            namespace: Some(namespace),
            ..ObjectMeta::default()
        };
        let severity = match severity {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        };
        Event {
            metadata,
            action: Some(action.to_owned()),
            event_time: Some(MicroTime(now)),
            note: Some(cut(&note, NOTE_BYTES_MAX).to_owned()),
            reason: Some(reason.to_owned()),
            regarding: Some(regarding),
            reporting_controller: Some(self.cluster.manager.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(severity.to_owned()),
            ..Event::default()
        }
    }
}

/// The beginning of a text, at most `bytes` long.
fn cut(text: &str, bytes: usize) -> &str {
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    &text[..ends.take_while(|&end| end <= bytes).last().unwrap_or(0)]
}
