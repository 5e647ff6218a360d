//! Tests with statuses and events as written by kubelets and schedulers of Kubernetes 1.30 to 1.34.

use serde_json::{Value, json};

use super::*;

fn problem_of(status: &Value) -> Option<String> {
    let pod = json!({"metadata": {"name": "p"}, "status": status});
    let pod: Pod = serde_json::from_value(pod).unwrap();
    PodProblem::of(&pod).map(|problem| problem.to_string())
}

fn container(state: &Value, last: &Value, restarts: i32) -> Value {
    json!({"name": "server", "image": "", "imageID": "", "ready": false, "started": false,
        "restartCount": restarts, "state": state, "lastState": last})
}

fn of_container(state: &Value, last: &Value, restarts: i32) -> Option<String> {
    let containers = [container(state, last, restarts)];
    problem_of(&json!({"phase": "Pending", "containerStatuses": containers}))
}

#[test]
fn messages_of_scheduler_and_kubelet_are_repeated() {
    let none = json!({});
    let unscheduled = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled",
        "status": "False", "reason": "Unschedulable",
        "message": "0/1 nodes are available: persistentvolumeclaim \"models\" not found."}]});
    let waiting = |reason: &str, message: &str| {
        of_container(
            &json!({"waiting": {"reason": reason, "message": message}}),
            &none,
            0,
        )
    };
    let ended =
        |reason: &str, code: i32| json!({"terminated": {"reason": reason, "exitCode": code}});
    let back_off = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}});
    let running = json!({"running": {"startedAt": "2026-11-21T20:00:00Z"}});
    let init = json!({"phase": "Pending", "initContainerStatuses": [{"name": "fetch", "image": "",
        "imageID": "", "ready": false, "restartCount": 1, "state": back_off,
        "lastState": ended("Error", 2)}],
        "containerStatuses": [container(&json!({"waiting": {"reason": "PodInitializing"}}), &none, 0)]});
    let evicted =
        json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory"});
    for (found, expected) in [
        (
            problem_of(&unscheduled),
            "Unschedulable: 0/1 nodes are available: persistentvolumeclaim \"models\" not found.",
        ),
        (
            waiting("ErrImagePull", "not found"),
            "container server: ImagePullBackOff: not found",
        ),
        (
            waiting("ImagePullBackOff", "Back-off pulling image"),
            "container server: ImagePullBackOff: Back-off pulling image",
        ),
        (
            waiting("CreateContainerConfigError", "configmap \"x\" not found"),
            "container server: CreateContainerConfigError: configmap \"x\" not found",
        ),
        (
            of_container(&back_off, &ended("OOMKilled", 137), 3),
            "container server: OOMKilled: back-off 10s; ended with exit code 137 (OOMKilled), \
             restarts: 3",
        ),
        (
            of_container(&ended("Error", 1), &none, 0),
            "container server: Error: ended with exit code 1 (Error)",
        ),
        (
            of_container(&ended("Error", 1), &none, 2),
            "container server: CrashLoopBackOff: ended with exit code 1 (Error), restarts: 2",
        ),
        (
            of_container(&running, &ended("Error", 1), 2),
            "container server: CrashLoopBackOff: ended with exit code 1 (Error), restarts: 2",
        ),
        (
            problem_of(&init),
            "container fetch: CrashLoopBackOff: back-off 10s; ended with exit code 2 (Error), \
             restarts: 1",
        ),
        (problem_of(&evicted), "Evicted: The node was low on memory"),
    ] {
        assert_eq!(found.as_deref(), Some(expected));
    }
}

#[test]
fn a_pod_that_starts_serves_or_ends_has_no_problem() {
    let none = json!({});
    let creating = json!({"waiting": {"reason": "ContainerCreating"}});
    let running = json!({"running": {"startedAt": "2026-11-21T20:00:00Z"}});
    assert_eq!(of_container(&creating, &none, 0), None);
    assert_eq!(of_container(&running, &none, 0), None);
    assert_eq!(problem_of(&none), None);
    // It crashed once, a long time ago, and serves.
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [container(&running, &json!({"terminated": {"exitCode": 1}}), 1)]});
    assert_eq!(problem_of(&ready), None);
}

#[test]
fn a_message_is_one_line_and_bounded() {
    let long = json!({"waiting": {"reason": "ErrImagePull", "message": "ä\n".repeat(4096)}});
    let found = of_container(&long, &json!({}), 0).unwrap();
    assert!(found.starts_with("container server: ImagePullBackOff: ä ä "));
    assert!(!found.contains('\n') && found.ends_with('…'));
    assert!(found.chars().count() <= POD_MESSAGE_CHARS_MAX + 40);
}

#[test]
fn of_events_the_newest_warning_counts() {
    let event = |reason: &str, kind: &str, second: u8| {
        json!({"metadata": {"name": format!("p.{second}")}, "reason": reason, "type": kind,
            "note": format!("{reason} it is"), "eventTime": null,
            "regarding": {"fieldPath": "spec.containers{server}"},
            "deprecatedLastTimestamp": format!("2026-11-21T20:00:{second:02}Z")})
    };
    let events = json!([
        event("FailedMount", "Warning", 5),
        event("Unhealthy", "Warning", 9),
        event("Pulled", "Normal", 12),
        event("FailedMount", "Warning", 7),
    ]);
    let events: Vec<Event> = serde_json::from_value(events).unwrap();
    let found = PodProblem::of_events(&events).unwrap();
    assert_eq!(
        found.to_string(),
        "container server: Unhealthy: Unhealthy it is"
    );
    assert_eq!(PodProblem::of_events(&events[2..3]), None);
}
