//! Tests of the Job object and of the interpretation of a pod's status.

use albacore_api::InferenceDeployment;
use albacore_cluster::ObjectKey;
use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};

use crate::JobSubject;
use crate::object::{JobSpec, identity, job};
use crate::pod::{PodState, state};
use crate::pod_settings::PodSettings;

fn build_job(settings: &PodSettings) -> Value {
    let key = ObjectKey::new("team", "albacore-experiment-a");
    job(&JobSpec {
        key: &key,
        label: "albacore-experiment",
        node: Some("node7"),
        image: None,
        settings,
        digest: "12ab",
        seconds_max: 100,
    })
}

#[test]
fn the_job_is_bounded_and_without_rights() {
    let object = build_job(&PodSettings::default());
    let typed: Job = serde_json::from_value(object.clone()).unwrap();
    let spec = typed.spec.unwrap();
    assert_eq!(spec.backoff_limit, Some(0));
    assert_eq!(spec.active_deadline_seconds, Some(100 + 13 * 3_600));
    assert!(spec.ttl_seconds_after_finished.is_some());
    let pod = spec.template.spec.unwrap();
    assert_eq!(pod.restart_policy.as_deref(), Some("Never"));
    assert_eq!(pod.automount_service_account_token, Some(false));
    assert_eq!(pod.security_context.unwrap().run_as_non_root, Some(true));
    let container = &pod.containers[0];
    let rights = container.security_context.as_ref().unwrap();
    assert_eq!(rights.read_only_root_filesystem, Some(true));
    assert_eq!(rights.allow_privilege_escalation, Some(false));
    assert_eq!(container.resources, None);
    let image = format!(
        "registry.albacore.dev/albacore/albacore-experiment:{}",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(container.image.as_deref(), Some(image.as_str()));
    assert_eq!(identity(&object), ("12ab", "node7"));
}

#[test]
fn the_pod_has_the_resources_of_a_deployment() {
    let deployment: InferenceDeployment = serde_json::from_value(json!({
        "apiVersion": "albacore.dev/v1beta1", "kind": "InferenceDeployment",
        "metadata": {"name": "fraud"},
        "spec": {
            "resources": {"limits": {"cpu": "4", "memory": "2Gi"}},
            "template": {"spec": {
                "priorityClassName": "high",
                "tolerations": [{"key": "serving", "operator": "Exists"}],
                "nodeSelector": {"a": "b"},
            }},
        },
        "status": {"serverImage": "r.example.org/x/albacore-server:0.0.1"},
    }))
    .unwrap();
    let object = build_job(&PodSettings::of(&deployment));
    let pod = &object["spec"]["template"]["spec"];
    assert_eq!(pod["priorityClassName"], "high");
    assert_eq!(pod["tolerations"][0]["key"], "serving");
    assert!(pod["nodeSelector"].is_null(), "the node is named");
    let container = &pod["containers"][0];
    assert_eq!(
        container["resources"]["limits"],
        json!({"cpu": "4", "memory": "2Gi"})
    );
    let image = container["image"].as_str().unwrap();
    assert!(
        image.starts_with("r.example.org/x/albacore-experiment:"),
        "{image}"
    );
}

#[test]
fn a_name_that_no_job_can_have_is_refused() {
    let experiment = JobSubject::Experiment {
        file: "a".into(),
        is_quick: false,
        node: "n".to_owned(),
        deployment: None,
    };
    let name = experiment.job_name("a_b.c").unwrap();
    assert_eq!(name, "albacore-experiment-a-b-c");
    for bad in ["x".repeat(44), "a-".to_owned()] {
        let failure = experiment.job_name(&bad).unwrap_err();
        assert!(failure.text().contains("change name"), "{}", failure.text());
    }
}

/// The state of a pod with this status.
fn state_of(status: Value) -> PodState {
    state(&serde_json::from_value(json!({"metadata": {"name": "a"}, "status": status})).unwrap())
}

fn container(state: Value) -> Value {
    json!([{"name": "laboratory", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}])
}

#[test]
fn a_pod_that_does_not_run_says_why() {
    let says = |state: PodState| match state {
        PodState::Blocked(why) | PodState::Ended(why) => why,
        other => panic!("{other:?}"),
    };
    let unscheduled = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled",
        "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: Insufficient cpu"}]});
    assert!(says(state_of(unscheduled)).contains("Insufficient cpu"));
    let pull = json!({"waiting": {"reason": "ImagePullBackOff", "message": "not found"}});
    let pull = json!({"phase": "Pending", "containerStatuses": container(pull)});
    assert_eq!(says(state_of(pull)), "ImagePullBackOff: not found");
    let killed = json!({"terminated": {"reason": "OOMKilled", "exitCode": 137}});
    let killed = json!({"phase": "Failed", "containerStatuses": container(killed)});
    assert!(says(state_of(killed)).contains("resources.limits.memory"));
    let evicted =
        json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory"});
    assert_eq!(
        says(state_of(evicted)),
        "Evicted: The node was low on memory"
    );
    let making = json!({"waiting": {"reason": "ContainerCreating"}});
    let making = json!({"phase": "Pending", "containerStatuses": container(making)});
    assert_eq!(state_of(making), PodState::Starting);
    let running = json!({"running": {}});
    let running = json!({"phase": "Running", "containerStatuses": container(running)});
    assert_eq!(state_of(running), PodState::Running);
}
