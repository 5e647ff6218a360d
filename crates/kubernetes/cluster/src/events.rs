//! The event recorder, which creates the events that `kubectl describe` shows.
//!
//! Recording never blocks. Repetitions are counted in the event's `series` (events.k8s.io), see
//! `event_dedup`. A program calls [`EventRecorder::flush`] during shutdown.

use std::time::{Duration, Instant};

use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube_client::Api;
use kube_client::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;

use crate::error::with_causes;
use crate::event_dedup::{DueCount, EventDecision, EventDedup};
use crate::limits::{
    EVENT_NAME_BYTES_MAX, EVENTS_FLUSH_TIME_MAX, EVENTS_QUEUE_MAX, NOTE_BYTES_MAX,
};
use crate::metrics::MetricsRegistry;
use crate::object_event::{ObjectEvent, Severity};
use crate::{Cluster, Shutdown};

/// A message to the writer.
#[derive(Debug)]
enum RecorderMessage {
    Record(Box<ObjectEvent>),
    /// Write all events and counts recorded before, then respond.
    Flush(oneshot::Sender<()>),
}

/// Records events. Clones write through the same queue.
#[derive(Clone, Debug)]
pub struct EventRecorder {
    queue: mpsc::Sender<RecorderMessage>,
    metrics: MetricsRegistry,
}

impl EventRecorder {
    pub(crate) fn start(cluster: &Cluster, shutdown: &Shutdown) -> Self {
        let (queue, messages) = mpsc::channel(EVENTS_QUEUE_MAX);
        let metrics = cluster.control.metrics().clone();
        let writer = Writer {
            cluster: cluster.clone(),
            dedup: EventDedup::default(),
            instance: crate::unique(cluster.manager),
            number: 0,
        };
        // Events that are recorded during shutdown are written, too.
        shutdown.spawn_until_runtime_drop("events", writer.run(messages));
        Self { queue, metrics }
    }

    /// Records an event. Never blocks: if the queue is full, the event is dropped and counted.
    pub fn record(&self, event: ObjectEvent) {
        if self
            .queue
            .try_send(RecorderMessage::Record(Box::new(event)))
            .is_err()
        {
            self.metrics.own().events_dropped.inc();
        }
    }

    /// Waits until all recorded events are written, at most `EVENTS_FLUSH_TIME_MAX`. A program
    /// calls it during shutdown while it is still allowed to write.
    pub async fn flush(&self) {
        let (sender, receiver) = oneshot::channel();
        let flushed = async {
            self.queue.send(RecorderMessage::Flush(sender)).await.ok()?;
            receiver.await.ok()
        };
        let flushed = tokio::time::timeout(EVENTS_FLUSH_TIME_MAX, flushed).await;
        if !matches!(flushed, Ok(Some(()))) {
            tracing::warn!("some events were not written in time and are lost");
        }
    }
}

struct Writer {
    cluster: Cluster,
    dedup: EventDedup,
    instance: String,
    number: u64,
}

impl Writer {
    async fn run(mut self, mut messages: mpsc::Receiver<RecorderMessage>) {
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // bound: until the last recorder is dropped.
        loop {
            tokio::select! {
                message = messages.recv() => match message {
                    Some(RecorderMessage::Record(event)) => self.handle_event(*event).await,
                    Some(RecorderMessage::Flush(sender)) => {
                        for due in self.dedup.all_unwritten(Instant::now()) {
                            self.count(due).await;
                        }
                        // The caller may have stopped waiting.
                        let _ = sender.send(());
                    }
                    None => return,
                },
                _ = tick.tick() => {
                    for due in self.dedup.due(Instant::now()) {
                        self.count(due).await;
                    }
                }
            }
        }
    }

    async fn handle_event(&mut self, event: ObjectEvent) {
        match self.dedup.record(&event, Instant::now()) {
            EventDecision::Counted => {}
            EventDecision::Dropped => {
                self.cluster.control.metrics().own().events_dropped.inc();
            }
            EventDecision::Write(key) => {
                let event = self.event(event);
                let namespace = event.metadata.namespace.clone().unwrap_or_default();
                let name = event.metadata.name.clone().unwrap_or_default();
                let api = self.api(&namespace);
                match api.create(&PostParams::default(), &event).await {
                    Ok(_) => self.dedup.set_written(&key, &namespace, &name),
                    Err(error) => {
                        self.dedup.remove(&key);
                        let error = with_causes(&error);
                        tracing::debug!(error, name, "an event could not be written");
                    }
                }
            }
        }
    }

    async fn count(&mut self, due: DueCount) {
        let DueCount {
            key,
            namespace,
            event,
            count,
        } = due;
        let series = EventSeries {
            count,
            last_observed_time: MicroTime(Timestamp::now()),
        };
        let patch = Patch::Merge(json!({ "series": series }));
        let api = self.api(&namespace);
        if let Err(error) = api.patch(&event, &PatchParams::default(), &patch).await {
            // The event has probably expired; the next one starts a new series.
            self.dedup.remove(&key);
            let error = with_causes(&error);
            tracing::debug!(error, event, "the count of an event could not be written");
        }
    }

    fn api(&self, namespace: &str) -> Api<Event> {
        Api::namespaced(self.cluster.client.clone(), namespace)
    }

    fn event(&mut self, event: ObjectEvent) -> Event {
        let ObjectEvent {
            regarding,
            severity,
            reason,
            action,
            note,
        } = event;
        let now = Timestamp::now();
        self.number += 1;
        let object = regarding.name.as_deref().unwrap_or("object");
        let object = cut(object, EVENT_NAME_BYTES_MAX).trim_end_matches(['.', '-']);
        let name = format!("{object}.{:x}{:x}", now.as_microsecond(), self.number);
        // By convention, events on cluster-scoped objects are stored in this namespace.
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

/// The first `bytes` bytes of a text, truncated at a character boundary.
fn cut(text: &str, bytes: usize) -> &str {
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    &text[..ends.take_while(|&end| end <= bytes).last().unwrap_or(0)]
}
