//! Laws of the wishes.

use albacore_cluster::Key;
use albacore_plan::{Enforcement, Placement, Source};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn pod(name: &str) -> PodSeen {
    PodSeen {
        key: Key::new("shop", name),
        uid: format!("uid-of-{name}"),
        deployment: "fraud".to_owned(),
        addresses: vec!["10.0.0.1".to_owned()],
        container: Container::Running("c1".to_owned()),
        is_static: false,
        is_over: false,
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
        "apiVersion": "albacore.dev/v1alpha1", "kind": "InferenceDeployment",
        "metadata": {"name": "fraud", "namespace": "shop", "generation": 3}, "spec": spec}))
    .unwrap()
}

const FREE: NodeRules = NodeRules {
    enforcement: Enforcement::Enforce,
    switch: Switch::Absent,
};

fn wish(pod: PodSeen, deployment: Option<&InferenceDeployment>, rules: NodeRules) -> Aim {
    decide([pod], |_| deployment, rules).remove(0).aim
}

fn reason(aim: Aim) -> String {
    match aim {
        Aim::Place { .. } => "placed".to_owned(),
        Aim::Keep { reason } | Aim::Leave { reason } => reason,
    }
}

#[test]
fn a_running_pod_of_a_deployment_is_placed_as_that_says() {
    let fraud = deployment(&json!({"mode": "Compact"}));
    let Aim::Place {
        container,
        source,
        policy,
        generation,
        trial,
    } = wish(pod("a"), Some(&fraud), FREE)
    else {
        panic!("not placed");
    };
    assert_eq!(
        (container.as_str(), source, generation),
        ("c1", Source::Named, 3)
    );
    assert_eq!((policy.workers, policy.threads), (2, 2));
    assert_eq!(trial, None);
    assert_eq!(policy.placement, Placement::Tuna);
    let own = deployment(&json!({"models": [],
        "template": {"spec": {"containers": [{"name": "server", "image": "x"}]}}}));
    let aim = wish(pod("a"), Some(&own), FREE);
    assert!(matches!(
        aim,
        Aim::Place {
            source: Source::PreFork,
            ..
        }
    ));
}

#[test]
fn what_is_not_placed_says_why() {
    let fraud = deployment(&json!({}));
    let told = |change: fn(&mut PodSeen)| {
        let mut pod = pod("a");
        change(&mut pod);
        reason(wish(pod, Some(&fraud), FREE))
    };
    assert!(told(|pod| pod.key.namespace = "kube-system".to_owned()).contains("kube-system"));
    assert!(told(|pod| pod.is_static = true).contains("static"));
    assert!(told(|pod| pod.container = Container::NotRunning).contains("does not run"));
    assert!(told(|pod| pod.container = Container::Absent).contains("named server"));
    let told = reason(wish(pod("a"), None, FREE));
    assert_eq!(told, "there is no InferenceDeployment shop/fraud");
    let broken = deployment(&json!({"workers": 256, "threads": 256}));
    assert!(matches!(
        wish(pod("a"), Some(&broken), FREE),
        Aim::Keep { .. }
    ));
    let mut over = pod("a");
    over.is_over = true;
    assert!(decide([over], |_| Some(&fraud), FREE).is_empty());
}

#[test]
fn the_kill_switch_gives_back_and_what_is_not_understood_holds_back() {
    let fraud = deployment(&json!({}));
    let under = |switch| {
        let rules = NodeRules { switch, ..FREE };
        wish(pod("a"), Some(&fraud), rules)
    };
    assert!(matches!(under(Switch::of(Some("None"))), Aim::Leave { .. }));
    for held in [
        Switch::of(Some("Observe")),
        Switch::of(Some("none")),
        Switch::of(Some("")),
    ] {
        let Aim::Place { policy, .. } = under(held) else {
            panic!("{held:?}");
        };
        assert_eq!(policy.enforcement, Enforcement::Observe, "{held:?}");
    }
}

fn enforcements() -> impl Strategy<Value = Enforcement> {
    prop_oneof![Just(Enforcement::Enforce), Just(Enforcement::Observe)]
}

fn switches() -> impl Strategy<Value = Switch> {
    prop_oneof![
        Just(Switch::Absent),
        Just(Switch::Observe),
        Just(Switch::None),
        Just(Switch::Unknown)
    ]
}

proptest! {
    #[test]
    fn masks_are_written_only_where_all_three_permit_it(
        flag in enforcements(), switch in switches(), asked in enforcements(),
    ) {
        let asked_text = if asked == Enforcement::Enforce { "Enforce" } else { "Observe" };
        let fraud = deployment(&json!({"placement": {"enforcement": asked_text}}));
        let rules = NodeRules { enforcement: flag, switch };
        let is_free = switch == Switch::Absent;
        let permits = [flag, asked].iter().all(|e| *e == Enforcement::Enforce) && is_free;
        let writes = match wish(pod("a"), Some(&fraud), rules) {
            Aim::Place { policy, .. } => policy.enforcement == Enforcement::Enforce,
            Aim::Keep { .. } | Aim::Leave { .. } => false,
        };
        prop_assert_eq!(writes, permits);
    }

    #[test]
    fn the_order_of_pods_does_not_matter_and_none_is_wished_twice(
        names in proptest::collection::vec("[a-d]{1,2}", 0..12),
    ) {
        let fraud = deployment(&json!({}));
        let forward = decide(names.iter().map(|n| pod(n)), |_| Some(&fraud), FREE);
        let backward = decide(names.iter().rev().map(|n| pod(n)), |_| Some(&fraud), FREE);
        prop_assert_eq!(&forward, &backward);
        let uids: std::collections::BTreeSet<_> = forward.iter().map(|w| &w.pod.uid).collect();
        prop_assert_eq!(uids.len(), forward.len());
    }
}
