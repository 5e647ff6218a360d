//! Respawns of worker processes: how many were recent, and when an event reports them. Pure; time
//! is an argument.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::limits::{RESPAWN_EVENT_PAUSE, RESPAWN_WINDOW};
use crate::observed::ObservedPod;

/// The respawns of one deployment.
#[derive(Debug, Default)]
pub(crate) struct Respawns {
    /// The last reported count of each pod, by uid.
    last_counts: BTreeMap<String, i64>,
    /// Respawns of the last [`RESPAWN_WINDOW`], with the time when they were observed.
    recent: VecDeque<(Instant, i64)>,
    /// Respawns that were observed and not reported by an event yet.
    unreported: i64,
    reported_at: Option<Instant>,
    /// Pod and cause of the last respawn.
    last: Option<String>,
}

/// The recent respawns that the status reports.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct RecentRespawns {
    /// Within the last `RESPAWN_WINDOW`.
    pub(crate) count: i64,
    /// Pod and cause of the last observed respawn.
    pub(crate) last: Option<String>,
}

impl Respawns {
    /// Records the counts of the pods at `now`. The age of a pod's first count is unknown, so only
    /// increases count as recent.
    pub(crate) fn record(&mut self, pods: &[ObservedPod], now: Instant) -> RecentRespawns {
        let mut last_counts = BTreeMap::new();
        let mut added = 0;
        for pod in pods {
            let before = self.last_counts.get(&pod.uid).copied();
            let Some(reported) = pod.respawns() else {
                // A server that temporarily does not respond keeps its count.
                last_counts.extend(before.map(|count| (pod.uid.clone(), count)));
                continue;
            };
            // The count of a restarted server starts from zero.
            let more = match before {
                Some(before) if reported.count >= before => reported.count - before,
                Some(_) => reported.count,
                None => 0,
            };
            if more > 0 {
                added += more;
                self.last = Some(format!("{}: {}", pod.name, reported.cause));
            }
            last_counts.insert(pod.uid.clone(), reported.count);
        }
        self.last_counts = last_counts;
        self.unreported += added;
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

    /// The note of an event that is due at `now`: the first respawn is reported immediately, later
    /// ones are aggregated.
    pub(crate) fn event(&mut self, now: Instant) -> Option<String> {
        if self.unreported == 0 || self.event_due(now) != Some(Duration::ZERO) {
            return None;
        }
        let note = format!(
            "worker processes that ended and were replaced: {}; last: {}",
            std::mem::take(&mut self.unreported),
            self.last.as_deref().unwrap_or_default()
        );
        self.reported_at = Some(now);
        Some(note)
    }

    /// When to check again: for a pending event, or for a count that leaves the window.
    pub(crate) fn due(&self, now: Instant) -> Option<Duration> {
        let ages = self
            .recent
            .front()
            .map(|(at, _)| RESPAWN_WINDOW.saturating_sub(now.duration_since(*at)));
        self.event_due(now).into_iter().chain(ages).min()
    }

    fn event_due(&self, now: Instant) -> Option<Duration> {
        let age = self.reported_at.map(|at| now.duration_since(at));
        let left = age.map_or(Duration::ZERO, |age| {
            RESPAWN_EVENT_PAUSE.saturating_sub(age)
        });
        (self.unreported > 0).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_state::{ServerState, WorkerStates};

    fn pod(restarts: i64) -> ObservedPod {
        ObservedPod {
            name: "p".to_owned(),
            uid: "u".to_owned(),
            state: Some(ServerState {
                workers: WorkerStates {
                    restarts,
                    last_exit: Some("signal 9".to_owned()),
                    ..WorkerStates::default()
                },
                ..ServerState::default()
            }),
            ..ObservedPod::default()
        }
    }

    #[test]
    fn the_first_respawn_is_reported_immediately_and_later_ones_are_aggregated() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut respawns = Respawns::default();
        // Of unknown age: from before the first observation.
        assert_eq!(respawns.record(&[pod(7)], at(0)).count, 0);
        assert_eq!(respawns.event(at(0)), None);
        respawns.record(&[pod(8)], at(1));
        let note = respawns.event(at(1)).unwrap();
        assert!(note.ends_with("replaced: 1; last: p: signal 9"), "{note}");
        respawns.record(&[pod(20)], at(2));
        respawns.record(
            &[ObservedPod {
                state: None,
                ..pod(0)
            }],
            at(3),
        );
        assert_eq!(respawns.record(&[pod(38)], at(4)).count, 31);
        assert_eq!(respawns.event(at(4)), None);
        let wait = respawns.due(at(4)).unwrap();
        assert_eq!(wait, RESPAWN_EVENT_PAUSE - Duration::from_secs(3));
        let note = respawns.event(at(4) + wait).unwrap();
        assert!(note.contains("replaced: 30;"), "{note}");
        // The server was restarted.
        assert_eq!(respawns.record(&[pod(2)], at(5)).count, 33);
        let later = at(5) + RESPAWN_WINDOW;
        assert_eq!(respawns.record(&[pod(2)], later).count, 0);
    }
}
