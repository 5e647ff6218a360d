//! Worker processes that ended and were replaced: how many lately, and when an event tells it.
//! Pure; time is an argument.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::limits::{RESPAWN_EVENT_PAUSE, RESPAWN_WINDOW};
use crate::observed::PodSeen;

/// What is known of the respawns of one deployment.
#[derive(Debug, Default)]
pub(crate) struct Respawns {
    /// The counts of its pods as they were seen last, by uid.
    seen: BTreeMap<String, i64>,
    /// Respawns of the last [`RESPAWN_WINDOW`], by when they were noticed.
    recent: VecDeque<(Instant, i64)>,
    /// Noticed and not told by an event yet.
    untold: i64,
    told_at: Option<Instant>,
    /// The last pod and cause.
    last: Option<String>,
}

/// What the status says of respawns.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RecentRespawns {
    /// Within the last [`RESPAWN_WINDOW`].
    pub count: i64,
    /// Pod and cause of the last one that was noticed.
    pub last: Option<String>,
}

impl Respawns {
    /// Takes in what the pods say at `now`. The counts of a pod that is seen for the first time are
    /// of no known time: only what is added to them counts as recent.
    pub(crate) fn note(&mut self, pods: &[PodSeen], now: Instant) -> RecentRespawns {
        let mut seen = BTreeMap::new();
        let mut added = 0;
        for pod in pods {
            let before = self.seen.get(&pod.uid).copied();
            let Some(told) = pod.respawns() else {
                // A server that is silent for a moment.
                seen.extend(before.map(|count| (pod.uid.clone(), count)));
                continue;
            };
            // A server that was started anew counts from zero.
            let more = match before {
                Some(before) if told.count >= before => told.count - before,
                Some(_) => told.count,
                None => 0,
            };
            if more > 0 {
                added += more;
                self.last = Some(format!("{}: {}", pod.name, told.cause));
            }
            seen.insert(pod.uid.clone(), told.count);
        }
        self.seen = seen;
        self.untold += added;
        if added > 0 {
            self.recent.push_back((now, added));
        }
        let is_old = |at: Instant| now.duration_since(at) >= RESPAWN_WINDOW;
        while self.recent.front().is_some_and(|(at, _)| is_old(*at)) {
            self.recent.pop_front();
        }
        RecentRespawns {
            count: self.recent.iter().map(|(_, count)| count).sum(),
            last: self.last.clone(),
        }
    }

    /// The note of an event that is due at `now`: the first at once, those after it together.
    pub(crate) fn event(&mut self, now: Instant) -> Option<String> {
        if self.untold == 0 || self.event_due(now) != Some(Duration::ZERO) {
            return None;
        }
        let note = format!(
            "worker processes that ended and were replaced: {}; last: {}",
            std::mem::take(&mut self.untold),
            self.last.as_deref().unwrap_or_default()
        );
        self.told_at = Some(now);
        Some(note)
    }

    /// When to look again: for an event that waits, or a count that ages.
    pub(crate) fn due(&self, now: Instant) -> Option<Duration> {
        let ages = self
            .recent
            .front()
            .map(|(at, _)| RESPAWN_WINDOW.saturating_sub(now.duration_since(*at)));
        self.event_due(now).into_iter().chain(ages).min()
    }

    fn event_due(&self, now: Instant) -> Option<Duration> {
        let age = self.told_at.map(|at| now.duration_since(at));
        let left = age.map_or(Duration::ZERO, |age| {
            RESPAWN_EVENT_PAUSE.saturating_sub(age)
        });
        (self.untold > 0).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{ServerState, Workers};

    fn pod(restarts: i64) -> PodSeen {
        PodSeen {
            name: "p".to_owned(),
            uid: "u".to_owned(),
            state: Some(ServerState {
                workers: Workers {
                    restarts,
                    last_end: Some("signal 9".to_owned()),
                    ..Workers::default()
                },
                ..ServerState::default()
            }),
            ..PodSeen::default()
        }
    }

    #[test]
    fn deaths_are_told_at_once_then_together_and_forgotten() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut respawns = Respawns::default();
        // Of an unknown time: before this process looked.
        assert_eq!(respawns.note(&[pod(7)], at(0)).count, 0);
        assert_eq!(respawns.event(at(0)), None);
        respawns.note(&[pod(8)], at(1));
        let note = respawns.event(at(1)).unwrap();
        assert!(note.ends_with("replaced: 1; last: p: signal 9"), "{note}");
        respawns.note(&[pod(20)], at(2));
        respawns.note(
            &[PodSeen {
                state: None,
                ..pod(0)
            }],
            at(3),
        );
        assert_eq!(respawns.note(&[pod(38)], at(4)).count, 31);
        assert_eq!(respawns.event(at(4)), None);
        let wait = respawns.due(at(4)).unwrap();
        assert_eq!(wait, RESPAWN_EVENT_PAUSE - Duration::from_secs(3));
        let note = respawns.event(at(4) + wait).unwrap();
        assert!(note.contains("replaced: 30;"), "{note}");
        // The server was started anew.
        assert_eq!(respawns.note(&[pod(2)], at(5)).count, 33);
        let later = at(5) + RESPAWN_WINDOW;
        assert_eq!(respawns.note(&[pod(2)], later).count, 0);
    }
}
