//! Tests of the patch of a spec and its reverse, and of the rollout state in a status.

use albacore_api::{BatchingPolicy, Front, InferenceDeployment, InferenceDeploymentSpec, Timespan};
use albacore_cluster::DynamicObject;
use serde_json::{Value, json};

use super::patch::{Patches, is_unedited};
use super::serving::{ValuesRollout, rollout_state};

fn object(spec: &Value, status: &Value) -> DynamicObject {
    let object = json!({
        "apiVersion": "albacore.dev/v1beta1", "kind": "InferenceDeployment",
        "metadata": {"name": "fraud", "namespace": "team", "uid": "1", "generation": 2},
        "spec": spec, "status": status,
    });
    serde_json::from_value(object).unwrap()
}

fn spec() -> InferenceDeploymentSpec {
    let spec = json!({
        "workers": 2, "threads": 2, "batching": {"policy": "Timeout", "maxDelay": "2ms"},
        "models": [{"name": "fraud", "uri": "file:///m", "slo": {"latency": "25ms"}}],
    });
    let object = serde_json::to_value(object(&spec, &Value::Null)).unwrap();
    serde_json::from_value::<InferenceDeployment>(object)
        .unwrap()
        .spec
}

#[test]
fn a_patch_has_what_differs_and_its_reverse_removes_what_was_absent() {
    let mut chosen = spec();
    chosen.workers = 1;
    chosen.replicas = Some(3);
    chosen.batching.policy = BatchingPolicy::Auto;
    chosen.batching.max_delay = None;
    let threads = Some(2);
    chosen.front = Some(Front {
        threads,
        ..Front::default()
    });
    let patches = Patches::between(&spec(), &chosen).unwrap().unwrap();
    let forward = json!({
        "workers": 1, "replicas": 3, "front": {"threads": 2}, "batching": {"policy": "Auto", "maxDelay": null},
    });
    let backward = json!({
        "workers": 2, "replicas": 1, "front": null, "batching": {"policy": "Timeout", "maxDelay": "2ms"},
    });
    assert_eq!(patches, Patches { forward, backward });
    assert_eq!(Patches::between(&spec(), &spec()), Ok(None));
}

#[test]
fn a_file_that_changes_other_fields_than_the_search_is_refused() {
    let mut chosen = spec();
    chosen.workers = 1;
    let model = &mut chosen.models[0];
    model.slo.as_mut().unwrap().latency = Timespan::from_micros(9).unwrap();
    let refused = Patches::between(&spec(), &chosen);
    assert_eq!(refused, Err("spec.models".to_owned()));
}

#[test]
fn edits_are_detected_except_those_of_an_autoscaler() {
    let read = object(&json!({"workers": 2, "replicas": 1}), &Value::Null);
    let scaled = object(
        &json!({"workers": 2, "replicas": 9}),
        &json!({"ready": "1/9"}),
    );
    assert!(is_unedited(&scaled, &read));
    let edited = object(&json!({"workers": 3, "replicas": 1}), &Value::Null);
    assert!(!is_unedited(&edited, &read));
    let mut another = scaled;
    another.metadata.uid = Some("2".to_owned());
    assert!(!is_unedited(&another, &read), "made anew");
}

#[test]
fn values_are_in_force_when_the_controller_has_observed_their_generation() {
    let of = |generation: i64, conditions: Value| {
        let status = json!({"observedGeneration": generation, "conditions": conditions});
        rollout_state(&object(&Value::Null, &status))
    };
    let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": "2 of 3"});
    let ready = condition("Ready", "True", "Serving");
    assert_eq!(of(2, json!([ready])), ValuesRollout::InForce);
    assert_eq!(of(3, json!([ready])), ValuesRollout::InForce);
    assert!(matches!(of(1, json!([ready])), ValuesRollout::Pending(_)));
    let rolling = condition("Reconciling", "True", "RollingOut");
    let pending = ValuesRollout::Pending("RollingOut: 2 of 3".to_owned());
    assert_eq!(of(2, json!([ready, rolling])), pending);
    for [kind, reason] in [
        ["Stalled", "ProgressDeadlineExceeded"],
        ["Reconciling", "SettingsRefused"],
    ] {
        let rejected = ValuesRollout::Rejected(format!("{reason}: 2 of 3"));
        assert_eq!(
            of(2, json!([ready, condition(kind, "True", reason)])),
            rejected
        );
    }
    let unready = condition("Ready", "Unknown", "StateUnread");
    let pending = ValuesRollout::Pending("StateUnread: 2 of 3".to_owned());
    assert_eq!(of(2, json!([unready])), pending);
    assert!(matches!(of(2, json!([])), ValuesRollout::Pending(_)));
}
