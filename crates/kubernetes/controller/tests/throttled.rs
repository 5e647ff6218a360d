//! Tests an API server that throttles the controller: API Priority and Fairness rejects its writes
//! with 429 and `Retry-After: 1`, like an overloaded server. There is one slot for the writes,
//! which another request of the same user occupies because a slow webhook handles it.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod rig;

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use serde_json::{Value, json};

use rig::{Rig, deployment, wait};

const USER: &str = "throttled";

/// Limits the writes of [`USER`] to one slot, except leases, which have a separate flow in every
/// cluster; further writes are rejected. The label `slow` keeps a request in the slot: three
/// webhooks at `port` never respond, and the API server waits for each in turn, 10 s for its TLS
/// handshake.
fn one_slot(port: u16) -> [Value; 3] {
    let hooks = ["first", "second", "third"].map(|name| {
        json!({
        "name": format!("{name}.slow.albacore.dev"), "admissionReviewVersions": ["v1"],
        "sideEffects": "None", "timeoutSeconds": 30, "failurePolicy": "Ignore",
        "clientConfig": {"url": format!("https://127.0.0.1:{port}/")},
        "objectSelector": {"matchLabels": {"slow": "yes"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
            "operations": ["CREATE"]}]})
    });
    let version = "flowcontrol.apiserver.k8s.io/v1";
    let limited = json!({"nominalConcurrencyShares": 0, "lendablePercent": 0,
        "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}});
    let resources = [
        "configmaps",
        "deployments",
        "services",
        "serviceaccounts",
        "networkpolicies",
        "poddisruptionbudgets",
        "events",
        "inferencedeployments/status",
    ];
    [
        json!({"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration", "metadata": {"name": "slow"},
            "webhooks": hooks}),
        json!({"apiVersion": version, "kind": "PriorityLevelConfiguration",
            "metadata": {"name": "one-slot"}, "spec": {"type": "Limited", "limited": limited}}),
        json!({"apiVersion": version, "kind": "FlowSchema", "metadata": {"name": "one-slot"},
            "spec": {"priorityLevelConfiguration": {"name": "one-slot"}, "matchingPrecedence": 2,
                "rules": [{"subjects": [{"kind": "User", "user": {"name": USER}}],
                    "resourceRules": [{"verbs": ["create", "patch", "update", "delete"],
                        "apiGroups": ["*"], "resources": resources, "namespaces": ["*"]}]}]}}),
    ]
}

/// The user's writes so far, without leases, as `verb resource code`.
fn writes(rig: &Rig) -> Vec<String> {
    let log = rig.plane.audit_log().unwrap();
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_read = |verb: &str| ["get", "list", "watch"].contains(&verb);
    let ours = lines.filter(|r| r["user"]["username"] == USER);
    let statuses = ours.filter_map(|r| {
        let verb = r["verb"].as_str()?;
        let resource = r["objectRef"]["resource"].as_str()?;
        let is_counted = !is_read(verb) && resource != "leases";
        is_counted.then(|| format!("{verb} {resource} {}", r["responseStatus"]["code"]))
    });
    statuses.collect()
}

/// Sends a request that occupies the slot until it is killed, 30 s at most; returns it and the
/// connection to the webhook. A request that the API server handles before it knows the webhook
/// completes immediately and is sent again.
fn occupy_the_slot(rig: &Rig, kubeconfig: &Path, webhook: &TcpListener) -> (Child, TcpStream) {
    let file = tempfile::NamedTempFile::with_suffix(".json").unwrap();
    let slow = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "slow", "namespace": "default", "labels": {"slow": "yes"}}});
    std::fs::write(file.path(), slow.to_string()).unwrap();
    let path = file.path().to_str().unwrap();
    let create = || rig.kubectl_as(kubeconfig, &["create", "--dry-run=server", "-f", path]);
    webhook.set_nonblocking(true).unwrap();
    let mut blocking = create();
    let mut connection = None;
    wait("a request waits for the webhook", || {
        if blocking.try_wait().unwrap().is_some() {
            blocking = create();
        }
        connection = webhook.accept().ok();
        connection.is_some()
    });
    (blocking, connection.unwrap().0)
}

#[test]
fn a_throttled_controller_honors_retry_after_and_resumes() {
    let rig = Rig::start(false);
    rig.kubectl(&[
        "create",
        "clusterrolebinding",
        USER,
        "--clusterrole=cluster-admin",
        &format!("--user={USER}"),
    ]);
    let kubeconfig = rig.plane.kubeconfig_of(USER, None).unwrap();
    let controller = rig.launch_as(&kubeconfig, &[]).wait_until_ready();
    rig.apply(&[deployment("fraud", &json!({}))]);
    rig.wait_for("fraud", "Reconciling", "True/RollingOut");

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    rig.apply(&one_slot(silent.local_addr().unwrap().port()));
    // The API server updates this condition when the limit is in force.
    rig.kubectl(&[
        "wait",
        "flowschema/one-slot",
        "--for=condition=Dangling=False",
    ]);
    let (mut blocking, _webhook) = occupy_the_slot(&rig, &kubeconfig, &silent);
    // Not an event, because a rejected event is not retried.
    let patch_is_refused = || {
        writes(&rig)
            .iter()
            .any(|write| write == "patch configmaps 429")
    };
    let mut rows = 100;
    wait("its writes are refused", || {
        rows += 1;
        rig.patch(
            "infd",
            "fraud",
            &json!({"spec": {"batching": {"maxRows": rows}}}),
        );
        patch_is_refused()
    });
    let before = writes(&rig).len();
    let seconds = 8;
    std::thread::sleep(Duration::from_secs(seconds));
    // Each rejection requires a pause of one second; each worker may have one request in flight.
    let later = &writes(&rig)[before..];
    println!("{} writes in {seconds} s: {later:?}", later.len());
    assert!(
        blocking.try_wait().unwrap().is_none(),
        "the slot was taken all the time"
    );
    assert!(
        later.iter().all(|write| write.ends_with(" 429")),
        "{later:?}"
    );
    assert!((1..=20).contains(&later.len()), "{later:?}");
    assert!(
        controller.http("/readyz").starts_with("HTTP/1.1 200"),
        "it only waits"
    );
    let metrics = controller.http("/metrics");
    assert!(metrics.contains("code=\"429\""), "{metrics}");

    // The blocking request ends.
    blocking.kill().unwrap();
    blocking.wait().unwrap();
    let wanted = format!("max_rows: {rows}");
    wait("the newest spec is applied", || {
        let map = rig.get("configmap", "fraud").unwrap();
        map["data"]["settings.yaml"]
            .as_str()
            .unwrap()
            .contains(&wanted)
    });
    assert_eq!(controller.stop().code(), Some(0));
}
