//! What is to be done about children in given states.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::json;

use super::*;
use crate::children::ChildKind;

fn child(cpu: &str) -> Child {
    let metadata = json!({"name": "fraud", "labels": {"a": "b"}});
    let containers = json!([{"name": "server", "cpu": cpu, "env": [{"name": "A", "value": "1"}]}]);
    Child::new(
        ChildKind::Deployment,
        metadata,
        json!({"spec": {"containers": containers}}),
    )
}

/// `child` as the API server has it, with what others added.
fn live(child: &Child, version: &str) -> Live {
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
    Live {
        uid: "c".to_owned(),
        resource_version: version.to_owned(),
        controller: Some(controller),
        applied: Some(child.digest.clone()),
        body,
    }
}

#[test]
fn what_stands_as_wished_is_left_alone_whatever_others_added() {
    let child = child("1");
    assert_eq!(
        step(&child, Some(&live(&child, "5")), "u", None),
        Step::Keep
    );
}

#[test]
fn a_changed_wish_and_a_changed_field_are_seen() {
    let wish = child("1");
    assert_eq!(
        step(&child("2"), Some(&live(&wish, "5")), "u", None),
        Step::Change
    );
    let mut drifted = live(&wish, "5");
    drifted.body["spec"]["containers"][1]["cpu"] = "9".into();
    assert_eq!(step(&wish, Some(&drifted), "u", None), Step::Change);
    let mut stripped = live(&wish, "5");
    stripped.body["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .pop();
    assert_eq!(step(&wish, Some(&stripped), "u", None), Step::Change);
    // A wish that lost a field: nothing of what is left differs, but the digest does.
    let mut fewer = live(&wish, "5");
    fewer.applied = Some("another".to_owned());
    assert_eq!(step(&wish, Some(&fewer), "u", None), Step::Change);
}

#[test]
fn lists_without_the_usual_key_are_compared_one_by_one() {
    let ports = json!([{"name": "http", "port": 80}, {"name": "grpc", "port": 81}]);
    let metadata = json!({"name": "fraud"});
    let wish = Child::new(
        ChildKind::Service,
        metadata,
        json!({"spec": {"ports": ports}}),
    );
    let mut stands = live(&child("1"), "5");
    stands.applied = Some(wish.digest.clone());
    stands.body = wish.body.clone();
    stands.body["spec"]["ports"][1]["nodePort"] = 30_000.into();
    assert_eq!(step(&wish, Some(&stands), "u", None), Step::Keep);
    stands.body["spec"]["ports"][1]["port"] = 82.into();
    assert_eq!(step(&wish, Some(&stands), "u", None), Step::Change);
}

#[test]
fn another_spelling_of_the_api_server_is_applied_once_and_never_again() {
    let wish = child("1000m");
    let mut answer = live(&wish, "5");
    answer.body["spec"]["containers"][1]["cpu"] = "1".into();
    assert_eq!(step(&wish, Some(&answer), "u", None), Step::Change);
    let before = Applied::of(&wish, &answer);
    answer.resource_version = "9".to_owned();
    answer.body["status"] = json!({"replicas": 3});
    assert_eq!(step(&wish, Some(&answer), "u", Some(&before)), Step::Keep);
    answer.body["spec"]["containers"][1]["cpu"] = "2".into();
    assert_eq!(step(&wish, Some(&answer), "u", Some(&before)), Step::Change);
}

#[test]
fn a_watch_that_lags_makes_no_second_write() {
    let (old, new) = (child("1"), child("2"));
    let before = Applied::of(&new, &live(&new, "7"));
    let lagging = live(&old, "5");
    assert_eq!(step(&new, Some(&lagging), "u", Some(&before)), Step::Keep);
    assert_eq!(step(&new, None, "u", Some(&before)), Step::AwaitBirth);
    assert_eq!(step(&new, None, "u", None), Step::Create);
}

#[test]
fn what_is_not_ours_is_never_touched() {
    let wish = child("1");
    let mut foreign = live(&wish, "5");
    assert_eq!(step(&wish, Some(&foreign), "v", None), Step::Former);
    foreign.controller = None;
    assert_eq!(step(&wish, Some(&foreign), "u", None), Step::Taken);
    let mut dying = live(&wish, "5");
    dying.body["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:00Z".into();
    assert_eq!(step(&wish, Some(&dying), "u", None), Step::AwaitDeath);
}
