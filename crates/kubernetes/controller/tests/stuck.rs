//! Tests of pods that do not start: the test writes the statuses and events of the scheduler and
//! the kubelet, and the conditions name the pod, the container, the reason and the remedy.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod rig;

use serde_json::{Value, json};

use rig::{Rig, deployment, wait};

fn pod_of(rig: &Rig, name: &str) -> Value {
    let mut found = Vec::new();
    wait("there is a pod", || {
        found = rig.list("pods", &format!("albacore.dev/deployment={name}"));
        found.len() == 1
    });
    found.remove(0)
}

fn patch_status(rig: &Rig, pod: &str, status: &Value) {
    let patch = json!({ "status": status }).to_string();
    rig.kubectl(&[
        "patch",
        "pod",
        pod,
        "--subresource=status",
        "--type=merge",
        "-p",
        &patch,
    ]);
}

fn message(rig: &Rig, name: &str) -> String {
    let status = rig.get("infd", name).unwrap()["status"].clone();
    let conditions = status["conditions"].as_array().unwrap().clone();
    let ready = conditions.into_iter().find(|c| c["type"] == "Ready");
    ready.unwrap()["message"].as_str().unwrap().to_owned()
}

#[test]
fn pod_container_reason_and_remedy_are_in_the_condition() {
    let rig = Rig::start(true);
    let controller = rig.controller(&[]);
    rig.apply(&[deployment("fraud", &json!({"replicas": 1}))]);
    let pod = pod_of(&rig, "fraud");
    let name = pod["metadata"]["name"].as_str().unwrap();

    let says = "0/3 nodes are available: persistentvolumeclaim \"models\" not found.";
    patch_status(
        &rig,
        name,
        &json!({"conditions": [{"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": says}]}),
    );
    rig.wait_for("fraud", "Ready", "False/Unschedulable");
    let expected = format!("pod {name}: Unschedulable: {says}; free resources on a node");
    wait("the message is there", || {
        message(&rig, "fraud").starts_with(&expected)
    });

    // The pod is scheduled, but the kubelet cannot mount a volume and reports that in an event
    // only.
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    rig.apply(&[node]);
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}});
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("binding.json");
    std::fs::write(&file, binding.to_string()).unwrap();
    let path = format!("/api/v1/namespaces/default/pods/{name}/binding");
    rig.kubectl(&["create", "--raw", &path, "-f", file.to_str().unwrap()]);
    let container = |state: &Value, last: &Value, restarts: i32| {
        json!({"conditions": [{"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [{"name": "server", "image": "s", "imageID": "", "ready": false,
                "started": false, "restartCount": restarts, "state": state, "lastState": last}]})
    };
    let none = json!({});
    let creating = json!({"waiting": {"reason": "ContainerCreating"}});
    patch_status(&rig, name, &container(&creating, &none, 0));
    let says = "MountVolume.SetUp failed for volume \"m\" : configmap \"m\" not found";
    let event = json!({"apiVersion": "v1", "kind": "Event", "type": "Warning",
        "metadata": {"name": format!("{name}.1"), "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": name,
            "uid": pod["metadata"]["uid"]},
        "reason": "FailedMount", "message": says, "count": 1,
        "firstTimestamp": "2026-11-21T20:00:00Z", "lastTimestamp": "2026-11-21T20:00:00Z",
        "source": {"component": "kubelet"}});
    rig.apply(&[event]);
    rig.wait_for("fraud", "Ready", "False/FailedMount");
    let expected = format!("pod {name}: FailedMount: {says}; create the ConfigMap");
    wait("the message is there", || {
        message(&rig, "fraud").starts_with(&expected)
    });

    // It starts, and is repeatedly OOM-killed.
    let back_off = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}});
    let killed = json!({"terminated": {"reason": "OOMKilled", "exitCode": 137,
        "startedAt": null, "finishedAt": null}});
    patch_status(&rig, name, &container(&back_off, &killed, 3));
    rig.wait_for("fraud", "Ready", "False/OOMKilled");
    let expected =
        format!("pod {name}: container server: OOMKilled: back-off 10s; ended with exit code 137");
    wait("the message is there", || {
        message(&rig, "fraud").starts_with(&expected)
    });
    assert!(message(&rig, "fraud").ends_with("serve fewer or smaller models"));

    // Few lists of events, because the pod was unready for some seconds only.
    let lists = rig
        .requests()
        .iter()
        .filter(|r| r.starts_with("list events"))
        .count();
    assert!(lists <= 5, "{lists} lists of events\n{}", controller.log());
}
