//! Pods without an InferenceDeployment that opt in by the annotation `albacore.dev/place`.
#![allow(clippy::unwrap_used, clippy::panic)] // tests fail by panicking

mod rig;

use rig::{Pod, Rig, wait};
use serde_json::{Value, json};

const POD: &str = "web-1";

/// A pod that is not managed by the controller.
fn plain_pod(rig: &Rig) -> Pod {
    rig.pod_with("default", POD, &json!({}), &["2", "2", "named"])
}

fn annotate(rig: &Rig, text: Option<&str>) {
    let annotations = json!({"albacore.dev/place": text});
    rig.patch(
        "pod",
        POD,
        &json!({"metadata": {"annotations": annotations}}),
    );
}

/// Note of the newest event with this reason.
fn note(rig: &Rig, reason: &str) -> String {
    let selector = format!("regarding.name={POD},reason={reason}");
    let path = "jsonpath={.items[-1:].note}";
    let arguments = [
        "get",
        "events.v1.events.k8s.io",
        "--field-selector",
        &selector,
        "-o",
        path,
    ];
    rig.kubectl(&arguments)
}

#[test]
fn an_annotated_pod_is_placed_reported_and_released() {
    let rig = Rig::start();
    let pod = plain_pod(&rig);
    let _agent = rig.agent(&[]);
    wait("the agent reports", || {
        !rig.status()["lastVerificationTime"].is_null()
    });
    assert!(rig.entry(&pod).is_null(), "it has not opted in");

    annotate(
        &rig,
        Some(r#"{"workers": 2, "threads": 2, "container": "server"}"#),
    );
    pod.wait_until_pinned(4);
    rig.wait_for_verified(&pod, 4);
    let requested = json!({"container": "server", "workers": 2, "threads": 2, "mode": "Scatter"});
    assert_eq!(rig.entry(&pod)["annotation"], requested);
    rig.wait_for_event(POD, "PlacementVerified");
    let shown: Value = serde_json::from_str(
        &rig.run_command(&["dump", "--pod", "default/web-1"])
            .unwrap(),
    )
    .unwrap();
    assert_eq!(shown[0]["threads"].as_array().unwrap().len(), 4, "{shown}");

    let killed = pod.worker(1);
    pod.kill(killed);
    wait("its successor is placed", || pod.has_replaced(killed, 4));

    // An invalid field: all masks are given back, and an event of the pod reports the reason.
    annotate(&rig, Some(r#"{"worker": 2}"#));
    pod.wait_until_free("0-1");
    rig.wait_for_event(POD, "PlacementRefused");
    let says = note(&rig, "PlacementRefused");
    assert!(says.contains("did you mean \"workers\""), "{says}");
    rig.wait_for_reason(&pod, "worker is not a field");

    annotate(
        &rig,
        Some(r#"{"workers": 2, "threads": 2, "enforcement": "Observe"}"#),
    );
    wait("it is only observed", || {
        rig.entry(&pod)["observed"] == true
    });
    annotate(&rig, Some(r#"{"workers": 2, "threads": 2}"#));
    pod.wait_until_pinned(4);

    annotate(&rig, None);
    pod.wait_until_free("0-1");
    wait("it is not reported", || rig.entry(&pod).is_null());
    wait("the pod says that it opted out", || {
        note(&rig, "PlacementRestored").contains("no longer has a label or annotation")
    });
}

#[test]
fn omitted_worker_and_thread_counts_are_detected_and_adopted_by_the_next_agent() {
    let rig = Rig::start();
    let mut pod = plain_pod(&rig);
    annotate(&rig, Some("{}"));
    pod.send_command("spin 0");
    pod.send_command("spin 1");
    let agent = rig.agent(&[]);
    rig.wait_for_reason(&pod, "counting its workers and threads");
    pod.wait_until_pinned(4);
    rig.wait_for_verified(&pod, 4);
    let counted = json!({"container": "server", "mode": "Scatter", "workers": 2, "threads": 2,
        "workersFrom": "ProcessTree", "threadsFrom": "ProcessTree"});
    assert_eq!(rig.entry(&pod)["annotation"], counted);
    rig.wait_for_event(POD, "WorkersCounted");

    // A replaced worker does not compute yet; the counts remain.
    let killed = pod.worker(1);
    pod.kill(killed);
    wait("its successor is placed", || pod.has_replaced(killed, 4));

    // The next agent starts with the reported counts and moves nothing.
    let before = pod.threads();
    agent.kill();
    let agent = rig.agent(&[]);
    wait("the next agent verifies", || {
        let log = agent.log();
        assert_eq!(pod.threads(), before, "{log}");
        log.contains("self-test") && rig.entry(&pod)["verified"] == 4
    });
    rig.wait_for_verified(&pod, 4);
    assert_eq!(pod.threads(), before);
    assert_eq!(rig.entry(&pod)["annotation"], counted);
}

#[test]
fn a_pod_of_a_deployment_may_not_contradict_it() {
    let rig = Rig::start();
    rig.deploy("fraud", 2, 2, &json!({}));
    let pod = rig.pod(POD, "fraud", &["2", "2", "named"]);
    let _agent = rig.agent(&[]);
    pod.wait_until_pinned(4);
    annotate(&rig, Some(r#"{"workers": 3}"#));
    pod.wait_until_free("0-1");
    rig.wait_for_reason(&pod, "workers is 3");
    rig.wait_for_event(POD, "PlacementRefused");
    annotate(&rig, Some(r#"{"workers": 2}"#));
    pod.wait_until_pinned(4);
}

#[test]
fn an_agent_that_takes_deployments_alone_sees_no_annotated_pod() {
    let rig = Rig::start();
    rig.deploy("fraud", 2, 2, &json!({}));
    let labeled = rig.pod("fraud-1", "fraud", &["2", "2", "named"]);
    let pod = plain_pod(&rig);
    annotate(&rig, Some(r#"{"workers": 2, "threads": 2}"#));
    let _agent = rig.agent(&["--opt-in=deployment"]);
    labeled.wait_until_pinned(4);
    rig.wait_for_verified(&labeled, 4);
    assert!(rig.entry(&pod).is_null());
    assert!(
        pod.masks().iter().all(|mask| mask == "0-1"),
        "{:?}",
        pod.threads()
    );
}
