//! Tests the controller together with other clients: owners of a name, autoscalers, other field
//! managers, another replica of the controller, and an unavailable API server.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod rig;

use std::time::{Duration, Instant};

use serde_json::json;

use rig::{CHILDREN, Rig, deployment, wait};

fn children(rig: &Rig, name: &str) -> usize {
    rig.list(CHILDREN, &format!("albacore.dev/deployment={name}"))
        .len()
}

#[test]
#[allow(clippy::too_many_lines)] // one scenario, to start a single control plane
fn objects_of_other_owners_are_never_touched() {
    let rig = Rig::start(true);
    let _controller = rig.controller(&[]);
    // A name that is already taken, for example by a ConfigMap with the model.
    rig.kubectl(&["create", "configmap", "taken", "--from-literal=m.ubj=x"]);
    let before = rig.get("configmap", "taken").unwrap();
    rig.apply(&[
        deployment("taken", &json!({})),
        deployment("free", &json!({})),
    ]);
    rig.wait_for("taken", "Stalled", "True/NameTaken");
    assert_eq!(rig.get("configmap", "taken").unwrap(), before);
    let events = rig.kubectl(&[
        "get",
        "events",
        "--field-selector",
        "reason=NameTaken",
        "-o",
        "name",
    ]);
    assert_eq!(events.lines().count(), 1, "{events}");
    wait("its neighbor is built", || children(&rig, "free") == 7);
    rig.kubectl(&["delete", "configmap", "taken"]);
    wait("it is built once the name is free", || {
        children(&rig, "taken") == 7
    });
    rig.wait_for("taken", "Stalled", "");

    // An HPA writes the scale subresource as a separate field manager; a user's apply without
    // replicas does not change it.
    let mut plain = deployment("sized", &json!({}));
    plain["spec"].as_object_mut().unwrap().remove("replicas");
    rig.apply(&[plain.clone()]);
    wait("it is built", || {
        let found = rig.get("infd", "sized").unwrap();
        rig.get("deployment", "sized").is_some() && found["status"]["selector"].is_string()
    });
    // An HPA first reads the scale.
    let scale = "/apis/albacore.dev/v1beta1/namespaces/default/inferencedeployments/sized/scale";
    let scale: serde_json::Value =
        serde_json::from_str(&rig.kubectl(&["get", "--raw", scale])).unwrap();
    assert_eq!(scale["spec"]["replicas"], 1, "{scale}");
    assert_eq!(scale["status"]["selector"], "albacore.dev/deployment=sized");
    rig.kubectl(&["scale", "infd", "sized", "--replicas=3"]);
    let replicas = |name: &str| rig.get("deployment", name).unwrap()["spec"]["replicas"].clone();
    wait("three pods are wanted", || replicas("sized") == 3);
    plain["spec"]["batching"] = json!({"maxRows": 32});
    rig.apply(&[plain]);
    wait("the ConfigMap follows", || {
        let map = rig.get("configmap", "sized").unwrap();
        map["data"]["settings.yaml"]
            .as_str()
            .unwrap()
            .contains("max_rows: 32")
    });
    assert_eq!(replicas("sized"), 3);

    // Fields of other managers on owned children are kept.
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "injected",
        "image": "mesh:1"}]}}, "paused": true}});
    rig.kubectl(&[
        "patch",
        "deployment",
        "sized",
        "--field-manager=mesh",
        "-p",
        &patch.to_string(),
    ]);
    rig.patch("infd", "sized", &json!({"spec": {"threads": 3}}));
    wait("the new shape is applied", || {
        let deployment = rig.get("deployment", "sized").unwrap();
        deployment["spec"]["template"]
            .to_string()
            .contains("{\"name\":\"ALBACORE_THREADS\",\"value\":\"3\"}")
    });
    let deployment = rig.get("deployment", "sized").unwrap();
    assert_eq!(deployment["spec"]["paused"], true);
    let containers = deployment["spec"]["template"]["spec"]["containers"]
        .as_array()
        .unwrap();
    assert!(
        containers.iter().any(|c| c["name"] == "injected"),
        "{containers:?}"
    );
}

#[test]
fn the_headless_service_yields_its_name_to_others() {
    let rig = Rig::start(false);
    let _controller = rig.controller(&[]);
    let owner = |service: &str| {
        let service = rig.get("service", service)?;
        let owner = &service["metadata"]["ownerReferences"][0]["name"];
        owner.as_str().map(str::to_owned)
    };
    // A user's Service of that name is kept, and the deployment works without its own.
    rig.kubectl(&["create", "service", "clusterip", "mine-pods", "--tcp=80"]);
    let before = rig.get("service", "mine-pods").unwrap();
    rig.apply(&[deployment("mine", &json!({}))]);
    wait("the rest of it is built", || children(&rig, "mine") == 6);
    wait("an event says so", || {
        let reason = "reason=NameTaken";
        let events = rig.kubectl(&["get", "events", "--field-selector", reason, "-o", "yaml"]);
        events.contains("cannot create headless Service mine-pods")
    });
    assert_eq!(rig.get("service", "mine-pods").unwrap(), before);
    assert!(rig.condition_text("mine", "Stalled").is_empty());

    // A deployment keeps its name even if it is created later.
    rig.apply(&[deployment("two", &json!({}))]);
    wait("it is built", || {
        owner("two-pods").as_deref() == Some("two")
    });
    rig.apply(&[deployment("two-pods", &json!({}))]);
    wait("the name has a new owner", || {
        owner("two-pods").as_deref() == Some("two-pods") && children(&rig, "two-pods") == 7
    });
    assert_eq!(owner("two-pods-pods").as_deref(), Some("two-pods"));
    assert_eq!(children(&rig, "two"), 6);
    // No garbage collector runs here.
    rig.kubectl(&["delete", "infd", "two-pods"]);
    rig.kubectl(&["delete", "service", "two-pods"]);
    wait("the first one gets it back", || {
        owner("two-pods").as_deref() == Some("two")
    });
}

#[test]
fn an_invalid_spec_is_reported_by_field_and_can_be_corrected() {
    let rig = Rig::start(false);
    let _controller = rig.controller(&[]);
    // Rejected by the controller, with the name of the field.
    let model = json!([{"name": "m", "uri": "file://./m.ubj"}]);
    rig.apply(&[deployment("bad", &json!({ "models": model }))]);
    rig.wait_for("bad", "Stalled", "True/InvalidSpec");
    rig.wait_for("bad", "Ready", "False/InvalidSpec");
    let status = rig.get("infd", "bad").unwrap()["status"].take();
    assert!(
        status.to_string().contains("spec.models[0].uri is"),
        "{status}"
    );
    assert_eq!(status["selector"], "albacore.dev/deployment=bad");
    // Rejected by the API server; its message is passed to the user.
    let container =
        json!({"name": "server", "volumeMounts": [{"name": "nowhere", "mountPath": "/x"}]});
    let template = json!({"spec": {"containers": [container]}});
    rig.apply(&[deployment("worse", &json!({ "template": template }))]);
    rig.wait_for("worse", "Stalled", "True/ChildRefused");
    let status = rig.get("infd", "worse").unwrap()["status"].take();
    assert!(
        status
            .to_string()
            .contains("volumeMounts[2].name: Not found: \\\"nowhere\\\""),
        "{status}"
    );
    wait("events tell both", || {
        let events = rig.kubectl(&["get", "events", "-o", "json"]);
        events.contains("\"InvalidSpec\"") && events.contains("\"ChildRefused\"")
    });
    rig.apply(&[
        deployment("bad", &json!({})),
        deployment("worse", &json!({})),
    ]);
    rig.wait_for("bad", "Stalled", "");
    rig.wait_for("worse", "Stalled", "");
    wait("both are built", || {
        children(&rig, "bad") == 7 && children(&rig, "worse") == 7
    });
}

#[test]
fn two_controllers_take_turns_and_outlive_the_api_server() {
    let mut rig = Rig::start(false);
    let mut copies = vec![rig.controller(&[]), rig.controller(&[])];
    let leads = |c: &rig::Controller| c.http("/metrics").contains("albacore_leading 1\n");
    wait("one of them leads", || {
        copies.iter().filter(|c| leads(c)).count() == 1
    });
    rig.apply(&[deployment("one", &json!({}))]);
    wait("it is built", || children(&rig, "one") == 7);

    // The API server stops meanwhile; pending work is done afterwards.
    rig.plane.restart_api_server().unwrap();
    rig.apply(&[deployment("two", &json!({}))]);
    wait("it is built after the restart", || {
        children(&rig, "two") == 7
    });

    let leader = copies.iter().position(leads).unwrap();
    drop(copies.remove(leader));
    let start = Instant::now();
    rig.apply(&[deployment("three", &json!({}))]);
    wait("the other one takes over", || children(&rig, "three") == 7);
    // The lease duration is 15 s; the machine may be slow.
    assert!(
        start.elapsed() < Duration::from_secs(60),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(copies.remove(0).stop().code(), Some(0));
}

#[test]
fn service_monitors_are_written_where_they_exist() {
    let mut rig = Rig::start(false);
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
        "spec": {"group": "monitoring.coreos.com", "scope": "Namespaced",
            "names": {"kind": "ServiceMonitor", "plural": "servicemonitors",
                "singular": "servicemonitor", "listKind": "ServiceMonitorList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}}]},
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("crd.json");
    std::fs::write(&path, crd.to_string()).unwrap();
    rig.plane.serve_crds(&path).unwrap();
    let _controller = rig.controller(&[]);
    rig.apply(&[deployment("fraud", &json!({}))]);
    wait("it is there", || {
        rig.get("servicemonitor", "fraud").is_some()
    });
    let monitor = rig.get("servicemonitor", "fraud").unwrap();
    assert_eq!(monitor["spec"]["endpoints"][0]["path"], "/metrics");
}
