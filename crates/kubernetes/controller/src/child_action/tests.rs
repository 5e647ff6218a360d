//! Tests of the action for children in given states.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::json;

use super::*;
use crate::children::ChildKind;

fn child(cpu: &str) -> ChildObject {
    let owners = json!([{"name": "fraud"}]);
    let metadata = json!({"name": "x", "labels": {"a": "b"}, "ownerReferences": owners});
    let containers = json!([{"name": "server", "cpu": cpu, "env": [{"name": "A", "value": "1"}]}]);
    ChildObject::new(
        ChildKind::Deployment,
        metadata,
        json!({"spec": {"containers": containers}}),
    )
}

/// `child` as stored by the API server, with fields of other managers.
fn live(child: &ChildObject, version: &str) -> LiveObject {
    let mut body = child.body.clone();
    body["metadata"]["labels"]["theirs"] = "x".into();
    body["spec"]["paused"] = true.into();
    let containers = body["spec"]["containers"].as_array_mut().unwrap();
    containers.insert(0, json!({"name": "injected"}));
    containers[1]["env"]
        .as_array_mut()
        .unwrap()
        .insert(0, json!({"name": "B"}));
    let controller = OwnerReference {
        api_version: "albacore.dev/v1alpha1".to_owned(),
        kind: "InferenceDeployment".to_owned(),
        name: "fraud".to_owned(),
        uid: "u".to_owned(),
        ..OwnerReference::default()
    };
    LiveObject {
        uid: "c".to_owned(),
        resource_version: version.to_owned(),
        controller: Some(controller),
        applied_digest: Some(child.digest.clone()),
        body,
    }
}

#[test]
fn a_child_in_sync_is_not_written_whatever_other_managers_added() {
    let child = child("1");
    assert_eq!(
        child_action(&child, Some(&live(&child, "5")), "u", None),
        ChildAction::InSync
    );
}

#[test]
fn a_changed_body_and_a_changed_field_are_recognized() {
    let desired = child("1");
    assert_eq!(
        child_action(&child("2"), Some(&live(&desired, "5")), "u", None),
        ChildAction::Update
    );
    let mut drifted = live(&desired, "5");
    drifted.body["spec"]["containers"][1]["cpu"] = "9".into();
    assert_eq!(
        child_action(&desired, Some(&drifted), "u", None),
        ChildAction::Update
    );
    let mut stripped = live(&desired, "5");
    stripped.body["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .pop();
    assert_eq!(
        child_action(&desired, Some(&stripped), "u", None),
        ChildAction::Update
    );
    // The desired body lost a field: all remaining fields are equal, but the digest differs.
    let mut fewer = live(&desired, "5");
    fewer.applied_digest = Some("another".to_owned());
    assert_eq!(
        child_action(&desired, Some(&fewer), "u", None),
        ChildAction::Update
    );
}

#[test]
fn lists_without_the_usual_key_are_compared_one_by_one() {
    let ports = json!([{"name": "http", "port": 80}, {"name": "grpc", "port": 81}]);
    let metadata = json!({"name": "fraud"});
    let desired = ChildObject::new(
        ChildKind::Service,
        metadata,
        json!({"spec": {"ports": ports}}),
    );
    let mut stands = live(&child("1"), "5");
    stands.applied_digest = Some(desired.digest.clone());
    stands.body = desired.body.clone();
    stands.body["spec"]["ports"][1]["nodePort"] = 30_000.into();
    assert_eq!(
        child_action(&desired, Some(&stands), "u", None),
        ChildAction::InSync
    );
    stands.body["spec"]["ports"][1]["port"] = 82.into();
    assert_eq!(
        child_action(&desired, Some(&stands), "u", None),
        ChildAction::Update
    );
}

#[test]
fn a_value_normalized_by_the_api_server_is_applied_once() {
    let desired = child("1000m");
    let mut answer = live(&desired, "5");
    answer.body["spec"]["containers"][1]["cpu"] = "1".into();
    assert_eq!(
        child_action(&desired, Some(&answer), "u", None),
        ChildAction::Update
    );
    let before = LastApplied::from_response(&desired, &answer);
    answer.resource_version = "9".to_owned();
    answer.body["status"] = json!({"replicas": 3});
    assert_eq!(
        child_action(&desired, Some(&answer), "u", Some(&before)),
        ChildAction::InSync
    );
    answer.body["spec"]["containers"][1]["cpu"] = "2".into();
    assert_eq!(
        child_action(&desired, Some(&answer), "u", Some(&before)),
        ChildAction::Update
    );
}

#[test]
fn a_lagging_watch_causes_no_second_write() {
    let (old, new) = (child("1"), child("2"));
    let before = LastApplied::from_response(&new, &live(&new, "7"));
    let lagging = live(&old, "5");
    assert_eq!(
        child_action(&new, Some(&lagging), "u", Some(&before)),
        ChildAction::InSync
    );
    assert_eq!(
        child_action(&new, None, "u", Some(&before)),
        ChildAction::AwaitWatch
    );
    assert_eq!(child_action(&new, None, "u", None), ChildAction::Create);
}

#[test]
fn objects_of_other_owners_are_never_written() {
    let desired = child("1");
    let mut foreign = live(&desired, "5");
    assert_eq!(
        child_action(&desired, Some(&foreign), "v", None),
        ChildAction::AwaitGarbageCollection
    );
    foreign.controller = None;
    assert_eq!(
        child_action(&desired, Some(&foreign), "u", None),
        ChildAction::NameConflict
    );
    let mut dying = live(&desired, "5");
    dying.body["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:00Z".into();
    assert_eq!(
        child_action(&desired, Some(&dying), "u", None),
        ChildAction::AwaitDeletion
    );
}
