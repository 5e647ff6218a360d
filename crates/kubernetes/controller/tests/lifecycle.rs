//! The lifecycle of a deployment against a real API server: applied, changed, scaled, broken,
//! deleted.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod rig;

use serde_json::json;

use rig::{CHILDREN, Rig, deployment, wait};

/// Requests of the controller during `change` and until no more follow.
fn requests_of(rig: &Rig, change: impl FnOnce()) -> Vec<String> {
    let before = rig.requests().len();
    change();
    let mut seen = before;
    let mut quiet = 0;
    wait("the controller is quiet", || {
        let now = rig.requests().len();
        quiet = if now == seen { quiet + 1 } else { 0 };
        seen = now;
        quiet > 20
    });
    rig.requests()[before..].to_vec()
}

/// Asserts that each child is written once and the status few times, because the steps in which a
/// Deployment and its pods are created are coalesced. With 5,000 deployments, every further write
/// would be 5,000.
fn assert_written_once(rig: &Rig) {
    let writes = rig.writes();
    let is_status = |write: &&String| write.contains(" inferencedeployments/status ");
    let statuses = writes.iter().filter(is_status).count();
    assert_eq!(writes.len() - statuses, 7, "{writes:?}");
    assert!(statuses <= 3, "{writes:?}");
}

#[test]
fn a_deployment_is_built_followed_changed_and_collected() {
    let rig = Rig::start(true);
    let controller = rig.controller(&[]);
    rig.apply(&[deployment("fraud", &json!({}))]);
    wait("the children are there", || {
        rig.list(CHILDREN, "albacore.dev/deployment=fraud").len() == 7
    });
    rig.wait_for("fraud", "Reconciling", "True/RollingOut");
    assert_written_once(&rig);
    let status = rig.get("infd", "fraud").unwrap()["status"].take();
    assert_eq!(status["selector"], "albacore.dev/deployment=fraud");
    assert_eq!(status["url"], "http://fraud.default.svc:8080");
    assert_eq!(status["shape"], "2x2");

    // The kubelet starts the pods; no server responds there, so no live worker is known.
    wait("two pods run", || rig.simulate_kubelet("fraud", &[]) == 2);
    rig.wait_for("fraud", "Available", "True/MinimumReplicasAvailable");
    rig.wait_for("fraud", "Ready", "Unknown/StateUnread");
    assert_eq!(rig.get("infd", "fraud").unwrap()["status"]["ready"], "2/2");

    // An edit that restarts no pods changes the ConfigMap only, or not even that.
    let template = || rig.get("deployment", "fraud").unwrap()["spec"]["template"].clone();
    let before = template();
    let asked = requests_of(&rig, || {
        rig.patch(
            "infd",
            "fraud",
            &json!({"spec": {"batching": {"maxRows": 64}}}),
        );
    });
    assert!(
        asked
            .iter()
            .any(|r| r.starts_with("patch configmaps fraud 200")),
        "{asked:?}"
    );
    assert!(asked.len() <= 12, "{asked:?}");
    requests_of(&rig, || {
        rig.patch("infd", "fraud", &json!({"spec": {"mode": "Compact"}}))
    });
    assert_eq!(template(), before);
    let status = rig.get("infd", "fraud").unwrap()["status"].take();
    assert_eq!(status["observedGeneration"], 3);

    // A change of the number of threads rolls the pods.
    let asked = requests_of(&rig, || {
        rig.patch("infd", "fraud", &json!({"spec": {"threads": 3}}));
    });
    assert!(asked.len() <= 12, "{asked:?}");
    assert_ne!(template(), before);
    rig.wait_for("fraud", "Ready", "False/RollingOut");

    // In the settled state nothing is written.
    let asked = requests_of(&rig, || {
        std::thread::sleep(std::time::Duration::from_secs(10))
    });
    assert_eq!(asked, [""; 0]);

    // An owned field that another client changed is restored; a field of another manager is kept.
    rig.patch(
        "service",
        "fraud",
        &json!({"spec": {"selector": {"albacore.dev/deployment": "x"}},
        "metadata": {"labels": {"theirs": "1"}}}),
    );
    wait("the selector is back", || {
        let service = rig.get("service", "fraud").unwrap();
        service["spec"]["selector"]["albacore.dev/deployment"] == "fraud"
            && service["metadata"]["labels"]["theirs"] == "1"
    });
    rig.kubectl(&["delete", "configmap", "fraud"]);
    wait("the ConfigMap is back", || {
        rig.get("configmap", "fraud").is_some()
    });

    rig.kubectl(&["delete", "infd", "fraud"]);
    wait("the children are collected", || {
        rig.list(CHILDREN, "albacore.dev/deployment=fraud")
            .is_empty()
    });
    assert_eq!(controller.stop().code(), Some(0));
}
