//! Each thing is told once, and again only after it was otherwise.

use std::time::Duration;

use albacore_api::DriftCause;
use albacore_cluster::Key;
use albacore_mapping::{Mode, Rank, Slot, WorkerIndex};
use albacore_os::{Pid, Tid};
use albacore_placer::{Row, RowState, SubjectId};
use albacore_plan::{Enforcement, MainThread, Placement, Policy, Source};

use super::*;
use crate::facts::{Health, Strain};
use crate::journal::{BIRTH_ENDS_MS, LeftAlone};
use crate::pods::{Container, PodSeen};
use crate::wish::{Aim, Wish};

/// A pod of two workers of one thread.
fn pod() -> PodFacts {
    let policy = Policy {
        workers: 2,
        threads: 1,
        mode: Mode::Scatter,
        placement: Placement::Tuna,
        enforcement: Enforcement::Enforce,
        main_thread: MainThread::Pinned,
        is_pool_size_known: true,
    };
    let seen = PodSeen {
        key: Key::new("x", "a"),
        uid: "u".to_owned(),
        deployment: "d".to_owned(),
        addresses: Vec::new(),
        container: Container::Running("c".to_owned()),
        is_static: false,
        is_over: false,
        regarding: Default::default(),
    };
    let rows = (0..2).map(|worker| Row {
        subject: SubjectId(0),
        slot: Slot {
            worker: WorkerIndex(worker),
            rank: Rank(0),
        },
        pid: Some(Pid(1)),
        tid: Some(Tid(1)),
        planned: Some("0".parse().unwrap()),
        actual: None,
        verified_micros_ago: None,
        respawns: 0,
        state: RowState::Verified,
    });
    PodFacts {
        wish: Wish {
            pod: seen,
            aim: Aim::Place {
                container: "c".to_owned(),
                source: Source::Named,
                policy,
                generation: 1,
                trial: None,
            },
        },
        is_present: true,
        absence: None,
        state: None,
        story: Story::default(),
        rows: rows.collect(),
        strain: Strain::default(),
        withdrawn: None,
        trial: None,
        is_trial_blind: false,
    }
}

fn facts(pod: &PodFacts) -> Facts {
    Facts {
        pods: vec![pod.clone()],
        topology: 1,
        births: [0; BIRTH_ENDS_MS.len() + 1],
        drifts: 0,
        health: Health::default(),
        verified_at: None,
    }
}

struct Look {
    teller: Teller,
    now: Instant,
}

impl Look {
    fn at(&mut self, facts: &Facts, seconds: u64) -> Vec<&'static str> {
        let now = self.now + Duration::from_secs(seconds);
        let told = self.teller.happenings(facts, &Default::default(), now);
        told.into_iter().map(|happening| happening.reason).collect()
    }
}

fn look() -> Look {
    Look {
        teller: Teller::default(),
        now: Instant::now(),
    }
}

#[test]
fn masks_that_a_change_to_observe_gave_back_are_told_once() {
    let (mut look, mut pod) = (look(), pod());
    look.at(&facts(&pod), 0);
    pod.story.released = (4, 0);
    assert_eq!(look.at(&facts(&pod), 1), ["PlacementRestored"]);
    assert!(look.at(&facts(&pod), 2).is_empty());
}

#[test]
fn a_pod_is_told_verified_once_and_again_after_it_was_not() {
    let (mut look, mut pod) = (look(), pod());
    assert_eq!(look.at(&facts(&pod), 0), ["PlacementVerified"]);
    assert!(look.at(&facts(&pod), 1).is_empty());
    pod.rows[0].state = RowState::Drifted;
    pod.story.drifts = 1;
    pod.story.cause = Some(DriftCause::CpusetChange);
    assert_eq!(look.at(&facts(&pod), 2), ["PlacementDrifted"]);
    pod.rows[0].state = RowState::Verified;
    assert_eq!(look.at(&facts(&pod), 3), ["PlacementVerified"]);
}

#[test]
fn foreign_writes_and_widenings_have_reasons_of_their_own() {
    let (mut look, mut pod) = (look(), pod());
    look.at(&facts(&pod), 0);
    (pod.story.drifts, pod.story.foreign) = (1, 1);
    assert_eq!(look.at(&facts(&pod), 1), ["ForeignPinning"]);
    (pod.story.drifts, pod.story.widened) = (2, 1);
    assert_eq!(
        look.at(&facts(&pod), 2),
        ["PlacementDrifted", "MaskWidened"]
    );
    pod.story.back_offs = 1;
    pod.story.back_off = Some(LeftAlone {
        changes: 4,
        seconds: 3,
        retry_at: "2026-11-23T08:00:00Z".parse().unwrap(),
    });
    let now = look.now;
    let told = look
        .teller
        .clone()
        .happenings(&facts(&pod), &Default::default(), now);
    assert!(
        told[0].note.starts_with(
            "somebody else (the kernel does not tell who) changed the mask of a thread 4 times in 3 s; \
             threads with such changes are left as they are and tried again at 2026-11-23T08:00:00Z. Stop"
        ) && told[0].note.ends_with("restart of the pod tries again at once"),
        "{told:?}"
    );
    assert_eq!(look.at(&facts(&pod), 3), ["ForeignPinning"]);
    pod.story.is_inherited = true;
    assert_eq!(look.at(&facts(&pod), 4), ["ForeignPinning"]);
    assert!(look.at(&facts(&pod), 5).is_empty());
}

#[test]
fn missing_workers_are_told_when_a_respawn_cannot_explain_them() {
    let (mut look, mut pod) = (look(), pod());
    look.at(&facts(&pod), 0);
    (pod.rows[1].pid, pod.rows[1].state) = (None, RowState::Missing);
    assert!(look.at(&facts(&pod), 1).is_empty());
    let late = 1 + MISSING_TIME.as_secs();
    assert_eq!(look.at(&facts(&pod), late), ["WorkersMissing"]);
    assert!(look.at(&facts(&pod), late + 1).is_empty());
    // A worker that came back and went again within the time is a respawn.
    (pod.rows[1].pid, pod.rows[1].state) = (Some(Pid(2)), RowState::Verified);
    assert_eq!(look.at(&facts(&pod), late + 2), ["PlacementVerified"]);
    (pod.rows[1].pid, pod.rows[1].state) = (None, RowState::Missing);
    assert!(look.at(&facts(&pod), late + 3).is_empty());
}

#[test]
fn what_lasts_is_told_when_it_begins() {
    let (mut look, mut pod) = (look(), pod());
    look.at(&facts(&pod), 0);
    pod.strain.throttled = 0.3;
    pod.story.cpuset = Some(Default::default());
    pod.absence = Some(Absence::Unsupported("gVisor".to_owned()));
    pod.withdrawn = Some("no gain".to_owned());
    pod.is_trial_blind = true;
    let all = [
        "CpusetEmpty",
        "Throttled",
        "PlacementWithdrawn",
        "TrialWithoutFigures",
        "Unsupported",
    ];
    assert_eq!(look.at(&facts(&pod), 1), all);
    assert!(look.at(&facts(&pod), 2).is_empty());
    pod.strain.throttled = 0.0;
    assert!(look.at(&facts(&pod), 3).is_empty());
    pod.strain.throttled = 0.3;
    assert_eq!(look.at(&facts(&pod), 4), ["Throttled"]);
}

#[test]
fn ills_of_the_node_are_told_once_each() {
    let mut look = look();
    let mut facts = facts(&pod());
    facts
        .health
        .ills
        .push(("HiddenProcesses", "hidepid".to_owned()));
    assert_eq!(look.at(&facts, 0), ["PlacementVerified", "HiddenProcesses"]);
    assert!(look.at(&facts, 1).is_empty());
    facts
        .health
        .ills
        .push(("ForeignScheduler", "scx".to_owned()));
    assert_eq!(look.at(&facts, 2), ["ForeignScheduler"]);
}
