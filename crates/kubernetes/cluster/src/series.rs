//! Which events are written: the first of a series at once, its repetitions counted and written
//! ever more rarely.
//!
//! Time is an argument.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;

use crate::events::{Happening, Severity};
use crate::limits::{
    EVENT_SERIES_MAX, EVENT_SERIES_QUIET, EVENT_WRITE_PAUSE_MAX, EVENT_WRITE_PAUSE_MIN,
    EVENTS_OF_AN_OBJECT_MAX,
};

/// What makes two events the same.
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
    fn of(happening: &Happening) -> Self {
        let Happening {
            regarding,
            severity,
            reason,
            note,
            ..
        } = happening;
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

/// What to do about an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The first of its series: write it.
    Create(SeriesKey),
    /// It is counted, and written later.
    Counted,
    /// The object has too many different ones.
    Dropped,
}

/// A count that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Repeated {
    pub(crate) key: SeriesKey,
    pub(crate) namespace: String,
    /// Name of the event that was written first.
    pub(crate) event: String,
    pub(crate) count: i32,
}

#[derive(Debug)]
struct Entry {
    /// Namespace and name of the event, once it is written.
    written: Option<(String, String)>,
    count: i32,
    count_written: i32,
    last: Instant,
    next_write: Instant,
    pause: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct SeriesBook {
    entries: HashMap<SeriesKey, Entry>,
}

impl SeriesBook {
    pub(crate) fn note(&mut self, happening: &Happening, now: Instant) -> Verdict {
        self.entries
            .retain(|_, entry| now < entry.last + EVENT_SERIES_QUIET);
        let key = SeriesKey::of(happening);
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.count = entry.count.saturating_add(1);
            entry.last = now;
            return Verdict::Counted;
        }
        let of_object = self
            .entries
            .keys()
            .filter(|key| key.is_of(&happening.regarding));
        if of_object.count() >= EVENTS_OF_AN_OBJECT_MAX {
            return Verdict::Dropped;
        }
        if self.entries.len() >= EVENT_SERIES_MAX {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.last);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.entries.remove(&oldest);
            }
        }
        let entry = Entry {
            written: None,
            count: 1,
            count_written: 1,
            last: now,
            next_write: now + EVENT_WRITE_PAUSE_MIN,
            pause: EVENT_WRITE_PAUSE_MIN,
        };
        self.entries.insert(key.clone(), entry);
        Verdict::Create(key)
    }

    /// The first event of a series was written under this name.
    pub(crate) fn written(&mut self, key: &SeriesKey, namespace: &str, event: &str) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.written = Some((namespace.to_owned(), event.to_owned()));
        }
    }

    /// The event of a series could not be written: the next one begins a new series.
    pub(crate) fn forget(&mut self, key: &SeriesKey) {
        self.entries.remove(key);
    }

    /// Counts that are due; each is due again only after twice the pause.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<Repeated> {
        self.unwritten(now, |entry| entry.next_write <= now)
    }

    /// Every count that was not written, for a program that stops.
    pub(crate) fn rest(&mut self, now: Instant) -> Vec<Repeated> {
        self.unwritten(now, |_| true)
    }

    fn unwritten(&mut self, now: Instant, is_wanted: impl Fn(&Entry) -> bool) -> Vec<Repeated> {
        let mut found = Vec::new();
        for (key, entry) in &mut self.entries {
            let is_wanted = entry.count > entry.count_written && is_wanted(entry);
            if is_wanted && let Some((namespace, event)) = entry.written.clone() {
                entry.count_written = entry.count;
                entry.pause = (entry.pause * 2).min(EVENT_WRITE_PAUSE_MAX);
                entry.next_write = now + entry.pause;
                found.push(Repeated {
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

    fn happening(name: &str, note: &str) -> Happening {
        let regarding = ObjectReference {
            name: Some(name.to_owned()),
            ..ObjectReference::default()
        };
        Happening {
            regarding,
            severity: Severity::Warning,
            reason: "Failed",
            action: "Apply",
            note: note.to_owned(),
        }
    }

    #[test]
    fn a_failure_that_repeats_all_day_is_written_rarely_and_counted_in_full() {
        let mut book = SeriesBook::default();
        let start = Instant::now();
        let first = book.note(&happening("x", "no"), start);
        let Verdict::Create(key) = first else {
            panic!("{first:?}")
        };
        book.written(&key, "a", "x.1");
        let mut writes = Vec::new();
        for second in 1..=86_400 {
            let now = start + Duration::from_secs(second);
            assert_eq!(book.note(&happening("x", "no"), now), Verdict::Counted);
            writes.extend(book.due(now).into_iter().map(|repeated| repeated.count));
        }
        assert_eq!(writes[..4], [3, 7, 15, 31]);
        assert!(writes.len() < 160, "{}", writes.len());
        assert!(*writes.last().unwrap() > 85_000);
    }

    #[test]
    fn a_series_ends_when_it_was_quiet() {
        let mut book = SeriesBook::default();
        let start = Instant::now();
        assert!(matches!(
            book.note(&happening("x", "no"), start),
            Verdict::Create(_)
        ));
        let later = start + EVENT_SERIES_QUIET;
        assert!(matches!(
            book.note(&happening("x", "no"), later),
            Verdict::Create(_)
        ));
    }

    #[test]
    fn one_object_cannot_flood_and_all_of_them_are_bounded() {
        let mut book = SeriesBook::default();
        let now = Instant::now();
        let notes: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let dropped = notes
            .iter()
            .filter(|note| book.note(&happening("x", note), now) == Verdict::Dropped);
        assert_eq!(dropped.count(), 100 - EVENTS_OF_AN_OBJECT_MAX);
        for n in 0..3000 {
            let verdict = book.note(&happening(&format!("y{n}"), "no"), now);
            assert!(matches!(verdict, Verdict::Create(_)));
        }
        assert_eq!(book.entries.len(), EVENT_SERIES_MAX);
    }

    #[test]
    fn an_event_that_could_not_be_written_is_tried_anew() {
        let mut book = SeriesBook::default();
        let now = Instant::now();
        let Verdict::Create(key) = book.note(&happening("x", "no"), now) else {
            panic!("the first one is written")
        };
        book.forget(&key);
        assert!(matches!(
            book.note(&happening("x", "no"), now),
            Verdict::Create(_)
        ));
    }
}
