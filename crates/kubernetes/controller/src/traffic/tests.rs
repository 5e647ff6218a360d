//! Tests of which pods receive requests in given cases, and of laws over random ones.

use albacore_api::read_deployment;
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::autoscale::replicas;
use crate::observed::ObservedCondition;
use crate::record::DeploymentRecord;
use crate::server_state::{FrontState, RequestOutcomes};

const DELAY: Duration = Duration::from_secs(120);

fn at(seconds: u64) -> Nanos {
    Nanos(seconds * 1_000_000_000)
}

fn spec(more: &Value) -> InferenceDeploymentSpec {
    let mut spec = json!({"batching": {"prefer": "IdleWorkers"},
        "models": [{"name": "m", "uri": "file:///m", "slo": {"latency": "25ms"}}]});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    let object = json!({"apiVersion": "albacore.dev/v1beta1", "kind": "InferenceDeployment",
        "metadata": {"name": "fraud"}, "spec": spec});
    read_deployment(&object.to_string(), "f.yaml").unwrap().spec
}

fn workload(pods: usize) -> Workload {
    let pods = i32::try_from(pods).unwrap();
    Workload {
        is_observed: true,
        desired: pods,
        replicas: pods,
        updated: pods,
        ready: pods,
        available: pods,
        progressing_condition: Some(ObservedCondition {
            reason: "NewReplicaSetAvailable".to_owned(),
            ..ObservedCondition::default()
        }),
        ..Workload::default()
    }
}

fn state(idle_share: f64) -> ServerState {
    ServerState {
        idle_share,
        requests: RequestOutcomes {
            good: 100_000,
            ..RequestOutcomes::default()
        },
        ..ServerState::default()
    }
}

/// Pods a, b, c..., each newer than the one before and on its own node.
fn pods(count: usize, idle_share: f64) -> Vec<ObservedPod> {
    let pod = |index: usize| ObservedPod {
        name: char::from(b'a' + u8::try_from(index).unwrap()).to_string(),
        node: Some(format!("node {index}")),
        created: Timestamp::from_second(index.try_into().unwrap()).ok(),
        is_controlled: true,
        is_ready: true,
        traffic: Some(Traffic::Serving),
        state: Some(state(idle_share)),
        ..ObservedPod::default()
    };
    (0..count).map(pod).collect()
}

fn make_spare(pod: &mut ObservedPod) {
    (pod.traffic, pod.state) = (Some(Traffic::Spare), Some(state(1.0)));
}

fn decided(
    pods: &[ObservedPod],
    workload: &Workload,
    record: &mut TrafficRecord,
    second: u64,
) -> TrafficDecision {
    let inputs = TrafficInputs {
        spec: Some(&spec(&json!({}))),
        workload: Some(workload),
        pods,
        delay: DELAY,
    };
    decide(&inputs, record, at(second))
}

/// The names of pods that become spare after a long time with this load.
fn became_spare(pods: &[ObservedPod]) -> Vec<String> {
    let mut record = TrafficRecord::default();
    decided(pods, &workload(pods.len()), &mut record, 0);
    let changes = decided(pods, &workload(pods.len()), &mut record, 120).changes;
    assert!(
        changes
            .iter()
            .all(|(_, traffic)| *traffic == Traffic::Spare)
    );
    changes
        .iter()
        .map(|(at, _)| pods[*at].name.clone())
        .collect()
}

#[test]
fn the_newest_pod_or_one_that_shares_its_node_becomes_spare_first() {
    assert_eq!(became_spare(&pods(3, 0.9)), ["c"]);
    let mut shared = pods(4, 0.9);
    shared[1].node = Some("node 0".to_owned());
    assert_eq!(became_spare(&shared), ["b"]);
    assert_eq!(became_spare(&pods(9, 0.9)), ["i", "h"]);
}

#[test]
fn two_pods_serve_unless_autoscaling_allows_one() {
    assert_eq!(became_spare(&pods(2, 1.0)), [""; 0]);
    let of = |min, max| spec(&json!({"autoscaling": {"minReplicas": min, "maxReplicas": max}}));
    assert_eq!(
        [
            min_serving(&spec(&json!({}))),
            min_serving(&of(1, 9)),
            min_serving(&of(4, 9))
        ],
        [2, 1, 4]
    );
}

#[test]
fn a_busy_front_end_counts_as_a_busy_pod() {
    let mut busy = pods(3, 0.9);
    for pod in &mut busy {
        let front = FrontState {
            busy: 0.7,
            ..FrontState::default()
        };
        pod.state.as_mut().unwrap().front = Some(front);
    }
    assert_eq!(became_spare(&busy), [""; 0]);
}

#[test]
fn whenever_something_else_than_the_load_changes_every_pod_gets_requests() {
    let mut half = pods(4, 0.5);
    half[2..].iter_mut().for_each(make_spare);
    let full = workload(4);
    type Change = fn(&mut Vec<ObservedPod>, &mut Workload);
    let cases: [(TrafficCause, Change); 7] = [
        (TrafficCause::Load(ServingCause::Steady), |_, _| {}),
        (TrafficCause::RollingOut, |_, workload| workload.updated = 1),
        (TrafficCause::PodsMissing, |_, workload| {
            workload.desired = 5
        }),
        (TrafficCause::PodsMissing, |pods, _| {
            pods[0].is_ready = false
        }),
        (TrafficCause::PodsMissing, |pods, _| {
            pods[0].is_inactive = true
        }),
        (TrafficCause::NoReport, |pods, _| pods[1].state = None),
        (TrafficCause::Load(ServingCause::BadRate), |pods, _| {
            let state = pods[0].state.as_mut().unwrap();
            (state.requests.good, state.requests.late) = (0, 5_000);
        }),
    ];
    for (cause, change) in cases {
        let (mut pods, mut workload) = (half.clone(), full.clone());
        change(&mut pods, &mut workload);
        let mut record = TrafficRecord {
            since: Some(at(0)),
            ..TrafficRecord::default()
        };
        let decision = decided(&pods, &workload, &mut record, 100);
        assert_eq!(decision.cause, cause);
        let mut changed = decision.changes;
        changed.sort_by_key(|(at, _)| *at);
        let all = [(2, Traffic::Serving), (3, Traffic::Serving)];
        let wanted = match cause {
            TrafficCause::Load(ServingCause::Steady) => &[][..],
            _ => &all[..],
        };
        assert_eq!(changed, wanted, "{cause:?}");
    }
}

#[test]
fn a_controller_that_has_just_started_waits_for_reports_before_it_changes_anything() {
    let mut half = pods(4, 0.5);
    half[2..].iter_mut().for_each(make_spare);
    half.iter_mut().for_each(|pod| pod.state = None);
    let mut record = TrafficRecord::default();
    for (second, cause, changes) in [
        (7, TrafficCause::Starting, 0),
        (36, TrafficCause::Starting, 0),
        (37, TrafficCause::NoReport, 2),
    ] {
        let decision = decided(&half, &workload(4), &mut record, second);
        assert_eq!((decision.cause, decision.changes.len()), (cause, changes));
    }
    let mut behind = workload(4);
    behind.is_observed = false;
    let decision = decided(&half, &behind, &mut record, 99);
    assert_eq!(
        (decision.cause, decision.changes.len()),
        (TrafficCause::Starting, 0)
    );
}

#[test]
fn without_the_preference_or_with_an_invalid_spec_every_pod_gets_requests() {
    let mut half = pods(4, 1.0);
    half[2..].iter_mut().for_each(make_spare);
    // A pod of an unknown owner.
    half[3].is_controlled = false;
    let waits = spec(&json!({"batching": {"prefer": "ShortWaits"}}));
    let eager = spec(&json!({"batching": {"policy": "Eager"}}));
    for spec in [
        None,
        Some(&waits),
        Some(&eager),
        Some(&spec(&json!({"batching": {}}))),
    ] {
        let workload = workload(4);
        let inputs = TrafficInputs {
            spec,
            workload: Some(&workload),
            pods: &half,
            delay: DELAY,
        };
        let decision = decide(&inputs, &mut TrafficRecord::default(), at(500));
        assert_eq!(decision.changes, [(2, Traffic::Serving)]);
        assert_eq!(decision.cause, TrafficCause::NotPreferred);
    }
}

#[test]
fn the_service_asks_for_the_label_only_where_every_pod_and_every_new_one_has_it() {
    let live = |labels: Value| LiveObject {
        uid: String::new(),
        resource_version: String::new(),
        controller: None,
        applied_digest: None,
        body: json!({"spec": {"template": {"metadata": {"labels": labels}}}}),
    };
    let (new, old) = (
        live(json!({TRAFFIC_LABEL: "serving"})),
        live(json!({"a": "b"})),
    );
    let idle = spec(&json!({}));
    let mut pods = pods(3, 1.0);
    make_spare(&mut pods[1]);
    assert!(selects_traffic(&idle, None, &[]));
    assert!(selects_traffic(&idle, Some(&new), &pods));
    assert!(!selects_traffic(&idle, Some(&old), &pods));
    assert!(!selects_traffic(
        &spec(&json!({"batching": {}})),
        Some(&new),
        &pods
    ));
    pods[0].traffic = None;
    assert!(!selects_traffic(&idle, Some(&new), &pods));
    pods[0].is_inactive = true;
    assert!(selects_traffic(&idle, Some(&new), &pods));
}

#[test]
fn the_autoscaler_adds_no_pod_for_requests_that_spare_pods_answer() {
    let spec = spec(&json!({"autoscaling": {"minReplicas": 1, "maxReplicas": 9}}));
    let mut pods = pods(4, 0.0);
    for pod in &mut pods {
        let late = RequestOutcomes {
            late: 50_000,
            ..RequestOutcomes::default()
        };
        let state = pod.state.as_mut().unwrap();
        (state.requests.late, state.requests_newest) = (100_000, late);
    }
    make_spare(&mut pods[3]);
    let mut record = DeploymentRecord::default();
    let wanted = |pods: &[ObservedPod], record: &mut DeploymentRecord, second| {
        replicas(&spec, pods, Some(&workload(4)), record, at(second)).0
    };
    assert_eq!(wanted(&pods, &mut record, 100), Some(4));
    pods[3].traffic = Some(Traffic::Serving);
    record.traffic.returned_at = Some(at(100));
    assert_eq!(wanted(&pods, &mut record, 129), Some(4), "as it was before");
    assert_eq!(wanted(&pods, &mut record, 131), Some(8));
}

/// Pods in any state in which a deployment may be found.
fn any_pods() -> impl Strategy<Value = Vec<ObservedPod>> {
    let pod = (0_usize..26, 0.0..1.0_f64, 0_u8..16, 0_u8..4, 0_u64..3);
    let pod = pod.prop_map(|(index, idle, traffic, odd, late)| {
        let mut pod = pods(26, idle).swap_remove(index);
        pod.traffic =
            [Some(Traffic::Serving), Some(Traffic::Spare), None][usize::from(traffic % 3)];
        pod.is_controlled = odd != 0 || traffic > 3;
        pod.is_inactive = odd == 1 && traffic > 12;
        pod.is_ready = odd != 2 || traffic > 3;
        pod.state.as_mut().unwrap().requests.late = late * 1000;
        pod
    });
    prop::collection::vec(pod, 0..8)
}

proptest! {
    #[test]
    fn what_is_decided_never_leaves_too_few_pods_and_touches_no_foreign_one(
        pods in any_pods(), seconds in prop::collection::vec(1_u64..100, 1..20),
        wanted in 0_usize..9,
    ) {
        let (mut pods, mut record, mut now) = (pods, TrafficRecord::default(), 0);
        for pause in seconds {
            now += pause;
            let decision = decided(&pods, &workload(wanted), &mut record, now);
            for (at, traffic) in decision.changes {
                prop_assert!(pods[at].is_controlled && !pods[at].is_inactive);
                prop_assert_ne!(pods[at].traffic, Some(traffic));
                pods[at].traffic = Some(traffic);
            }
            let ready: Vec<_> = pods.iter().filter(|pod| is_ready(pod)).collect();
            let serving = ready.iter().filter(|pod| !is_spare(pod)).count();
            prop_assert!(serving >= 1 || ready.is_empty());
            prop_assert!(serving == ready.len() || ready.len() >= wanted, "{}", now);
            let bad = TrafficCause::Load(ServingCause::BadRate);
            prop_assert!(decision.cause != bad || serving == ready.len());
        }
    }
}
