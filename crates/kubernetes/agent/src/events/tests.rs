//! Each change emits one event; a problem emits another one only after it was resolved.

use std::time::Duration;

use albacore_api::DriftCause;
use albacore_os::Pid;
use albacore_placer::SlotState;

use super::*;
use crate::facts::{Health, Reason};
use crate::placer_stats::BackOffSummary;
use crate::pods_for_tests::{opted_in_pod, pod_facts, policy, row};

/// A pod with two workers of one thread each.
fn pod() -> PodFacts {
    let rows = (0..2).map(|worker| row(worker, 0, 0, SlotState::Verified));
    pod_facts(opted_in_pod("a", "u"), policy(2, 1), rows.collect())
}

fn facts(pod: &PodFacts) -> NodeFacts {
    NodeFacts {
        pods: vec![pod.clone()],
        topology: 1,
        machine: None,
        spawns: Default::default(),
        drifts: 0,
        health: Health::default(),
        verified_at: None,
    }
}

struct Observer {
    event_tracker: EventTracker,
    now: Instant,
}

impl Observer {
    fn at(&mut self, facts: &NodeFacts, seconds: u64) -> Vec<&'static str> {
        let now = self.now + Duration::from_secs(seconds);
        let events = self
            .event_tracker
            .new_events(facts, &Default::default(), now);
        events.into_iter().map(|event| event.reason).collect()
    }
}

fn observer() -> Observer {
    Observer {
        event_tracker: EventTracker::default(),
        now: Instant::now(),
    }
}

#[test]
fn masks_given_back_by_a_change_to_observe_make_one_event() {
    let (mut observer, mut pod) = (observer(), pod());
    observer.at(&facts(&pod), 0);
    pod.stats.released = 4;
    assert_eq!(observer.at(&facts(&pod), 1), ["PlacementRestored"]);
    assert!(observer.at(&facts(&pod), 2).is_empty());
}

#[test]
fn a_pod_is_reported_verified_once_and_again_after_a_drift() {
    let (mut observer, mut pod) = (observer(), pod());
    assert_eq!(observer.at(&facts(&pod), 0), ["PlacementVerified"]);
    assert!(observer.at(&facts(&pod), 1).is_empty());
    pod.rows[0].state = SlotState::Drifted;
    pod.stats.drifts = 1;
    pod.stats.cause = Some(DriftCause::CpusetChange);
    assert_eq!(observer.at(&facts(&pod), 2), ["PlacementDrifted"]);
    pod.rows[0].state = SlotState::Verified;
    assert_eq!(observer.at(&facts(&pod), 3), ["PlacementVerified"]);
}

#[test]
fn foreign_writes_and_widenings_have_reasons_of_their_own() {
    let (mut observer, mut pod) = (observer(), pod());
    observer.at(&facts(&pod), 0);
    (pod.stats.drifts, pod.stats.foreign) = (1, 1);
    assert_eq!(observer.at(&facts(&pod), 1), ["ForeignPinning"]);
    (pod.stats.drifts, pod.stats.widened) = (2, 1);
    assert_eq!(
        observer.at(&facts(&pod), 2),
        ["PlacementDrifted", "MaskWidened"]
    );
    pod.stats.back_offs = 1;
    pod.stats.back_off = Some(BackOffSummary {
        changes: 4,
        seconds: 3,
        retry_at: "2026-11-23T08:00:00Z".parse().unwrap(),
    });
    let now = observer.now;
    let events = observer
        .event_tracker
        .clone()
        .new_events(&facts(&pod), &Default::default(), now);
    assert!(
        events[0].note.starts_with(
            "another process (the kernel does not report which) changed the mask of a thread 4 \
             times in 3 s; such threads are not pinned until 2026-11-23T08:00:00Z. Stop"
        ) && events[0]
            .note
            .ends_with("restart of the pod retries immediately"),
        "{events:?}"
    );
    assert_eq!(observer.at(&facts(&pod), 3), ["ForeignPinning"]);
    pod.stats.is_inherited = true;
    assert_eq!(observer.at(&facts(&pod), 4), ["ForeignPinning"]);
    assert!(observer.at(&facts(&pod), 5).is_empty());
}

#[test]
fn missing_workers_are_reported_when_a_respawn_cannot_explain_them() {
    let (mut observer, mut pod) = (observer(), pod());
    observer.at(&facts(&pod), 0);
    (pod.rows[1].pid, pod.rows[1].state) = (None, SlotState::Missing);
    assert!(observer.at(&facts(&pod), 1).is_empty());
    let late = 1 + MISSING_TIME.as_secs();
    assert_eq!(observer.at(&facts(&pod), late), ["WorkersMissing"]);
    assert!(observer.at(&facts(&pod), late + 1).is_empty());
    // A worker that returns and disappears again within the time limit is a respawn.
    (pod.rows[1].pid, pod.rows[1].state) = (Some(Pid(2)), SlotState::Verified);
    assert_eq!(observer.at(&facts(&pod), late + 2), ["PlacementVerified"]);
    (pod.rows[1].pid, pod.rows[1].state) = (None, SlotState::Missing);
    assert!(observer.at(&facts(&pod), late + 3).is_empty());
}

#[test]
fn a_lasting_problem_is_reported_when_it_begins() {
    let (mut observer, mut pod) = (observer(), pod());
    observer.at(&facts(&pod), 0);
    pod.throttling.throttled = 0.3;
    pod.stats.cpuset = Some(Default::default());
    pod.not_placed = Some(NotPlaced::Unsupported("gVisor".to_owned()));
    pod.trial.withdrawn = Some("no gain".to_owned());
    pod.trial.progress = Some("trial: no latency".to_owned());
    pod.trial.is_missing_reports = true;
    let all = [
        "CpusetEmpty",
        "Throttled",
        "PlacementWithdrawn",
        "TrialWithoutFigures",
        "Unsupported",
    ];
    assert_eq!(observer.at(&facts(&pod), 1), all);
    assert!(observer.at(&facts(&pod), 2).is_empty());
    pod.throttling.throttled = 0.0;
    assert!(observer.at(&facts(&pod), 3).is_empty());
    pod.throttling.throttled = 0.3;
    assert_eq!(observer.at(&facts(&pod), 4), ["Throttled"]);
}

#[test]
fn each_verdict_of_a_trial_makes_one_event() {
    let (mut observer, mut pod) = (observer(), pod());
    observer.at(&facts(&pod), 0);
    pod.trial.decided = Some("trial: Scatter stays".to_owned());
    assert_eq!(observer.at(&facts(&pod), 1), ["TrialDecided"]);
    assert!(observer.at(&facts(&pod), 2).is_empty());
    pod.trial.decided = None;
    assert!(observer.at(&facts(&pod), 3).is_empty(), "it is repeated");
    pod.trial.decided = Some("trial: Scatter stays".to_owned());
    assert_eq!(observer.at(&facts(&pod), 4), ["TrialDecided"]);
}

#[test]
fn each_cause_of_degradation_makes_one_event() {
    let mut observer = observer();
    let mut facts = facts(&pod());
    facts
        .health
        .degraded
        .push(Reason::new("HiddenProcesses", "hidepid"));
    assert_eq!(
        observer.at(&facts, 0),
        ["PlacementVerified", "HiddenProcesses"]
    );
    assert!(observer.at(&facts, 1).is_empty());
    facts
        .health
        .degraded
        .push(Reason::new("ForeignScheduler", "scx"));
    assert_eq!(observer.at(&facts, 2), ["ForeignScheduler"]);
}
