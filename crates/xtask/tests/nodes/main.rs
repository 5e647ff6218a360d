//! Three nodes, each with its own kubelet, and Envoy in front of a deployment with a pod on each:
//! while requests are sent, the pods are replaced, a node is drained, an idle pod is removed, and a
//! node disappears. Envoy uses the configuration of `manifests/examples/routing/envoy`, and the
//! pods' addresses from the EndpointSlice of the headless Service.
//!
//! A graceful shutdown loses no request. A node that disappears may lose the requests in flight on
//! it and those sent to it before Envoy noticed.
// Takes about eight minutes: run by `make nodes` and `make e2e`, optimized.
#![cfg(not(debug_assertions))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

mod consolidation;
mod envoy;
#[path = "../node/kernel.rs"]
#[allow(dead_code, reason = "the rig knows it")]
mod kernel;
#[path = "../node/requests.rs"]
#[allow(dead_code, reason = "some of it is for the test of the node")]
mod requests;
#[path = "../node/rig.rs"]
#[allow(dead_code, reason = "some of it is for the test of the node")]
mod rig;

use albacore_testbed::{Host, NodeOptions};
use envoy::Envoy;
use requests::Requests;
use rig::Rig;
use serde_json::json;

/// The nodes that join the first one.
const JOINED: [u8; 2] = [1, 2];

fn options(number: u8) -> NodeOptions {
    NodeOptions {
        name: format!("node{number}"),
        // All nodes share the same CPUs, so none of them may be assigned exclusively to one pod.
        cpu_manager_policy: "none".into(),
        reserved_cpu: "100m".into(),
        ..NodeOptions::default()
    }
}

#[test]
fn only_requests_on_a_lost_node_may_fail() {
    let mut rig = Rig::start_with(options(0));
    let mut joined: Vec<(u8, Host)> = Vec::new();
    rig.step("two more nodes", |rig| {
        for number in JOINED {
            let options = Rig::with_profile(options(number));
            joined.push((number, rig.node.join(number, &options).unwrap()));
        }
    });
    rig.step("images", |rig| {
        rig.import_images();
        joined
            .iter()
            .for_each(|(_, host)| rig.import_images_to(host));
    });
    rig.step("helm install", |rig| rig.helm("install", &[]));
    rig.step("a pod on each node", |rig| deploy(rig));
    let envoy = Envoy::start(&rig);
    std::thread::scope(|scope| {
        let publisher = envoy.publish_endpoints(scope, &rig);
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            runs(&rig, &envoy, &mut joined);
        }));
        publisher.stop();
        if let Err(panic) = ran {
            rig.print_state();
            std::panic::resume_unwind(panic);
        }
    });
}

/// The steps under load.
fn runs(rig: &Rig, envoy: &Envoy, joined: &mut Vec<(u8, Host)>) {
    let requests = Requests::new(envoy.address());
    let quiet = requests.during(rig, "nothing happens", || {
        std::thread::sleep(requests::SETTLE);
    });
    quiet.assert_none_failed();
    let replaced = requests.during(rig, "a rolling update", || replace_pods(rig));
    replaced.assert_none_failed();
    let drained = requests.during(rig, "a drain of node1", || {
        let words = ["drain", "node1", "--ignore-daemonsets", "--timeout=180s"];
        rig.kubectl(&[&words[..], &["--delete-emptydir-data"]].concat());
        wait_ready(rig);
    });
    drained.assert_none_failed();
    rig.kubectl(&["uncordon", "node1"]);
    // So that the node that is lost has a pod again.
    let spread = requests.during(rig, "pods spread again", || replace_pods(rig));
    spread.assert_none_failed();
    let removed = requests.during(rig, "an idle pod is removed", || {
        consolidation::removes_the_idle_pod(rig);
    });
    removed.assert_none_failed();
    let (number, host) = joined.pop().unwrap();
    let in_flight = std::cell::Cell::new(0);
    let lost = requests.during(rig, "node2 disappears", || {
        let address = pod_of(rig, host.name());
        std::thread::sleep(requests::SETTLE / 2);
        in_flight.set(envoy.in_flight(rig, &address));
        rig.node.disconnect(number).unwrap();
        drop(host);
        std::thread::sleep(requests::SETTLE * 2);
    });
    println!("in flight on node2 when it was lost: {}", in_flight.get());
    // Until two health checks have failed, a third of the requests is sent to it.
    lost.assert_failed_at_most(in_flight.get() + requests::SENT_UNTIL_NOTICED);
}

/// Deploys one pod with one worker on each node.
fn deploy(rig: &Rig) {
    let model = rig::root().join("examples/fraud.ubj");
    let from = format!("--from-file=fraud.ubj={}", model.display());
    rig.kubectl(&["create", "configmap", "fraud-model", &from]);
    let selector = json!({"matchLabels": {"albacore.dev/deployment": "fraud"}});
    let deployment = json!({
        "apiVersion": "albacore.dev/v1beta1", "kind": "InferenceDeployment",
        "metadata": {"name": "fraud"},
        "spec": {
            "workers": 1, "threads": 1, "replicas": 3,
            "models": [{
                "name": "fraud", "uri": "configmap://fraud-model/fraud.ubj",
                "slo": {"latency": "1s", "percentile": 99},
            }],
            "resources": {"requests": {"cpu": "200m"}, "limits": {"cpu": "500m"}},
            "template": {"spec": {"topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector,
                // Only pods of one revision are counted, so a rolling update also spreads them.
                "matchLabelKeys": ["pod-template-hash"],
            }]}},
        },
    });
    rig.apply("fraud", &deployment.to_string());
    wait_ready(rig);
}

fn wait_ready(rig: &Rig) {
    let condition = "--for=condition=Ready";
    rig.kubectl(&["wait", "infd/fraud", condition, "--timeout=180s"]);
    let words = ["rollout", "status", "deployment/fraud", "--timeout=180s"];
    rig.kubectl(&words);
}

/// Replaces the pods, and waits until the old ones are gone.
fn replace_pods(rig: &Rig) {
    let generation = "jsonpath={.metadata.generation}";
    let before = rig.kubectl(&["get", "deployment", "fraud", "-o", generation]);
    let patch = json!({"spec": {"template": {"metadata": {"annotations": {"replaced": before}}}}});
    let patch = patch.to_string();
    rig.kubectl(&["patch", "infd", "fraud", "--type=merge", "-p", &patch]);
    rig.wait_until("another generation", || {
        let now = rig.kubectl(&["get", "deployment", "fraud", "-o", generation]);
        (now != before).then_some(())
    });
    wait_ready(rig);
    rig.wait_until("three pods", || {
        let words = ["get", "pods", "-l", "albacore.dev/deployment=fraud", "-o"];
        let names = rig.kubectl(&[&words[..], &["name"]].concat());
        (names.lines().count() == 3).then_some(())
    });
}

/// The address of the pod on a node.
fn pod_of(rig: &Rig, node: &str) -> String {
    let (field, path) = (
        format!("--field-selector=spec.nodeName={node}"),
        "jsonpath={.items[0].status.podIP}",
    );
    let label = "albacore.dev/deployment=fraud";
    rig.kubectl(&["get", "pods", "-l", label, &field, "-o", path])
}
