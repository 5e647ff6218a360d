//! Lifecycle of a pod under the agent: placed, repaired, changed, given back.
#![allow(clippy::unwrap_used, clippy::panic)] // tests fail by panicking

mod rig;

use std::fs;
use std::time::Duration;

use rig::{Agent, NODE, Pod, Rig, taskset, wait};
use serde_json::json;

#[test]
fn threads_are_placed_and_kept_there_until_the_agent_stops() {
    let rig = Rig::start();
    rig.deploy("fraud", 2, 2, &json!({}));
    let pod = rig.pod("fraud-1", "fraud", &["2", "2", "named"]);
    let agent = rig.agent(&[]);
    pod.wait_until_pinned(4);
    rig.wait_for_verified(&pod, 4);
    let entry = rig.entry(&pod);
    assert_eq!(
        (&entry["workers"], &entry["workersVerified"]),
        (&json!(2), &json!(2))
    );
    assert_eq!(rig.condition("Enforcing"), "True/MasksWritten");
    rig.wait_for_event("fraud-1", "PlacementVerified");

    repairs(&rig, &pod);
    edits(&rig, &pod);
    ends(&rig, &pod, agent);
}

/// Respawns and changing cpusets.
fn repairs(rig: &Rig, pod: &Pod) {
    // A killed worker: its replacement gets its masks and is counted.
    let killed = pod.worker(1);
    pod.kill(killed);
    wait("the worker is replaced", || pod.has_replaced(killed, 4));
    wait("its births are reported", || {
        !rig.status()["births"].is_null()
    });

    // The kubelet rewrites the cpuset twice.
    pod.set_cpus("0");
    wait("all run on what is left", || {
        pod.threads().values().all(|(_, mask)| mask == "0")
    });
    wait("the report says so", || rig.entry(pod)["cpuset"] == "0");
    pod.set_cpus("0-1");
    wait("both cpus are used again", || {
        let threads = pod.threads();
        let on = |cpu: &str| threads.values().filter(|(_, mask)| mask == cpu).count();
        (on("0"), on("1")) == (2, 2)
    });
    rig.wait_for_verified(pod, 4);

    // The reported plan equals the one that `dump` computes, and `dump` shows each thread.
    let mut dump = serde_json::Value::Null;
    wait("dump and report name the same plan", || {
        let text = rig
            .run_command(&["dump", "--pod", "default/fraud-1"])
            .unwrap();
        dump = serde_json::from_str(&text).unwrap();
        dump[0]["plan"].is_string() && dump[0]["plan"] == rig.entry(pod)["plan"]
    });
    let threads = dump[0]["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 4);
    assert!(threads.iter().all(|t| t["state"] == "verified"), "{dump:#}");
}

/// Edits of the deployment and of the pod's label.
fn edits(rig: &Rig, pod: &Pod) {
    // Enforcement is disabled: nothing is written, then everything is given back.
    let policy = |policy: &str| json!({"spec": {"placement": {"policy": policy}}});
    rig.patch("infd", "fraud", &policy("None"));
    pod.wait_until_free("0-1");
    rig.patch("infd", "fraud", &policy("Tuna"));
    pod.wait_until_pinned(4);
    rig.patch(
        "infd",
        "fraud",
        &json!({"spec": {"placement": {"enforcement": "Observe"}}}),
    );
    let first = pod.worker(0);
    wait("a mask that somebody writes stays", || {
        taskset(first, "0-1");
        std::thread::sleep(Duration::from_millis(500));
        pod.threads()[&first].1 == "0-1"
    });
    rig.patch(
        "infd",
        "fraud",
        &json!({"spec": {"placement": {"enforcement": "Enforce"}}}),
    );
    pod.wait_until_pinned(4);

    // A pod without the label is not placed.
    rig.patch(
        "pod",
        "fraud-1",
        &json!({"metadata": {"labels": {"albacore.dev/deployment": null}}}),
    );
    pod.wait_until_free("0-1");
    wait("it is not reported", || rig.entry(pod).is_null());
    let label = json!({"metadata": {"labels": {"albacore.dev/deployment": "fraud"}}});
    rig.patch("pod", "fraud-1", &label);
    pod.wait_until_pinned(4);
}

/// Health and shutdown.
fn ends(rig: &Rig, pod: &Pod, agent: Agent) {
    // The heartbeat is recent; no socket listens.
    assert!(fs::metadata(&agent.heartbeat).is_ok());
    let heartbeat = agent.heartbeat.to_str().unwrap().to_owned();
    assert_eq!(
        rig.run_command(&["alive", "--heartbeat", &heartbeat]),
        Ok(String::new())
    );
    assert!(
        rig.run_command(&["alive", "--heartbeat", "/nonexistent"])
            .is_err()
    );

    // On exit the agent gives every mask back and reports it.
    let status = agent.stop();
    assert!(status.success(), "{status:?}");
    assert!(
        pod.masks().iter().all(|mask| mask == "0-1"),
        "{:?}",
        pod.threads()
    );
    assert_eq!(rig.condition("Enforcing"), "False/Stopped");
    assert!(
        rig.events("fraud-1")
            .contains(&"PlacementRestored".to_owned())
    );
    assert_eq!(rig.entry(pod)["verified"], 0);
    let owner = [
        "get",
        "npl",
        NODE,
        "-o",
        "jsonpath={.metadata.ownerReferences[0].kind}",
    ];
    assert_eq!(rig.kubectl(&owner), "Node", "it goes with its node");
}
