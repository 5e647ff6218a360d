//! Tests of decisions about single roll-outs, and of random histories of a whole cluster.
#![allow(clippy::unwrap_used, clippy::panic)] // tests fail by panicking

use albacore_api::{InferenceDeployment, SERVER_IMAGE_ANNOTATION};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::build::{BuildContext, BuiltInOptions, build};
use crate::validate::validate;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn one() -> Rollouts {
    Rollouts::new(NonZeroU32::MIN)
}

/// A valid deployment with additional spec fields, pinned to an image if one is given.
fn valid(name: &str, more: &Value, pin: Option<&str>) -> ValidDeployment {
    let mut object = json!({
        "apiVersion": "albacore.dev/v1beta1", "kind": "InferenceDeployment",
        "metadata": {"name": name, "namespace": "default", "uid": "u"},
        "spec": {"replicas": 2, "workers": 2, "threads": 2,
            "models": [{"name": "m", "uri": "pvc://models/m.ubj"}]},
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    if let Some(pin) = pin {
        object["metadata"]["annotations"] = json!({ SERVER_IMAGE_ANNOTATION: pin });
    }
    let deployment: InferenceDeployment = serde_json::from_value(object).unwrap();
    validate(&deployment).unwrap()
}

fn children(valid: &ValidDeployment, image: &str) -> Vec<ChildObject> {
    let build_context = BuildContext {
        built_in: BuiltInOptions {
            image: image.to_owned(),
            params_url: None,
        },
        has_service_monitors: false,
        replicas: valid.spec.replicas,
        selects_traffic: false,
    };
    build(valid, &build_context)
}

fn deployment(children: &[ChildObject]) -> &ChildObject {
    let mut found = children.iter().filter(|c| c.kind == ChildKind::Deployment);
    found.next().unwrap()
}

/// The Deployment as stored by an API server after an apply of `child`, with either all pods
/// available or no pod updated to the new template; its controller reported progress at
/// `progressed`.
fn live(child: &ChildObject, is_done: bool, progressed: Timestamp) -> LiveObject {
    let mut body = child.body.clone();
    body["metadata"]["generation"] = 1.into();
    let desired = body["spec"]["replicas"].as_i64().unwrap();
    let updated = if is_done { desired } else { 0 };
    let reason = match is_done {
        true => "NewReplicaSetAvailable",
        false => "ReplicaSetUpdated",
    };
    body["status"] = json!({
        "observedGeneration": 1, "replicas": desired, "updatedReplicas": updated,
        "readyReplicas": desired, "availableReplicas": desired,
        "conditions": [{"type": "Progressing", "status": "True", "reason": reason,
            "lastUpdateTime": progressed.to_string()}],
    });
    LiveObject {
        uid: "d".to_owned(),
        resource_version: "7".to_owned(),
        controller: Some(OwnerReference {
            uid: "u".to_owned(),
            ..OwnerReference::default()
        }),
        applied_digest: Some(child.digest.clone()),
        body,
    }
}

/// The decision about `valid` at `image` with the live Deployment `live`.
fn decision(
    rollouts: &Rollouts,
    valid: &ValidDeployment,
    image: &str,
    live: Option<&LiveObject>,
    now: Timestamp,
) -> (RolloutDecision, ChildObject) {
    let mut children = children(valid, image);
    let workload = live.map(Workload::of);
    let key = key(&valid.name);
    let inputs = RolloutInputs {
        key: &key,
        valid,
        live: live.zip(workload.as_ref()),
        is_edited: false,
    };
    let decision = rollouts.decide(&inputs, &mut children, now);
    (decision, deployment(&children).clone())
}

/// A deployment that runs `image` with all pods available.
fn running(rollouts: &Rollouts, valid: &ValidDeployment, image: &str) -> LiveObject {
    let (decision, child) = decision(rollouts, valid, image, None, at(-9000));
    assert_eq!(decision.state, RolloutState::Current);
    live(&child, true, at(-8000))
}

#[test]
fn an_upgrade_rolls_one_deployment_and_then_the_next() {
    let rollouts = one();
    let [a, b] = ["a", "b"].map(|name| valid(name, &json!({}), None));
    let (old_a, old_b) = (running(&rollouts, &a, "s:1"), running(&rollouts, &b, "s:1"));
    let (first, new_a) = decision(&rollouts, &a, "s:2", Some(&old_a), at(0));
    assert_eq!(first.state, RolloutState::Current);
    assert_eq!(image_of(&new_a.body), Some("s:2"));
    let (second, held) = decision(&rollouts, &b, "s:2", Some(&old_b), at(1));
    assert_eq!(second.state, RolloutState::Waiting(vec![key("a")]));
    assert!(second.is_held && second.pause.is_some());
    assert_eq!(
        held.body["spec"]["template"],
        old_b.body["spec"]["template"]
    );
    assert!(rollouts.due(at(1)).is_empty());

    // While the first one rolls, the second one waits; when the pods of the first one are
    // available, the second one starts.
    let (_, child) = decision(
        &rollouts,
        &a,
        "s:2",
        Some(&live(&new_a, false, at(2))),
        at(3),
    );
    assert_eq!(child.body, new_a.body, "nothing changes in the middle");
    assert!(rollouts.due(at(3)).is_empty());
    decision(
        &rollouts,
        &a,
        "s:2",
        Some(&live(&new_a, true, at(4))),
        at(5),
    );
    assert_eq!(rollouts.due(at(5)), [key("b")]);
    let (second, new_b) = decision(&rollouts, &b, "s:2", Some(&old_b), at(6));
    assert_eq!(second.state, RolloutState::Current);
    assert_eq!(image_of(&new_b.body), Some("s:2"));
}

#[test]
fn an_edit_never_waits_and_a_change_without_restarts_is_no_roll_out() {
    let rollouts = one();
    let [a, b] = ["a", "b"].map(|name| valid(name, &json!({}), None));
    let (old_a, old_b) = (running(&rollouts, &a, "s:1"), running(&rollouts, &b, "s:1"));
    decision(&rollouts, &a, "s:2", Some(&old_a), at(0));

    // The user edits the second one while the first one rolls: its roll-out includes the new image.
    let edited = valid("b", &json!({"threads": 3}), None);
    let (now, child) = decision(&rollouts, &edited, "s:2", Some(&old_b), at(1));
    assert_eq!((now.state, now.is_held), (RolloutState::Current, false));
    assert_eq!(image_of(&child.body), Some("s:2"));
    // The same holds for a pin of its own image.
    let pinned = valid("b", &json!({}), Some("s:9"));
    let (now, child) = decision(&rollouts, &pinned, "s:2", Some(&old_b), at(1));
    assert_eq!(now.state, RolloutState::Current);
    assert_eq!(image_of(&child.body), Some("s:9"));

    // A batching setting restarts no pods, so the upgrade continues to wait; a number of pods is
    // applied.
    let rollouts = one();
    decision(&rollouts, &a, "s:2", Some(&old_a), at(0));
    let more = json!({"batching": {"maxRows": 64}, "replicas": 5});
    let (now, child) = decision(
        &rollouts,
        &valid("b", &more, None),
        "s:2",
        Some(&old_b),
        at(1),
    );
    assert_eq!(now.state, RolloutState::Waiting(vec![key("a")]));
    assert!(!now.is_held, "the number of pods is to be applied");
    assert_eq!(child.body["spec"]["replicas"], 5);
    assert_eq!(image_of(&child.body), Some("s:1"));
    assert_eq!(child.body["metadata"]["resourceVersion"], "7");
    // Without pods there is nothing to restart.
    let none = valid("b", &json!({"replicas": 0}), None);
    let old_none = running(&one(), &none, "s:1");
    let (now, _) = decision(&rollouts, &none, "s:2", Some(&old_none), at(1));
    assert_eq!(now.state, RolloutState::Current);
}

#[test]
fn a_roll_out_that_cannot_be_written_releases_its_slot() {
    let rollouts = one();
    let [a, b] = ["a", "b"].map(|name| valid(name, &json!({}), None));
    let (old_a, old_b) = (running(&rollouts, &a, "s:1"), running(&rollouts, &b, "s:1"));
    let limit = ROLLOUT_STUCK_AFTER.as_secs();
    // Every write of the first one fails, and it repeats its request.
    for second in [0, 1, limit - 1] {
        let (now, _) = decision(&rollouts, &a, "s:2", Some(&old_a), at(second));
        assert_eq!(now.state, RolloutState::Current);
        let (now, _) = decision(&rollouts, &b, "s:2", Some(&old_b), at(second));
        assert_eq!(now.state, RolloutState::Waiting(vec![key("a")]));
    }
    let (now, _) = decision(&rollouts, &a, "s:2", Some(&old_a), at(limit));
    assert!(matches!(now.state, RolloutState::Waiting(_)));
    assert_eq!(rollouts.due(at(limit)), [key("b")]);
    let (now, _) = decision(&rollouts, &b, "s:2", Some(&old_b), at(limit));
    assert_eq!(now.state, RolloutState::Current);
}

#[test]
fn a_pin_keeps_its_image_through_an_upgrade() {
    let rollouts = one();
    let pinned = valid("a", &json!({}), Some("s:1"));
    let old = running(&rollouts, &pinned, "s:1");
    let (now, child) = decision(&rollouts, &pinned, "s:2", Some(&old), at(0));
    assert_eq!((now.state, now.pause), (RolloutState::Current, None));
    assert_eq!(image_of(&child.body), Some("s:1"));
    assert_eq!(child.digest, old.applied_digest.unwrap());
}

#[test]
fn a_stuck_roll_out_is_reported_and_blocks_for_ten_minutes() {
    let rollouts = one();
    let [a, b] = ["a", "b"].map(|name| valid(name, &json!({}), None));
    let (old_a, old_b) = (running(&rollouts, &a, "s:1"), running(&rollouts, &b, "s:1"));
    let (_, new_a) = decision(&rollouts, &a, "s:2", Some(&old_a), at(0));
    decision(&rollouts, &b, "s:2", Some(&old_b), at(1));
    let limit = ROLLOUT_STUCK_AFTER.as_secs();
    // Progress extends the deadline.
    let stuck = live(&new_a, false, at(100));
    let (now, _) = decision(&rollouts, &a, "s:2", Some(&stuck), at(limit));
    assert_eq!(now.state, RolloutState::Current);
    assert_eq!(now.pause, Some(Duration::from_secs(100)));
    assert!(rollouts.due(at(limit)).is_empty());
    let (now, _) = decision(&rollouts, &a, "s:2", Some(&stuck), at(limit + 100));
    assert_eq!(now.state, RolloutState::Stuck(at(100)));
    assert_eq!(rollouts.due(at(limit + 100)), [key("b")]);
    let (next, _) = decision(&rollouts, &b, "s:2", Some(&old_b), at(limit + 101));
    assert_eq!(next.state, RolloutState::Current);

    // A controller that was just started rebuilds both from the cluster.
    let again = one();
    let all = [
        (key("a"), stuck.clone()),
        (key("b"), live(&new_a, false, at(0))),
    ];
    again.rebuild(all.clone().into_iter(), at(50));
    assert!(again.due(at(50)).is_empty());
    let c = valid("c", &json!({}), None);
    let old_c = running(&one(), &c, "s:1");
    let (now, _) = decision(&again, &c, "s:2", Some(&old_c), at(50));
    assert_eq!(now.state, RolloutState::Waiting(vec![key("a"), key("b")]));

    // Pods that are lost long after a roll-out do not make it stuck.
    let mut lost = live(&new_a, true, at(10));
    lost.body["status"]["availableReplicas"] = 1.into();
    assert_eq!(
        progress(&lost, &Workload::of(&lost), at(20)),
        RolloutProgress::Rolling(at(10 + limit))
    );
    assert_eq!(
        progress(&lost, &Workload::of(&lost), at(10 + limit)),
        RolloutProgress::Settled
    );
}

#[test]
fn deployments_without_annotations_are_paced_unless_edited() {
    let rollouts = one();
    let [a, b] = ["a", "b"].map(|name| valid(name, &json!({}), None));
    let unmarked =
        |valid: &ValidDeployment| live(deployment(&children(valid, "s:1")), true, at(-100));
    let (old_a, old_b) = (unmarked(&a), unmarked(&b));
    assert_eq!(
        RolloutAnnotations::of_live(&old_a),
        RolloutAnnotations::default()
    );
    decision(&rollouts, &a, "s:2", Some(&old_a), at(0));
    let (now, _) = decision(&rollouts, &b, "s:2", Some(&old_b), at(0));
    assert!(matches!(now.state, RolloutState::Waiting(_)));
    let workload = Workload::of(&old_b);
    let inputs = RolloutInputs {
        key: &key("b"),
        valid: &b,
        live: Some((&old_b, &workload)),
        is_edited: true,
    };
    let now = rollouts.decide(&inputs, &mut children(&b, "s:2"), at(0));
    assert_eq!(now.state, RolloutState::Current);
}

#[test]
fn the_condition_names_the_image_and_the_roll_outs_waited_for() {
    let rollouts = one();
    let [a, b] = ["a", "b"].map(|name| valid(name, &json!({}), None));
    let (old_a, old_b) = (running(&rollouts, &a, "s:1"), running(&rollouts, &b, "s:1"));
    decision(&rollouts, &a, "s:2", Some(&old_a), at(0));
    let (waiting, _) = decision(&rollouts, &b, "s:2", Some(&old_b), at(0));
    let pending = |decision: &RolloutDecision| upgrade_pending(decision, Some("s:1"));
    let condition = pending(&waiting).unwrap();
    assert_eq!(
        (condition.status, condition.reason.as_str()),
        ("True", "Waiting")
    );
    let message = condition.message;
    assert!(
        message.starts_with("image s:2 waits until the pods of default/a are available"),
        "{message}"
    );
    let stuck = RolloutDecision {
        state: RolloutState::Stuck(at(0)),
        ..waiting
    };
    let condition = pending(&stuck).unwrap();
    assert_eq!(condition.reason, STUCK);
    let message = condition.message;
    assert!(message.contains("no progress since"), "{message}");
    assert!(pending(&RolloutDecision::current(None)).is_none());
}

#[test]
fn the_digest_of_pod_fields_is_the_same_in_every_version() {
    // A change of these values restarts every pod of every user at once on the next upgrade.
    let plain = valid("a", &json!({}), None);
    assert_eq!(
        annotations::pod_fields(&plain),
        json!({"workers": 2, "threads": 2, "volumes": ["/models/pvc/models"]})
    );
    let pinned = valid(
        "a",
        &json!({"resources": {"limits": {"cpu": "4"}}}),
        Some("s:1"),
    );
    let fields = annotations::pod_fields(&pinned);
    assert_eq!(fields["resources"], json!({"limits": {"cpu": "4"}}));
    assert_eq!(fields["serverImage"], "s:1");
}

#[test]
fn a_field_that_changes_the_pod_template_is_a_pod_field() {
    let server = json!([{"name": "server", "env": [{"name": "A", "value": "b"}]}]);
    let edits = json!({
        "replicas": 3, "workers": 3, "threads": 3, "mode": "Compact",
        "placement": {"policy": "RoundRobin"},
        "models": [{"name": "m", "uri": "pvc://others/m.ubj"}],
        "batching": {"maxRows": 64}, "queue": {"maxRows": 4096}, "front": {"threads": 3},
        "autoscaling": {"minReplicas": 1, "maxReplicas": 2},
        "resources": {"limits": {"cpu": "4"}},
        "template": {"spec": {"containers": server}},
    });
    let crd = albacore_api::inference_deployment_crd();
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let before = valid("a", &json!({}), None);
    let template =
        |v: &ValidDeployment| deployment(&children(v, "s:1")).body["spec"]["template"].clone();
    for field in crd.pointer(spec).unwrap().as_object().unwrap().keys() {
        let edit = edits.get(field);
        let edit = edit.unwrap_or_else(|| panic!("spec.{field}: name another value for it here"));
        let after = valid("a", &json!({ field: edit }), None);
        assert_eq!(
            template(&before) != template(&after),
            annotations::pod_fields(&before) != annotations::pod_fields(&after),
            "spec.{field}: a field of the pod template belongs into pod_fields, others do not"
        );
    }
}

/// A step in a history of four deployments.
#[derive(Clone, Debug)]
enum Event {
    /// The deployment is reconciled; after an upgrade it requests its roll-out.
    Reconcile(usize),
    /// All pods of its newest template become available.
    Available(usize),
    /// Its roll-out makes progress.
    Progress(usize),
    /// The operator is upgraded.
    Upgrade,
    Restart,
    /// Time passes, in seconds.
    Wait(i64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (0..4_usize).prop_map(Event::Reconcile),
        4 => (0..4_usize).prop_map(Event::Available),
        2 => (0..4_usize).prop_map(Event::Progress),
        1 => Just(Event::Upgrade),
        1 => Just(Event::Restart),
        2 => (1..400_i64).prop_map(Event::Wait),
    ]
}

/// Deployments whose roll-outs [`Rollouts`] decides, and a simulated cluster that applies the
/// decisions.
struct SimulatedCluster {
    rollouts: Rollouts,
    max: u32,
    valid: Vec<ValidDeployment>,
    live: Vec<LiveObject>,
    version: u32,
    now: i64,
}

impl SimulatedCluster {
    fn new(max: u32) -> Self {
        let rollouts = Rollouts::new(NonZeroU32::new(max).unwrap());
        let names = ["a", "b", "c", "d"];
        let valid: Vec<ValidDeployment> =
            names.iter().map(|n| valid(n, &json!({}), None)).collect();
        let live = valid.iter().map(|v| running(&rollouts, v, "s:0")).collect();
        Self {
            rollouts,
            max,
            valid,
            live,
            version: 0,
            now: 0,
        }
    }

    fn image(&self) -> String {
        format!("s:{}", self.version)
    }

    fn reconcile(&mut self, index: usize) {
        let (valid, image) = (&self.valid[index], self.image());
        let (decision, child) = decision(
            &self.rollouts,
            valid,
            &image,
            Some(&self.live[index]),
            at(self.now),
        );
        let was_rolling = self.is_rolling(index);
        let has_changed =
            child.body["spec"]["template"] != self.live[index].body["spec"]["template"];
        match decision.state {
            RolloutState::Waiting(_) => assert!(!has_changed, "what waits keeps its pods"),
            _ if has_changed => {
                self.live[index] = live(&child, false, at(self.now));
                let rolling = (0..4).filter(|index| self.is_rolling(*index)).count();
                assert!(
                    was_rolling || rolling <= self.max as usize,
                    "{rolling} roll"
                );
            }
            _ => {}
        }
    }

    /// Whether its roll-out is in progress and not stuck.
    fn is_rolling(&self, index: usize) -> bool {
        let live = &self.live[index];
        let progress = progress(live, &Workload::of(live), at(self.now));
        matches!(progress, RolloutProgress::Rolling(_))
    }

    fn set_available(&mut self, index: usize) {
        self.report_progress(index, |body| {
            let desired = body["spec"]["replicas"].clone();
            body["status"]["updatedReplicas"] = desired;
            body["status"]["conditions"][0]["reason"] = "NewReplicaSetAvailable".into();
        });
    }

    /// The Deployment's controller reports progress.
    fn report_progress(&mut self, index: usize, change: impl FnOnce(&mut Value)) {
        let body = &mut self.live[index].body;
        let is_rolling = body["status"]["updatedReplicas"] == 0;
        if is_rolling {
            body["status"]["conditions"][0]["lastUpdateTime"] = at(self.now).to_string().into();
            change(body);
        }
    }

    fn apply_event(&mut self, event: &Event) {
        match event {
            Event::Reconcile(index) => self.reconcile(*index),
            Event::Available(index) => self.set_available(*index),
            Event::Progress(index) => {
                self.report_progress(*index, |_| {});
                // The watch reports it.
                self.reconcile(*index);
            }
            Event::Upgrade => self.version += 1,
            Event::Restart => {
                self.rollouts = Rollouts::new(NonZeroU32::new(self.max).unwrap());
                let keys = self.valid.iter().map(|valid| key(&valid.name));
                let live = keys.zip(self.live.iter().cloned());
                self.rollouts.rebuild(live, at(self.now));
            }
            Event::Wait(seconds) => self.now += seconds,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// In any history, an upgrade never rolls more than `max` deployments at once, and it ends even
    /// if no earlier roll-out ever completes.
    #[test]
    fn upgrades_keep_their_bound_and_come_to_an_end(
        max in 1..4_u32,
        events in prop::collection::vec(event(), 1..60),
    ) {
        let mut world = SimulatedCluster::new(max);
        for event in &events {
            world.apply_event(event);
        }
        // From here on only time passes and every deployment is reconciled.
        for _ in 0..8 {
            (0..4).for_each(|index| world.reconcile(index));
            world.now += ROLLOUT_STUCK_AFTER.as_secs();
        }
        let image = world.image();
        for live in &world.live {
            prop_assert_eq!(image_of(&live.body), Some(image.as_str()));
        }
        // Waiting deployments are queued as soon as a slot is free.
        let long = SignedDuration::from_hours(1);
        prop_assert!(world.rollouts.due(at(world.now) + long).is_empty());
    }
}
