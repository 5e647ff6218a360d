//! Tests of the pod that is measured for a deployment, compared with its serving pods.

use albacore_cluster::ObjectKey;
use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};

use crate::JobSubject;
use crate::object::{JobSpec, identity, job};
use crate::pod_settings::PodSettings;

/// The pod spec as the controller creates it, with additions of a user's template.
fn serving() -> Value {
    json!({
        "serviceAccountName": "fraud",
        "priorityClassName": "high",
        "runtimeClassName": "gvisor",
        "imagePullSecrets": [{"name": "registry"}],
        "tolerations": [{"key": "serving", "operator": "Exists"}],
        "nodeSelector": {"pool": "serving"},
        "affinity": {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []},
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []},
        },
        "securityContext": {"runAsNonRoot": false, "runAsUser": 1000, "fsGroup": 2000},
        "containers": [{
            "name": "server",
            "image": "r.example.org/x/albacore-server:0.0.1",
            "resources": {"limits": {"cpu": "4", "memory": "2Gi"}},
            "ports": [{"name": "http", "containerPort": 8080}],
            "volumeMounts": [
                {"name": "albacore-settings", "mountPath": "/etc/albacore", "readOnly": true},
                {"name": "albacore-model-0", "mountPath": "/models/pvc/m", "readOnly": true},
            ],
        }],
        "volumes": [
            {"name": "albacore-settings", "configMap": {"name": "fraud"}},
            {"name": "albacore-model-0", "persistentVolumeClaim": {"claimName": "m", "readOnly": true}},
            {"name": "unused", "emptyDir": {}},
        ],
    })
}

fn build_job(node: Option<&str>) -> Value {
    let settings = PodSettings::of_serving_pods("fraud", &serving()).unwrap();
    let subject = JobSubject::Tune {
        name: "fraud".to_owned(),
        node: None,
        options: Vec::new(),
        watch_time: None,
    };
    let key = ObjectKey::new("team", subject.job_name("fraud").unwrap());
    job(&JobSpec {
        key: &key,
        label: subject.label(),
        node,
        image: None,
        settings: &settings,
        digest: "12ab",
        seconds_max: 100,
    })
}

#[test]
fn the_measured_pod_has_the_resources_and_settings_of_serving_pods() {
    let object = build_job(None);
    assert_eq!(object["metadata"]["name"], "albacore-tune-fraud");
    let (pod, serving) = (&object["spec"]["template"]["spec"], serving());
    for field in [
        "imagePullSecrets",
        "nodeSelector",
        "priorityClassName",
        "runtimeClassName",
        "tolerations",
    ] {
        assert_eq!(pod[field], serving[field], "{field}");
    }
    let (container, server) = (&pod["containers"][0], &serving["containers"][0]);
    assert_eq!(container["resources"], server["resources"]);
    let mounts = container["volumeMounts"].as_array().unwrap();
    assert!(mounts.contains(&server["volumeMounts"][1]), "{mounts:?}");
    assert_eq!(mounts.len(), 3, "with the two of its own: {mounts:?}");
    let volumes = pod["volumes"].as_array().unwrap();
    assert!(volumes.contains(&serving["volumes"][1]), "{volumes:?}");
    assert_eq!(volumes.len(), 3, "{volumes:?}");
    let image = container["image"].as_str().unwrap();
    assert!(
        image.starts_with("r.example.org/x/albacore-experiment:"),
        "{image}"
    );
    let affinity = &pod["affinity"];
    assert_eq!(
        affinity["nodeAffinity"],
        serving["affinity"]["nodeAffinity"]
    );
    assert!(affinity["podAntiAffinity"].is_null());
    assert_eq!(identity(&object), ("12ab", ""));
}

#[test]
fn no_selector_of_serving_pods_matches_the_measured_pod() {
    let object = build_job(None);
    let template = &object["spec"]["template"];
    let labels = template["metadata"]["labels"].as_object().unwrap();
    for label in ["albacore.dev/deployment", "app.kubernetes.io/instance"] {
        assert!(!labels.contains_key(label), "{labels:?}");
    }
    assert_ne!(labels["app.kubernetes.io/name"], "albacore-server");
    let typed: Job = serde_json::from_value(object.clone()).unwrap();
    let spec = typed.spec.unwrap();
    assert!(spec.active_deadline_seconds.is_some() && spec.ttl_seconds_after_finished.is_some());
    let pod = spec.template.spec.unwrap();
    assert_eq!(pod.automount_service_account_token, Some(false));
    assert_eq!(pod.service_account_name, None);
    assert!(pod.containers[0].ports.as_ref().is_none_or(Vec::is_empty));
    let rights = pod.security_context.unwrap();
    assert_eq!(
        (rights.run_as_user, rights.fs_group),
        (Some(1000), Some(2000))
    );
    assert_eq!(rights.run_as_non_root, Some(true), "PodSecurity restricted");
    assert_eq!(rights.seccomp_profile.unwrap().type_, "RuntimeDefault");
}

#[test]
fn a_named_node_replaces_the_node_selection_of_the_deployment() {
    let object = build_job(Some("node7"));
    assert_eq!(identity(&object), ("12ab", "node7"));
    assert!(object["spec"]["template"]["spec"]["nodeSelector"].is_null());
}

#[test]
fn settings_that_only_serving_pods_have_are_refused() {
    let token = json!({"serviceAccountToken": {"path": "t"}});
    let token = json!({"name": "albacore-model-0", "projected": {"sources": [token]}});
    for (path, value, field) in [
        (
            "/initContainers",
            json!([{"name": "fetch"}]),
            "initContainers",
        ),
        (
            "/resourceClaims",
            json!([{"name": "gpu"}]),
            "resourceClaims",
        ),
        ("/volumes/1", token, "volumes"),
        (
            "/containers/0/volumeMounts/1/mountPath",
            json!("/work/models"),
            "/work",
        ),
    ] {
        let mut pod = serving();
        match pod.pointer_mut(path) {
            Some(place) => *place = value,
            None => pod[&path[1..]] = value,
        }
        let refused = PodSettings::of_serving_pods("fraud", &pod).unwrap_err();
        assert!(refused.text().contains(field), "{}", refused.text());
        assert!(
            refused.text().contains("tune its file"),
            "{}",
            refused.text()
        );
    }
}
