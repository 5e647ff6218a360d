//! Deduplicates events: the first event of a series is written immediately; its repetitions are
//! counted, and the count is written with increasing pauses.
//!
//! Time is an argument.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;

use crate::limits::{
    EVENT_SERIES_MAX, EVENT_SERIES_QUIET, EVENT_WRITE_PAUSE_MAX, EVENT_WRITE_PAUSE_MIN,
    EVENTS_OF_AN_OBJECT_MAX,
};
use crate::object_event::{ObjectEvent, Severity};

/// Events with equal keys are repetitions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SeriesKey {
    uid: Option<String>,
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    severity: Severity,
    reason: &'static str,
    note: String,
}

impl SeriesKey {
    fn of(event: &ObjectEvent) -> Self {
        let ObjectEvent {
            regarding,
            severity,
            reason,
            note,
            ..
        } = event;
        Self {
            uid: regarding.uid.clone(),
            kind: regarding.kind.clone(),
            namespace: regarding.namespace.clone(),
            name: regarding.name.clone(),
            severity: *severity,
            reason,
            note: note.clone(),
        }
    }

    fn is_of(&self, regarding: &ObjectReference) -> bool {
        self.uid == regarding.uid
            && self.kind == regarding.kind
            && self.namespace == regarding.namespace
            && self.name == regarding.name
    }
}

/// The decision about a recorded event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EventDecision {
    /// The first of its series, to be written now.
    Write(SeriesKey),
    /// A repetition that was counted; the count is written later.
    Counted,
    /// Dropped, because the object has too many different events.
    Dropped,
}

/// A count that is due to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DueCount {
    pub(crate) key: SeriesKey,
    pub(crate) namespace: String,
    /// Name of the first event of the series.
    pub(crate) event: String,
    pub(crate) count: i32,
}

#[derive(Debug)]
struct Series {
    /// Namespace and name of the first event, once it is written.
    written: Option<(String, String)>,
    count: i32,
    count_written: i32,
    last: Instant,
    next_write: Instant,
    pause: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct EventDedup {
    entries: HashMap<SeriesKey, Series>,
}

impl EventDedup {
    pub(crate) fn record(&mut self, event: &ObjectEvent, now: Instant) -> EventDecision {
        self.entries
            .retain(|_, entry| now < entry.last + EVENT_SERIES_QUIET);
        let key = SeriesKey::of(event);
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.count = entry.count.saturating_add(1);
            entry.last = now;
            return EventDecision::Counted;
        }
        let of_object = self
            .entries
            .keys()
            .filter(|key| key.is_of(&event.regarding));
        if of_object.count() >= EVENTS_OF_AN_OBJECT_MAX {
            return EventDecision::Dropped;
        }
        if self.entries.len() >= EVENT_SERIES_MAX {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.last);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.entries.remove(&oldest);
            }
        }
        let entry = Series {
            written: None,
            count: 1,
            count_written: 1,
            last: now,
            next_write: now + EVENT_WRITE_PAUSE_MIN,
            pause: EVENT_WRITE_PAUSE_MIN,
        };
        self.entries.insert(key.clone(), entry);
        EventDecision::Write(key)
    }

    /// Records the name of the first event of a series.
    pub(crate) fn set_written(&mut self, key: &SeriesKey, namespace: &str, event: &str) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.written = Some((namespace.to_owned(), event.to_owned()));
        }
    }

    /// Removes a series whose event could not be written; the next event starts a new series.
    pub(crate) fn remove(&mut self, key: &SeriesKey) {
        self.entries.remove(key);
    }

    /// Returns the counts that are due; the pause of each is doubled.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<DueCount> {
        self.unwritten(now, |entry| entry.next_write <= now)
    }

    /// Returns all counts that were not written yet, for shutdown.
    pub(crate) fn all_unwritten(&mut self, now: Instant) -> Vec<DueCount> {
        self.unwritten(now, |_| true)
    }

    fn unwritten(&mut self, now: Instant, is_wanted: impl Fn(&Series) -> bool) -> Vec<DueCount> {
        let mut found = Vec::new();
        for (key, entry) in &mut self.entries {
            let is_wanted = entry.count > entry.count_written && is_wanted(entry);
            if is_wanted && let Some((namespace, event)) = entry.written.clone() {
                entry.count_written = entry.count;
                entry.pause = (entry.pause * 2).min(EVENT_WRITE_PAUSE_MAX);
                entry.next_write = now + entry.pause;
                found.push(DueCount {
                    key: key.clone(),
                    namespace,
                    event,
                    count: entry.count,
                });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, note: &str) -> ObjectEvent {
        let regarding = ObjectReference {
            name: Some(name.to_owned()),
            ..ObjectReference::default()
        };
        ObjectEvent {
            regarding,
            severity: Severity::Warning,
            reason: "Failed",
            action: "Apply",
            note: note.to_owned(),
        }
    }

    #[test]
    fn a_failure_that_repeats_all_day_is_written_rarely_and_counted_in_full() {
        let mut dedup = EventDedup::default();
        let start = Instant::now();
        let first = dedup.record(&event("x", "no"), start);
        let EventDecision::Write(key) = first else {
            panic!("{first:?}")
        };
        dedup.set_written(&key, "a", "x.1");
        let mut writes = Vec::new();
        for second in 1..=86_400 {
            let now = start + Duration::from_secs(second);
            assert_eq!(dedup.record(&event("x", "no"), now), EventDecision::Counted);
            writes.extend(dedup.due(now).into_iter().map(|due| due.count));
        }
        assert_eq!(writes[..4], [3, 7, 15, 31]);
        assert!(writes.len() < 160, "{}", writes.len());
        assert!(*writes.last().unwrap() > 85_000);
    }

    #[test]
    fn a_series_ends_when_it_was_quiet() {
        let mut dedup = EventDedup::default();
        let start = Instant::now();
        assert!(matches!(
            dedup.record(&event("x", "no"), start),
            EventDecision::Write(_)
        ));
        let later = start + EVENT_SERIES_QUIET;
        assert!(matches!(
            dedup.record(&event("x", "no"), later),
            EventDecision::Write(_)
        ));
    }

    #[test]
    fn events_of_one_object_and_of_all_are_bounded() {
        let mut dedup = EventDedup::default();
        let now = Instant::now();
        let notes: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let dropped = notes
            .iter()
            .filter(|note| dedup.record(&event("x", note), now) == EventDecision::Dropped);
        assert_eq!(dropped.count(), 100 - EVENTS_OF_AN_OBJECT_MAX);
        for n in 0..3000 {
            let decision = dedup.record(&event(&format!("y{n}"), "no"), now);
            assert!(matches!(decision, EventDecision::Write(_)));
        }
        assert_eq!(dedup.entries.len(), EVENT_SERIES_MAX);
    }

    #[test]
    fn an_event_that_could_not_be_written_begins_a_new_series() {
        let mut dedup = EventDedup::default();
        let now = Instant::now();
        let EventDecision::Write(key) = dedup.record(&event("x", "no"), now) else {
            panic!("the first one is written")
        };
        dedup.remove(&key);
        assert!(matches!(
            dedup.record(&event("x", "no"), now),
            EventDecision::Write(_)
        ));
    }
}
