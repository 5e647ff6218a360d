//! Tests of which pods are placed, and of the reasons given for others.

use albacore_cluster::ObjectKey;
use albacore_plan::{Enforcement, PlacementMethod, ServerKind};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::pods_for_tests::running;

fn pod(name: &str) -> OptedInPod {
    OptedInPod {
        key: ObjectKey::new("shop", name),
        uid: format!("uid-of-{name}"),
        opt_in: OptIn::Deployment {
            name: "fraud".to_owned(),
            annotation: None,
        },
        addresses: vec!["10.0.0.1".to_owned()],
        container: running("c1"),
        is_static: false,
        has_ended: false,
        regarding: Default::default(),
    }
}

fn deployment(more: &Value) -> InferenceDeployment {
    let mut spec = json!({"workers": 2, "threads": 2,
        "models": [{"name": "m", "uri": "pvc://models/m.ubj"}]});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "albacore.dev/v1beta1", "kind": "InferenceDeployment",
        "metadata": {"name": "fraud", "namespace": "shop", "generation": 3}, "spec": spec}))
    .unwrap()
}

const UNRESTRICTED: NodeRules = NodeRules {
    enforcement: Enforcement::Enforce,
    kill_switch: KillSwitch::Absent,
};

fn action_for(
    pod: OptedInPod,
    deployment: Option<&InferenceDeployment>,
    rules: NodeRules,
) -> PodAction {
    desired_pods([pod], |_| deployment, rules).remove(0).action
}

fn reason(action: PodAction) -> String {
    match action {
        PodAction::Place { .. } => "placed".to_owned(),
        PodAction::Keep { reason }
        | PodAction::Release { reason }
        | PodAction::Refuse { reason } => reason,
    }
}

#[test]
fn a_running_pod_is_placed_by_the_policy_of_its_deployment() {
    let fraud = deployment(&json!({"mode": "Compact"}));
    let PodAction::Place {
        container,
        server_kind,
        policy,
        generation,
        counts,
        trial,
    } = action_for(pod("a"), Some(&fraud), UNRESTRICTED)
    else {
        panic!("not placed");
    };
    assert_eq!(
        (container.as_str(), server_kind, generation),
        ("c1", Some(ServerKind::Named), 3)
    );
    assert_eq!((policy.workers, policy.threads), (2, 2));
    assert_eq!((trial, counts), (None, CountSources::Deployment));
    assert_eq!(policy.placement, PlacementMethod::Tuna);
    let own = deployment(&json!({"models": [],
        "template": {"spec": {"containers": [{"name": "server", "image": "x"}]}}}));
    let action = action_for(pod("a"), Some(&own), UNRESTRICTED);
    assert!(matches!(
        action,
        PodAction::Place {
            server_kind: Some(ServerKind::PreFork),
            ..
        }
    ));
}

#[test]
fn a_pod_that_is_not_placed_says_why() {
    let fraud = deployment(&json!({}));
    let reason_for = |change: fn(&mut OptedInPod)| {
        let mut pod = pod("a");
        change(&mut pod);
        reason(action_for(pod, Some(&fraud), UNRESTRICTED))
    };
    assert!(reason_for(|pod| pod.key.namespace = "kube-system".to_owned()).contains("kube-system"));
    assert!(reason_for(|pod| pod.is_static = true).contains("static"));
    let ended = reason_for(|pod| {
        pod.container = PlacedContainer::NotRunning {
            name: "server".to_owned(),
        };
    });
    assert_eq!(ended, "container server is not running");
    let absent = reason_for(|pod| {
        pod.container = PlacedContainer::Missing {
            reason: "no container".to_owned(),
        };
    });
    assert_eq!(absent, "no container");
    let missing = reason(action_for(pod("a"), None, UNRESTRICTED));
    assert_eq!(missing, "there is no InferenceDeployment shop/fraud");
    let broken = deployment(&json!({"workers": 256, "threads": 256}));
    assert!(matches!(
        action_for(pod("a"), Some(&broken), UNRESTRICTED),
        PodAction::Keep { .. }
    ));
    let mut over = pod("a");
    over.has_ended = true;
    assert!(desired_pods([over], |_| Some(&fraud), UNRESTRICTED).is_empty());
}

#[test]
fn the_kill_switch_releases_and_an_invalid_value_observes() {
    let fraud = deployment(&json!({}));
    let under = |kill_switch| {
        let rules = NodeRules {
            kill_switch,
            ..UNRESTRICTED
        };
        action_for(pod("a"), Some(&fraud), rules)
    };
    assert!(matches!(
        under(KillSwitch::of(Some("None"))),
        PodAction::Release { .. }
    ));
    for held in [
        KillSwitch::of(Some("Observe")),
        KillSwitch::of(Some("none")),
        KillSwitch::of(Some("")),
    ] {
        let PodAction::Place { policy, .. } = under(held) else {
            panic!("{held:?}");
        };
        assert_eq!(policy.enforcement, Enforcement::Observe, "{held:?}");
    }
}

fn annotated(text: &str, omp_threads: Option<u16>) -> OptedInPod {
    OptedInPod {
        opt_in: OptIn::Annotation {
            annotation: PlaceAnnotation::read(text),
            omp_threads,
        },
        ..pod("a")
    }
}

#[test]
fn an_annotated_pod_needs_no_deployment_and_reports_the_source_of_its_counts() {
    for (text, omp_threads, shape, sources, known) in [
        (
            r#"{"workers": 4, "threads": 3, "mode": "Compact"}"#,
            Some(8),
            (4, 3),
            (CountSource::Annotation, CountSource::Annotation),
            true,
        ),
        (
            r#"{"workers": 4}"#,
            Some(8),
            (4, 8),
            (CountSource::Annotation, CountSource::Environment),
            true,
        ),
        (
            "{}",
            None,
            (WORKERS_UNKNOWN, THREADS_UNKNOWN),
            (CountSource::ProcessTree, CountSource::ProcessTree),
            false,
        ),
    ] {
        let action = action_for(annotated(text, omp_threads), None, UNRESTRICTED);
        let PodAction::Place {
            policy,
            counts,
            server_kind: None,
            ..
        } = action
        else {
            panic!("{text}: {action:?}");
        };
        assert_eq!((policy.workers, policy.threads), shape, "{text}");
        let (workers, threads) = sources;
        let wanted = CountSources::Annotation {
            workers,
            threads,
            are_known: known,
        };
        assert_eq!(counts, wanted, "{text}");
    }
}

#[test]
fn a_wrong_or_contradicting_annotation_refuses_the_pod() {
    let refused = |pod: OptedInPod, deployment: Option<&InferenceDeployment>| match action_for(
        pod,
        deployment,
        UNRESTRICTED,
    ) {
        PodAction::Refuse { reason } => reason,
        other => panic!("{other:?}"),
    };
    let wrong = refused(annotated("{\"worker\": 4}", None), None);
    assert!(wrong.contains("did you mean \"workers\""), "{wrong}");
    let mut unnamed = annotated("{}", None);
    unnamed.container = PlacedContainer::Missing {
        reason: "the pod has several containers (a, b)".to_owned(),
    };
    assert!(
        refused(unnamed, None).starts_with("albacore.dev/place: the pod has several containers")
    );
    let fraud = deployment(&json!({}));
    let both = |text: &str| {
        let mut pod = pod("a");
        pod.opt_in = OptIn::Deployment {
            name: "fraud".to_owned(),
            annotation: Some(PlaceAnnotation::read(text)),
        };
        pod
    };
    let says = refused(both(r#"{"workers": 4}"#), Some(&fraud));
    assert!(
        says.contains("workers is 4") && says.contains("has 2"),
        "{says}"
    );
    assert!(refused(both("4"), Some(&fraud)).contains("JSON object"));
    let agrees = both(r#"{"workers": 2, "container": "server", "mode": "Scatter"}"#);
    let action = action_for(agrees, Some(&fraud), UNRESTRICTED);
    assert!(matches!(action, PodAction::Place { .. }), "{action:?}");
}

fn enforcements() -> impl Strategy<Value = Enforcement> {
    prop_oneof![Just(Enforcement::Enforce), Just(Enforcement::Observe)]
}

fn kill_switches() -> impl Strategy<Value = KillSwitch> {
    prop_oneof![
        Just(KillSwitch::Absent),
        Just(KillSwitch::Observe),
        Just(KillSwitch::None),
        Just(KillSwitch::Invalid)
    ]
}

proptest! {
    #[test]
    fn masks_are_written_only_if_flag_switch_and_policy_permit_it(
        flag in enforcements(), kill_switch in kill_switches(), requested in enforcements(),
    ) {
        let requested_text = if requested == Enforcement::Enforce { "Enforce" } else { "Observe" };
        let fraud = deployment(&json!({"placement": {"enforcement": requested_text}}));
        let rules = NodeRules { enforcement: flag, kill_switch };
        let is_unrestricted = kill_switch == KillSwitch::Absent;
        let permits = [flag, requested].iter().all(|e| *e == Enforcement::Enforce) && is_unrestricted;
        let writes = match action_for(pod("a"), Some(&fraud), rules) {
            PodAction::Place { policy, .. } => policy.enforcement == Enforcement::Enforce,
            PodAction::Keep { .. } | PodAction::Release { .. } | PodAction::Refuse { .. } => false,
        };
        prop_assert_eq!(writes, permits);
        let text = format!(r#"{{"workers": 2, "threads": 2, "enforcement": "{requested_text}"}}"#);
        let writes = match action_for(annotated(&text, None), None, rules) {
            PodAction::Place { policy, .. } => policy.enforcement == Enforcement::Enforce,
            _ => false,
        };
        prop_assert_eq!(writes, permits);
    }

    #[test]
    fn the_order_of_pods_does_not_matter_and_duplicates_are_removed(
        names in proptest::collection::vec("[a-d]{1,2}", 0..12),
    ) {
        let fraud = deployment(&json!({}));
        let forward = desired_pods(names.iter().map(|n| pod(n)), |_| Some(&fraud), UNRESTRICTED);
        let backward = desired_pods(names.iter().rev().map(|n| pod(n)), |_| Some(&fraud), UNRESTRICTED);
        prop_assert_eq!(&forward, &backward);
        let uids: std::collections::BTreeSet<_> = forward.iter().map(|w| &w.pod.uid).collect();
        prop_assert_eq!(uids.len(), forward.len());
    }
}
