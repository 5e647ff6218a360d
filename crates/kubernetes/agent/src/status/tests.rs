//! Laws of the report: its size, its times, what it says of whom.

use albacore_api::DriftCause;
use albacore_cluster::Key;
use albacore_mapping::{Mode, Rank, Slot, WorkerIndex};
use albacore_os::{Pid, Tid};
use albacore_placer::{Row, RowState, SubjectId};
use albacore_plan::{Enforcement, MainThread, Placement, Policy, Source};
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::facts::{Health, Strain};
use crate::journal::{LeftAlone, Story};
use crate::pods::{Container, PodSeen};
use crate::wish::{Aim, Wish};

fn at(second: i64) -> Time {
    Time(Timestamp::from_second(1_700_000_000 + second).unwrap())
}

fn row(worker: u16, rank: u16, state: RowState) -> Row {
    let is_there = state != RowState::Missing;
    Row {
        subject: SubjectId(0),
        slot: Slot {
            worker: WorkerIndex(worker),
            rank: Rank(rank),
        },
        pid: is_there.then_some(Pid(10)),
        tid: is_there.then_some(Tid(10)),
        planned: Some(format!("{}", worker * 2 + rank).parse().unwrap()),
        actual: None,
        verified_micros_ago: None,
        respawns: 0,
        state,
    }
}

/// A pod of 2 x 2 whose workers stand so.
fn pod(name: &str, states: [RowState; 2]) -> PodFacts {
    let policy = Policy {
        workers: 2,
        threads: 2,
        mode: Mode::Scatter,
        placement: Placement::Tuna,
        enforcement: Enforcement::Enforce,
        main_thread: MainThread::Pinned,
        is_pool_size_known: true,
    };
    let seen = PodSeen {
        key: Key::new("shop", name),
        uid: name.to_owned(),
        deployment: "fraud".to_owned(),
        addresses: Vec::new(),
        container: Container::Running("c".to_owned()),
        is_static: false,
        is_over: false,
        regarding: Default::default(),
    };
    let aim = Aim::Place {
        container: "c".to_owned(),
        source: Source::Named,
        policy,
        generation: 1,
        trial: None,
    };
    let rows = (0..2).flat_map(|w| (0..2).map(move |r| row(w, r, states[usize::from(w)])));
    PodFacts {
        wish: Wish { pod: seen, aim },
        is_present: true,
        absence: None,
        state: None,
        story: Story {
            cpuset: Some("0-3".parse().unwrap()),
            ..Story::default()
        },
        rows: rows.collect(),
        strain: Strain::default(),
        withdrawn: None,
        trial: None,
        is_trial_blind: false,
    }
}

/// A placer's word of a pod whose quota lets `threads` of 2 run.
fn state(threads: u16) -> albacore_placer::SubjectState {
    let Aim::Place { policy, .. } = pod("x", [VERIFIED; 2]).wish.aim else {
        unreachable!()
    };
    albacore_placer::SubjectState {
        subject: SubjectId(0),
        cpuset: Default::default(),
        policy: Policy { threads, ..policy },
        threads_asked: 2,
        workers_found: 2,
        notes: Vec::new(),
        drifts: Default::default(),
        widened: 0,
        respawns: 0,
        entered: 0,
        quota: Default::default(),
        is_throttled: false,
        is_refused: false,
        plan_hash: None,
        topology_hash: 7,
    }
}

#[test]
fn a_quota_below_the_threads_asked_is_a_number_and_no_reason() {
    let mut facts = facts(vec![pod("a", [VERIFIED; 2])]);
    facts.pods[0].state = Some(state(1));
    facts.pods[0].rows.retain(|row| row.slot.rank == Rank(0));
    let status = Reporter::default().status(&facts, &at(0));
    let told = &status.pods[0];
    assert_eq!((told.quota_threads, told.verified), (Some(1), 2));
    assert_eq!(told.reason, None);
    assert_eq!(told.slots(2, 2), 2);
    facts.pods[0].state = Some(state(2));
    let status = Reporter::default().status(&facts, &at(0));
    assert_eq!(status.pods[0].quota_threads, None);
}

#[test]
fn twenty_names_of_full_length_fit_and_tell_every_number() {
    let pods = (0..20).map(|number| {
        let mut pod = pod(&format!("{number:0>253}"), [VERIFIED; 2]);
        pod.wish.pod.key.namespace = "n".repeat(63);
        pod.wish.pod.uid = format!("9f1c2b3a-0000-4000-8000-{number:012}");
        pod
    });
    let facts = facts(pods.collect());
    let status = Reporter::default().status(&facts, &at(0));
    assert!(bytes(&status) <= 4096, "{} bytes", bytes(&status));
    for entry in &status.pods {
        assert!(entry.pod.starts_with("nnnn"), "{}", entry.pod);
        assert_eq!((entry.planned, entry.verified), (4, 4));
        assert!(entry.plan.is_some());
    }
}

fn facts(pods: Vec<PodFacts>) -> Facts {
    Facts {
        pods,
        topology: 7,
        births: [0; BIRTH_ENDS_MS.len() + 1],
        drifts: 0,
        health: Health::default(),
        verified_at: Some(at(0)),
    }
}

const VERIFIED: RowState = RowState::Verified;

#[test]
fn counts_are_those_of_the_table_and_a_placed_pod_has_no_reason() {
    let facts = facts(vec![
        pod("a", [VERIFIED; 2]),
        pod("b", [VERIFIED, RowState::Missing]),
        pod("c", [VERIFIED, RowState::BackedOff]),
    ]);
    let mut facts = facts;
    facts.pods[2].story.back_off = Some(LeftAlone {
        changes: 4,
        seconds: 3,
        retry_at: Timestamp::from_second(8 * 3600).unwrap(),
    });
    let status = Reporter::default().status(&facts, &at(0));
    let told: Vec<_> = status
        .pods
        .iter()
        .map(|p| {
            (
                p.workers,
                p.workers_verified,
                p.planned,
                p.verified,
                p.reason.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (2, 2, 4, 4, None),
            (1, 1, 4, 2, Some("found 1 of 2 workers")),
            (
                2,
                1,
                4,
                2,
                Some(
                    "2 threads: mask changed 4 times in 3 s by somebody else; next try 08:00:00Z; \
                     stop what sets it (OMP_PROC_BIND, taskset) or edit the deployment"
                )
            ),
        ]
    );
    assert_eq!((status.planned, status.verified), (12, 8));
    assert_eq!(status.conditions[0].type_, "Enforcing");
    assert_eq!(status.conditions[0].status, "True");
}

#[test]
fn times_stand_while_nothing_changes_and_another_plan_is_verified_anew() {
    let mut reporter = Reporter::default();
    let mut facts = facts(vec![pod("a", [VERIFIED; 2])]);
    let first = reporter.status(&facts, &at(0));
    assert_eq!(
        reporter.status(&facts, &at(60)),
        first,
        "settled: the same to the byte"
    );
    facts.pods[0].rows[0].planned = Some("3".parse().unwrap());
    let moved = reporter.status(&facts, &at(90));
    assert_eq!(moved.pods[0].since, Some(at(90)));
    assert_ne!(moved.pods[0].plan, first.pods[0].plan);
    facts.health.idle = Some(("KillSwitch", "the node says so".to_owned()));
    let idle = reporter.status(&facts, &at(100));
    assert_eq!(idle.conditions[0].last_transition_time, at(100));
    assert_eq!(idle.conditions[0].reason, "KillSwitch");
}

#[test]
fn a_condition_is_there_only_while_it_is_so() {
    let mut facts = facts(vec![pod("a", [VERIFIED; 2])]);
    let kinds = |facts: &Facts| -> Vec<String> {
        let status = Reporter::default().status(facts, &at(0));
        status.conditions.into_iter().map(|c| c.type_).collect()
    };
    assert_eq!(kinds(&facts), ["Enforcing"]);
    facts.pods[0].strain.throttled = 0.5;
    facts.pods[0].story.cpuset = Some(Default::default());
    facts
        .health
        .ills
        .push(("HiddenProcesses", "hidepid".to_owned()));
    assert_eq!(
        kinds(&facts),
        ["Enforcing", "Degraded", "Throttled", "CpusetEmpty"]
    );
}

#[test]
fn counters_alone_can_wait() {
    let mut facts = facts(vec![pod("a", [VERIFIED; 2])]);
    let before = Reporter::default().status(&facts, &at(0));
    facts.births[1] = 9;
    facts.drifts = 2;
    let after = Reporter::default().status(&facts, &at(0));
    assert_eq!(difference(&before, &after), Difference::Figures);
    assert_eq!(difference(&before, &before), Difference::None);
    facts.pods[0].rows[0].state = RowState::Drifted;
    let after = Reporter::default().status(&facts, &at(0));
    assert_eq!(difference(&before, &after), Difference::Placement);
}

#[test]
fn the_time_of_the_last_verification_is_a_difference_of_its_own() {
    let mut facts = facts(vec![pod("a", [VERIFIED; 2])]);
    let before = Reporter::default().status(&facts, &at(0));
    assert_eq!(before.last_verification_time, Some(at(0)));
    facts.verified_at = Some(at(30));
    let after = Reporter::default().status(&facts, &at(0));
    assert_eq!(after.last_verification_time, Some(at(30)));
    assert_eq!(difference(&before, &after), Difference::Time);
    facts.drifts = 2;
    let after = Reporter::default().status(&facts, &at(0));
    assert_eq!(difference(&before, &after), Difference::Figures);
}

fn states() -> impl Strategy<Value = [RowState; 2]> {
    let one = || {
        prop_oneof![
            Just(VERIFIED),
            Just(RowState::Drifted),
            Just(RowState::BackedOff),
            Just(RowState::Missing),
            Just(RowState::Unplaced)
        ]
    };
    [one(), one()]
}

proptest! {
    #[test]
    fn a_report_of_20_pods_takes_at_most_4_kib(
        pods in proptest::collection::vec(
            (("[a-z0-9-]{1,63}", "[a-z0-9.-]{1,253}", 1..=1_u16), states(), 0..=i64::MAX, ".{0,400}",
             proptest::option::of("[ -~]{0,300}")),
            0..=20),
        ill in ".{0,500}",
        births in 0..=u64::MAX,
    ) {
        let pods = pods.into_iter().enumerate().map(|(number, (name, states, drifts, failure, withdrawn))| {
            let (namespace, name, quota) = name;
            let mut pod = pod(&name, states);
            pod.wish.pod.key.namespace = namespace;
            pod.wish.pod.uid = format!("9f1c2b3a-0000-4000-8000-{number:012}");
            pod.state = Some(state(quota));
            pod.story.cause = Some(DriftCause::CpusetChange);
            pod.story.drifts = drifts.unsigned_abs();
            pod.story.failure = Some(failure);
            // A cpuset with holes prints long.
            pod.story.cpuset = Some((0..256).step_by(2).map(albacore_topology::CpuId).collect());
            pod.withdrawn = withdrawn;
            pod
        });
        let mut facts = facts(pods.collect());
        facts.births = [births; BIRTH_ENDS_MS.len() + 1];
        facts.drifts = u64::MAX;
        facts.health.ills.push(("Placer", ill));
        let status = Reporter::default().status(&facts, &at(0));
        prop_assert!(bytes(&status) <= 4096, "{} bytes", bytes(&status));
        prop_assert_eq!(status.pods.len(), facts.pods.len());
        // Each entry is still that of its pod, and of no other.
        for (entry, pod) in status.pods.iter().zip(&facts.pods) {
            let is_of = |p: &PodFacts| entry.is_of(&p.wish.pod.key.namespace, &p.wish.pod.key.name, &p.wish.pod.uid);
            prop_assert!(is_of(pod), "{}", entry.pod);
            if entry.pod.contains('~') {
                prop_assert_eq!(facts.pods.iter().filter(|p| is_of(p)).count(), 1);
            }
        }
    }
}
