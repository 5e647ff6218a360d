//! Tests of silent agents: old reports of nodes expire. The test plays the agents.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod rig;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use rig::{CHILDREN, Rig, deployment, wait};

/// A pod of the deployment on a node, in the state set by a scheduler and a kubelet.
fn pod(node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("fraud-{node}"), "namespace": "default",
            "labels": {"albacore.dev/deployment": "fraud"}},
        "spec": {"nodeName": node, "automountServiceAccountToken": false,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "server", "image": "x", "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}})
}

/// Creates the report of a node's agent, with the pod completely placed.
fn report(rig: &Rig, node: &str, time: &str) {
    rig.apply(&[
        json!({"apiVersion": "albacore.dev/v1alpha1", "kind": "NodePlacement",
        "metadata": {"name": node}}),
    ]);
    let pod = json!({"pod": format!("default/fraud-{node}"), "workers": 2, "workersVerified": 2,
        "planned": 4, "verified": 4});
    let status = json!({"status": {"lastVerificationTime": time, "planned": 4, "verified": 4,
        "pods": [pod]}});
    patch_status(rig, node, &status);
}

fn patch_status(rig: &Rig, node: &str, status: &Value) {
    let status = status.to_string();
    let words = ["patch", "npl", node, "--subresource=status", "--type=merge"];
    rig.kubectl(&[&words[..], &["-p", &status]].concat());
}

/// Renews a report like the agent of a node whose clock is in this year.
fn renew(rig: &Rig, node: &str, year: u32, count: u32) {
    let time = format!("{year}-01-01T00:{:02}:{:02}Z", count / 60 % 60, count % 60);
    patch_status(
        rig,
        node,
        &json!({"status": {"lastVerificationTime": time}}),
    );
}

fn placed(rig: &Rig) -> Value {
    let status = rig.get("infd", "fraud").unwrap()["status"].take();
    let conditions = status["conditions"].as_array().unwrap();
    let placed = conditions.iter().find(|c| c["type"] == "Placed");
    placed.cloned().unwrap_or_default()
}

fn pinned(rig: &Rig) -> String {
    let line = rig.kubectl(&["get", "infd", "fraud", "-o", "wide"]);
    let (head, row) = line.trim().split_once('\n').unwrap();
    let at = head.find("PINNED").unwrap();
    let cell = row[at..].split_whitespace().next();
    cell.unwrap().to_owned()
}

/// Waits until a controller that was just started has evaluated the deployment.
fn wait_until_judged(rig: &Rig, name: &str) {
    rig.apply(&[deployment(name, &json!({}))]);
    wait("it works", || {
        let labels = format!("albacore.dev/deployment={name}");
        rig.list(CHILDREN, &labels).len() == 7 && !rig.condition_text(name, "Placed").is_empty()
    });
}

#[test]
fn a_silent_agent_makes_placed_unknown_and_its_return_makes_it_known_again() {
    let rig = Rig::start(false);
    rig.apply(&[
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": "default"}}),
        deployment("fraud", &json!({})),
        pod("a"),
        pod("b"),
    ]);
    // One clock is a quarter of a century slow, the other one is fast: neither matters.
    report(&rig, "a", "2001-01-01T00:00:00Z");
    report(&rig, "b", "2099-01-01T00:00:00Z");
    let (a_lives, b_lives) = (AtomicBool::new(true), AtomicBool::new(true));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut count = 0;
            while !is_over.load(Ordering::Acquire) {
                count += 1;
                for (node, year, lives) in [("a", 2001, &a_lives), ("b", 2099, &b_lives)] {
                    if lives.load(Ordering::Acquire) {
                        renew(&rig, node, year, count);
                    }
                }
                std::thread::sleep(Duration::from_secs(5));
            }
        });
        let story = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            story(&rig, &a_lives, &b_lives);
        }));
        is_over.store(true, Ordering::Release);
        if let Err(panic) = story {
            std::panic::resume_unwind(panic);
        }
    });
}

fn story(rig: &Rig, a_lives: &AtomicBool, b_lives: &AtomicBool) {
    let controller = rig.controller(&[]);
    rig.wait_for("fraud", "Placed", "True/Verified");
    assert_eq!(pinned(rig), "8/8");
    wait_until_judged(rig, "first");

    // The renewals stop, which is detected.
    b_lives.store(false, Ordering::Release);
    let writes = || {
        rig.writes()
            .iter()
            .filter(|w| w.contains(" fraud "))
            .count()
    };
    let before = writes();
    rig.wait_for("fraud", "Placed", "Unknown/AgentSilent");
    assert_eq!(pinned(rig), "?");
    let message = placed(rig)["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("the agent of node b "), "{message}");
    // The renewals of the other node caused no writes until then.
    assert_eq!(writes(), before + 1, "{:?}", rig.writes());
    let events = [
        "get",
        "events",
        "--field-selector",
        "reason=AgentSilent",
        "-o",
        "name",
    ];
    wait("an event", || rig.kubectl(&events).lines().count() == 1);

    // A new controller has not observed a renewal yet: conditions are kept.
    let since = placed(rig)["lastTransitionTime"].take();
    assert!(controller.stop().success());
    let controller = rig.controller(&[]);
    wait_until_judged(rig, "second");
    assert_eq!(rig.condition_text("fraud", "Placed"), "Unknown/AgentSilent");
    wait("the living node is not named", || {
        let condition = placed(rig);
        condition["message"]
            .as_str()
            .unwrap()
            .starts_with("the agent of node b ")
    });
    assert_eq!(
        placed(rig)["lastTransitionTime"],
        since,
        "it never was another"
    );

    b_lives.store(true, Ordering::Release);
    rig.wait_for("fraud", "Placed", "True/Verified");
    assert_eq!(pinned(rig), "8/8");

    let since = placed(rig)["lastTransitionTime"].take();
    drop(controller);
    let _controller = rig.controller(&[]);
    wait_until_judged(rig, "third");
    assert_eq!(rig.condition_text("fraud", "Placed"), "True/Verified");
    assert_eq!(
        placed(rig)["lastTransitionTime"],
        since,
        "it never was another"
    );

    // All agents are removed, as after an upgrade with agent.enabled=false.
    a_lives.store(false, Ordering::Release);
    b_lives.store(false, Ordering::Release);
    rig.wait_for("fraud", "Placed", "Unknown/AgentSilent");
    wait("both are named", || {
        let condition = placed(rig);
        condition["message"]
            .as_str()
            .unwrap()
            .starts_with("the agents of nodes a, b ")
    });
    // The report of a node is deleted together with the node.
    rig.kubectl(&["delete", "npl", "a", "b"]);
    rig.wait_for("fraud", "Placed", "Unknown/NoReport");
}
