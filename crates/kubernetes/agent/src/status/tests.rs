//! Tests of the size, times, counts and conditions of a status.

use albacore_api::DriftCause;
use albacore_cluster::ObjectKey;
use albacore_placer::{SlotState, SubjectId};
use albacore_plan::SubjectPolicy;
use albacore_solver::{Mapping, Rank};
use albacore_topology::{CpuId, Topology, parse_topology_text};
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::desired::PodAction;
use crate::facts::{Health, Reason};
use crate::placer_stats::BackOffSummary;
use crate::pods_for_tests::{opted_in_pod, pod_facts, policy, row};

fn at(second: i64) -> Time {
    Time(Timestamp::from_second(1_700_000_000 + second).unwrap())
}

/// A pod of 2 x 2 threads, with one slot state per worker.
fn pod(name: &str, states: [SlotState; 2]) -> PodFacts {
    let state = |worker: u16| states[usize::from(worker)];
    let rows = [(0, 0), (0, 1), (1, 0), (1, 1)]
        .map(|(worker, rank)| row(worker, rank, worker * 2 + rank, state(worker)));
    let mut pod = pod_facts(opted_in_pod(name, name), policy(2, 2), rows.to_vec());
    pod.desired.pod.key = ObjectKey::new("shop", name);
    pod.stats.cpuset = Some("0-3".parse().unwrap());
    pod
}

/// The placer's state of a pod whose quota lets `threads` of 2 threads run.
fn state(threads: u16) -> albacore_placer::SubjectState {
    let PodAction::Place { policy, .. } = pod("x", [VERIFIED; 2]).desired.action else {
        unreachable!()
    };
    albacore_placer::SubjectState {
        subject: SubjectId(0),
        cpuset: Default::default(),
        policy: SubjectPolicy { threads, ..policy },
        threads_requested: 2,
        workers_found: 2,
        shape: None,
        warnings: Vec::new(),
        drifts: Default::default(),
        widened: 0,
        respawns: 0,
        foreign_processes: 0,
        quota: Default::default(),
        is_throttled: false,
        is_refused: false,
        front: Vec::new(),
        plan_hash: None,
        mapping: None,
        is_solved: true,
        obstacle_cpus: Vec::new(),
        hot_threads: Some(3),
        topology_hash: 7,
    }
}

/// An event loop that is planned on CPU 1.
fn event_loop(actual: &str) -> albacore_placer::FrontRow {
    albacore_placer::FrontRow {
        index: 0,
        pid: albacore_os::Pid(7),
        tid: albacore_os::Tid(8),
        planned: "1".parse().unwrap(),
        actual: actual.parse().unwrap(),
    }
}

#[test]
fn event_loops_of_the_front_end_are_counted_apart_from_the_threads_of_workers() {
    let mut facts = facts(vec![pod("a", [VERIFIED; 2])]);
    let build = |facts: &NodeFacts| StatusBuilder::default().build(facts, &at(0)).pods[0].clone();
    assert_eq!(build(&facts).front, None);
    let front = vec![event_loop("1"), event_loop("0-1")];
    facts.pods[0].state = Some(albacore_placer::SubjectState { front, ..state(2) });
    let entry = build(&facts);
    let counts = entry.front.map(|front| (front.planned, front.verified));
    assert_eq!((counts, entry.planned), (Some((2, 1)), 4));
    facts.pods[0].is_placed = false;
    assert_eq!(build(&facts).front, None, "nothing is known of it any more");
}

#[test]
fn a_quota_below_the_requested_threads_is_reported_as_a_number() {
    let mut facts = facts(vec![pod("a", [VERIFIED; 2])]);
    facts.pods[0].state = Some(state(1));
    facts.pods[0].rows.retain(|row| row.slot.rank == Rank(0));
    let status = StatusBuilder::default().build(&facts, &at(0));
    let entry = &status.pods[0];
    assert_eq!((entry.quota_threads, entry.verified), (Some(1), 2));
    assert_eq!(entry.reason, None);
    assert_eq!(entry.slots(2, 2), 2);
    facts.pods[0].state = Some(state(2));
    let status = StatusBuilder::default().build(&facts, &at(0));
    assert_eq!(status.pods[0].quota_threads, None);
}

#[test]
fn a_status_of_20_pods_with_names_of_maximum_length_keeps_every_count() {
    let pods = (0..20).map(|number| {
        let mut pod = pod(&format!("{number:0>253}"), [VERIFIED; 2]);
        pod.desired.pod.key.namespace = "n".repeat(63);
        pod.desired.pod.uid = format!("9f1c2b3a-0000-4000-8000-{number:012}");
        pod
    });
    let facts = facts(pods.collect());
    let status = StatusBuilder::default().build(&facts, &at(0));
    assert!(json_bytes(&status) <= 4096, "{} bytes", json_bytes(&status));
    for entry in &status.pods {
        assert!(entry.pod.starts_with("nnnn"), "{}", entry.pod);
        assert_eq!((entry.planned, entry.verified), (4, 4));
        assert!(entry.plan.is_some());
    }
}

#[test]
fn the_shortest_reason_names_the_command_that_shows_the_rest_and_fits() {
    let pods = (0..20_u16).map(|number| {
        let mut pod = pod(&format!("{number:0>253}"), [SlotState::Missing; 2]);
        pod.desired.pod.key.namespace = "n".repeat(63);
        pod.desired.pod.uid = format!("9f1c2b3a-0000-4000-8000-{number:012}");
        pod.state = Some(albacore_placer::SubjectState {
            front: vec![event_loop("0")],
            subject: SubjectId(number.into()),
            mapping: Some(mapping()),
            obstacle_cpus: mapping().cpus,
            hot_threads: Some(65535),
            ..state(1)
        });
        pod.trial.withdrawn = Some("\"".repeat(400));
        pod
    });
    let mut facts = facts(pods.collect());
    facts.machine = Some(machine());
    facts.spawns = [u64::MAX; SPAWN_BUCKETS_MS.len() + 1];
    facts.drifts = u64::MAX;
    let degraded = Reason::new("Placer", "\"".repeat(500));
    facts.health.degraded.push(degraded);
    let status = StatusBuilder::default().build(&facts, &at(0));
    for entry in &status.pods {
        assert_eq!(entry.reason.as_deref(), Some("see albacore-agent dump"));
    }
    let beside = status.cpu_topology.as_ref().unwrap().len() + 3072;
    let bytes = json_bytes(&status);
    assert!(bytes <= 4096 + beside, "{bytes}");
}

/// 256 CPUs in which SMT siblings are numbered last.
fn machine() -> Topology {
    let text = "cpus=0-255 core=0-127x2 l3=0-15*8x2 numa=0-1*64x2";
    parse_topology_text(text).unwrap()
}

/// 4 workers of 6 threads on CPUs without a regular pattern.
fn mapping() -> Mapping {
    let cpus = (0..24).map(|at| CpuId(at * at * 7 % 251)).collect();
    Mapping { threads: 6, cpus }
}

/// Twenty typical pods: 4 x 6 threads each, planned on 256 CPUs.
fn usual_pods() -> impl Iterator<Item = PodFacts> {
    (0..20_u16).map(|number| {
        let name = format!("fraud-6d5f7b9c4-x2x{number:02}");
        let mut pod = pod(&name, [VERIFIED; 2]);
        pod.desired.pod.uid = format!("9f1c2b3a-0000-4000-8000-{number:012}");
        pod.stats.cpuset = Some(machine().cpuset());
        let cpus = (0..24)
            .map(|at| CpuId(number * 6 + at / 6 * 64 % 256 + at % 6))
            .collect();
        pod.state = Some(albacore_placer::SubjectState {
            subject: SubjectId((20 - number).into()),
            cpuset: machine().cpuset(),
            mapping: Some(Mapping { threads: 6, cpus }),
            front: vec![event_loop("1")],
            ..state(2)
        });
        pod
    })
}

#[test]
fn a_report_of_20_usual_pods_contains_all_inputs_of_plans() {
    let mut facts = facts(usual_pods().collect());
    facts.machine = Some(machine());
    let status = StatusBuilder::default().build(&facts, &at(0));
    let bytes = json_bytes(&status);
    assert!(bytes <= 4096 + 49 + 20 * 80, "{bytes}");
    assert_eq!(
        status.cpu_topology.as_deref().map(parse_topology_text),
        Some(Ok(machine()))
    );
    assert_eq!(status.fixed_threads, None);
    for (number, (entry, pod)) in status.pods.iter().zip(&facts.pods).enumerate() {
        let mapping = entry.mapping.as_ref().unwrap();
        let read = albacore_plan::parse_mapping_text(&mapping.cpus).unwrap();
        assert_eq!(Some(read), pod.state.as_ref().unwrap().mapping);
        // The placer added them in reverse order.
        assert_eq!(mapping.order, Some(19 - number as i32));
        assert_eq!(entry.cpuset.as_deref(), Some("0-255"));
    }
}

#[test]
fn fixed_threads_of_pods_that_are_not_planned_are_reported() {
    let mut facts = facts(usual_pods().take(2).collect());
    let state = facts.pods[1].state.as_mut().unwrap();
    state.is_solved = false;
    state.obstacle_cpus = [7, 3, 3].map(CpuId).to_vec();
    let status = StatusBuilder::default().build(&facts, &at(0));
    assert_eq!(status.fixed_threads.as_deref(), Some("3*2,7"));
    let orders = status
        .pods
        .iter()
        .map(|pod| pod.mapping.as_ref().unwrap().order);
    assert_eq!(orders.collect::<Vec<_>>(), [Some(0), None]);
    assert_eq!(status.cpu_topology, None, "the machine is not known yet");
    let state = facts.pods[1].state.as_mut().unwrap();
    state.mapping.as_mut().unwrap().cpus = (0..2048_u32)
        .map(|at| CpuId((at * at % 251) as u16))
        .collect();
    let too_large = StatusBuilder::default().build(&facts, &at(0));
    assert!(too_large.pods.iter().all(|pod| pod.mapping.is_none()));
    assert_eq!(too_large.fixed_threads, None, "all of it or nothing");
    facts.pods[1].is_placed = false;
    let status = StatusBuilder::default().build(&facts, &at(0));
    assert_eq!(
        (status.fixed_threads, &status.pods[1].mapping),
        (None, &None)
    );
}

#[test]
fn a_topology_that_is_too_long_is_left_out_with_a_reason() {
    let mut facts = facts(Vec::new());
    let cpus = (0..512_u16).map(|at| albacore_topology::Cpu {
        id: CpuId(at),
        core: u32::from(at) * 7919 % 521,
        l2: u32::from(at) * 7919 % 521,
        l3: 0,
        numa: 0,
        package: 0,
        capacity: albacore_topology::CAPACITY_MAX,
    });
    facts.machine = Some(Topology::new(cpus.collect()).unwrap());
    let status = StatusBuilder::default().build(&facts, &at(0));
    assert_eq!(status.cpu_topology, None);
    let condition = status
        .conditions
        .iter()
        .find(|c| c.type_ == "TopologyOmitted")
        .unwrap();
    assert!(
        condition.message.contains("more than 1024"),
        "{}",
        condition.message
    );
}

fn facts(pods: Vec<PodFacts>) -> NodeFacts {
    NodeFacts {
        pods,
        topology: 7,
        machine: None,
        spawns: Default::default(),
        drifts: 0,
        health: Health::default(),
        verified_at: Some(at(0)),
    }
}

const VERIFIED: SlotState = SlotState::Verified;

#[test]
fn counts_come_from_the_table_and_a_placed_pod_has_no_reason() {
    let facts = facts(vec![
        pod("a", [VERIFIED; 2]),
        pod("b", [VERIFIED, SlotState::Missing]),
        pod("c", [VERIFIED, SlotState::BackedOff]),
    ]);
    let mut facts = facts;
    facts.pods[2].stats.back_off = Some(BackOffSummary {
        changes: 4,
        seconds: 3,
        retry_at: Timestamp::from_second(8 * 3600).unwrap(),
    });
    let status = StatusBuilder::default().build(&facts, &at(0));
    let entries: Vec<_> = status
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
        entries,
        [
            (2, 2, 4, 4, None),
            (1, 1, 4, 2, Some("found 1 of 2 workers")),
            (
                2,
                1,
                4,
                2,
                Some(
                    "2 threads: mask changed 4 times in 3 s by another process; next attempt \
                     08:00:00Z; stop the program that sets it (OMP_PROC_BIND, taskset) or edit the \
                     deployment"
                )
            ),
        ]
    );
    assert_eq!((status.planned, status.verified), (12, 8));
    assert_eq!(status.conditions[0].type_, "Enforcing");
    assert_eq!(status.conditions[0].status, "True");
}

#[test]
fn times_are_kept_while_nothing_changes_and_restart_with_another_plan() {
    let mut status_builder = StatusBuilder::default();
    let mut facts = facts(vec![pod("a", [VERIFIED; 2])]);
    let first = status_builder.build(&facts, &at(0));
    assert_eq!(
        status_builder.build(&facts, &at(60)),
        first,
        "settled: the same to the byte"
    );
    facts.pods[0].rows[0].planned = Some("3".parse().unwrap());
    let moved = status_builder.build(&facts, &at(90));
    assert_eq!(moved.pods[0].since, Some(at(90)));
    assert_ne!(moved.pods[0].plan, first.pods[0].plan);
    facts.health.not_enforcing = Some(Reason::new("KillSwitch", "annotated"));
    let not_enforcing = status_builder.build(&facts, &at(100));
    assert_eq!(not_enforcing.conditions[0].last_transition_time, at(100));
    assert_eq!(not_enforcing.conditions[0].reason, "KillSwitch");
}

#[test]
fn a_condition_exists_only_while_it_is_true() {
    let mut facts = facts(vec![pod("a", [VERIFIED; 2])]);
    let kinds = |facts: &NodeFacts| -> Vec<String> {
        let status = StatusBuilder::default().build(facts, &at(0));
        status.conditions.into_iter().map(|c| c.type_).collect()
    };
    assert_eq!(kinds(&facts), ["Enforcing"]);
    facts.pods[0].throttling.throttled = 0.5;
    facts.pods[0].stats.cpuset = Some(Default::default());
    facts
        .health
        .degraded
        .push(Reason::new("HiddenProcesses", "hidepid"));
    assert_eq!(
        kinds(&facts),
        ["Enforcing", "Degraded", "Throttled", "CpusetEmpty"]
    );
}

#[test]
fn a_change_of_counters_alone_can_wait() {
    let mut facts = facts(vec![pod("a", [VERIFIED; 2])]);
    let before = StatusBuilder::default().build(&facts, &at(0));
    facts.spawns[1] = 9;
    facts.drifts = 2;
    let after = StatusBuilder::default().build(&facts, &at(0));
    assert_eq!(status_change(&before, &after), StatusChange::Counters);
    assert_eq!(status_change(&before, &before), StatusChange::None);
    facts.pods[0].rows[0].state = SlotState::Drifted;
    let after = StatusBuilder::default().build(&facts, &at(0));
    assert_eq!(status_change(&before, &after), StatusChange::Placement);
}

#[test]
fn a_change_of_the_verification_time_alone_is_recognized() {
    let mut facts = facts(vec![pod("a", [VERIFIED; 2])]);
    let before = StatusBuilder::default().build(&facts, &at(0));
    assert_eq!(before.last_verification_time, Some(at(0)));
    facts.verified_at = Some(at(30));
    let after = StatusBuilder::default().build(&facts, &at(0));
    assert_eq!(after.last_verification_time, Some(at(30)));
    assert_eq!(status_change(&before, &after), StatusChange::Time);
    facts.drifts = 2;
    let after = StatusBuilder::default().build(&facts, &at(0));
    assert_eq!(status_change(&before, &after), StatusChange::Counters);
}

fn states() -> impl Strategy<Value = [SlotState; 2]> {
    let one = || {
        prop_oneof![
            Just(VERIFIED),
            Just(SlotState::Drifted),
            Just(SlotState::BackedOff),
            Just(SlotState::Missing),
            Just(SlotState::Unplaced)
        ]
    };
    [one(), one()]
}

proptest! {
    #[test]
    fn a_status_of_20_pods_takes_at_most_4_kib_without_the_inputs_of_plans(
        pods in proptest::collection::vec(
            (("[a-z0-9-]{1,63}", "[a-z0-9.-]{1,253}", 1..=1_u16), states(), 0..=i64::MAX, ".{0,400}",
             proptest::option::of("[ -~]{0,300}")),
            0..=20),
        degraded in ".{0,500}",
        births in 0..=u64::MAX,
    ) {
        let pods = pods.into_iter().enumerate().map(|(number, (name, states, drifts, failure, withdrawn))| {
            let (namespace, name, quota) = name;
            let mut pod = pod(&name, states);
            pod.desired.pod.key.namespace = namespace;
            pod.desired.pod.uid = format!("9f1c2b3a-0000-4000-8000-{number:012}");
            pod.state = Some(albacore_placer::SubjectState {
                front: vec![event_loop("0"); usize::from(number % 2 == 0)],
                subject: SubjectId(number as _),
                mapping: Some(mapping()),
                is_solved: number % 3 != 0,
                obstacle_cpus: mapping().cpus,
                ..state(quota)
            });
            pod.stats.cause = Some(DriftCause::CpusetChange);
            pod.stats.drifts = drifts.unsigned_abs();
            pod.stats.failure = Some(failure);
            // The text of a cpuset with holes is long.
            pod.stats.cpuset = Some((0..256).step_by(2).map(albacore_topology::CpuId).collect());
            pod.trial.decided = withdrawn.clone().filter(|_| number % 2 == 0);
            pod.trial.withdrawn = withdrawn.filter(|_| number % 2 == 1);
            pod
        });
        let mut facts = facts(pods.collect());
        facts.machine = Some(machine());
        facts.spawns = [births; SPAWN_BUCKETS_MS.len() + 1];
        facts.drifts = u64::MAX;
        facts.health.degraded.push(Reason::new("Placer", degraded));
        let status = StatusBuilder::default().build(&facts, &at(0));
        let beside = status.cpu_topology.as_ref().unwrap().len() + 3072;
        prop_assert!(json_bytes(&status) <= 4096 + beside, "{} bytes", json_bytes(&status));
        prop_assert_eq!(status.pods.len(), facts.pods.len());
        // Each entry still matches its own pod, and no other.
        for (entry, pod) in status.pods.iter().zip(&facts.pods) {
            let is_of = |p: &PodFacts| entry.is_of(&p.desired.pod.key.namespace, &p.desired.pod.key.name, &p.desired.pod.uid);
            prop_assert!(is_of(pod), "{}", entry.pod);
            if entry.pod.contains('~') {
                prop_assert_eq!(facts.pods.iter().filter(|p| is_of(p)).count(), 1);
            }
        }
    }
}
