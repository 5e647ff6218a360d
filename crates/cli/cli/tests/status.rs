//! `albacore status` and `albacore explain` against a real API server, with objects as written by
//! the controller, the kubelet and the agent.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail loudly")]

mod command;

use std::path::Path;
use std::process::Command;

use albacore_api::remedy_of;
use albacore_testbed::{ControlPlane, Options, programs};
use command::{CommandOutput, albacore, assert_refused};
use serde_json::{Value, json};

const TIME: &str = "2026-11-21T20:00:00Z";

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": TIME, "observedGeneration": 1})
}

fn put(plane: &ControlPlane, arguments: &[&str], object: &Value) {
    let file = tempfile::NamedTempFile::with_suffix(".json").unwrap();
    std::fs::write(file.path(), object.to_string()).unwrap();
    let path = file.path().to_str().unwrap();
    let output = plane.kubectl(&[arguments, &["-f", path]].concat()).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
}

/// Stores the object, then its status, which is a separate request to the API server.
fn put_with_status(plane: &ControlPlane, object: &Value) {
    put(plane, &["create"], object);
    put(
        plane,
        &[
            "apply",
            "--server-side",
            "--force-conflicts",
            "--subresource=status",
        ],
        object,
    );
}

fn deployment() -> Value {
    json!({
        "apiVersion": "albacore.dev/v1beta1", "kind": "InferenceDeployment",
        "metadata": {"name": "fraud", "namespace": "default"},
        "spec": {"workers": 4, "threads": 4,
            "models": [{"name": "fraud", "uri": "file:///m", "slo": {"latency": "25ms"}}]},
        "status": {
            "observedGeneration": 1, "ready": "1/2", "pinned": "15/16",
            "url": "http://fraud.default.svc:8080",
            "conditions": [
                condition("Ready", "False", "PodsNotReady", "1 of 2 pods serve"),
                condition("ModelLoaded", "True", "Loaded", "every pod has it"),
                condition("Placed", "False", "ThreadsNotPlaced", "15 of 16 threads"),
                condition("SLOMet", "Unknown", "StateUnread", "no pod has reported its state yet"),
                condition("Reconciling", "True", "QuotaExceeded",
                    &format!("no; {}", remedy_of("QuotaExceeded").unwrap())),
            ],
            "models": [{"name": "fraud", "loaded": "1/2", "error": "fraud-b: checksum differs",
                "goodput": "310/s", "p99": "31ms", "badRate": "4%", "sloMet": false,
                "latency": [{"kind": "value", "perRow": "1.8us", "perBatch": "45us"}]}],
        },
    })
}

fn pod(name: &str, node: Option<&str>, status: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default",
            "labels": {"albacore.dev/deployment": "fraud"}},
        "spec": {"containers": [{"name": "server", "image": "x"}], "automountServiceAccountToken": false},
        "status": status,
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
    }
    pod
}

fn filled() -> ControlPlane {
    let mut plane = ControlPlane::start(&Options::default()).unwrap();
    let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../crds");
    plane.serve_crds(&crds).unwrap();
    // No controller manager creates the service account.
    put(
        &plane,
        &["create"],
        &json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "default", "namespace": "default"}}),
    );
    put_with_status(&plane, &deployment());
    let running = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    put_with_status(&plane, &pod("fraud-a", Some("node-1"), &running));
    let pending = json!({"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/1 nodes: Insufficient cpu"}]});
    put_with_status(&plane, &pod("fraud-b", None, &pending));
    put_with_status(
        &plane,
        &json!({
            "apiVersion": "albacore.dev/v1alpha1", "kind": "NodePlacement",
            "metadata": {"name": "node-1"},
            "status": {"planned": 16, "verified": 15, "pods": [{
                "pod": "default/fraud-a", "workers": 4, "workersVerified": 3, "planned": 16,
                "verified": 15, "cpuset": "0-3,8-11", "isolation": "None", "plan": "6b1fe0c2",
                "since": TIME, "drift": {"count": 3, "cause": "ForeignWrite"},
                "trial": "trial: Compact instead of Scatter"}]},
        }),
    );
    plane
}

/// Runs `albacore` as the user of this kubeconfig.
fn as_user(kubeconfig: &Path, line: &str) -> CommandOutput {
    let kubeconfig = kubeconfig.to_str().unwrap();
    let words: Vec<&str> = line
        .split_whitespace()
        .chain(["--kubeconfig", kubeconfig])
        .collect();
    albacore(&words)
}

#[test]
fn a_deployment_is_shown_with_its_pods_workers_threads_cpus_and_drift() {
    let plane = filled();
    let admin = plane.kubeconfig();
    let shown = as_user(admin, "status fraud");
    assert_eq!(shown.code, 0, "{shown:?}");
    for part in [
        "default/fraud  in progress  pods 1/2  4 x 4 scatter  threads pinned 15/16",
        "http://fraud.default.svc:8080",
        "1.8us per row + 45us per batch",
        "goodput 310/s  p99 31ms  bad 4%  slo missed",
        "├─ fraud-a  Running (ready)  node-1",
        "workers 3/4  threads 15/16 verified  cpus 0-3,8-11  isolation none",
        "drifts 3 (last: ForeignWrite)",
        "trial: Compact instead of Scatter",
        "└─ fraud-b  Pending (not ready)  no node",
        "Unschedulable: 0/1 nodes: Insufficient cpu",
    ] {
        assert!(
            shown.out.contains(part),
            "{part:?} is not in\n{}",
            shown.out
        );
    }

    let json = as_user(admin, "status --output json");
    let json: Value = serde_json::from_str(&json.out).unwrap();
    let placement = &json["deployments"][0]["pods"][0]["placement"];
    assert_eq!(json["deployments"][0]["state"], "in_progress");
    assert_eq!(placement["threads_verified"], 15);
    assert_eq!(placement["drift_cause"], "ForeignWrite");
    assert_eq!(json["unread"], json!([]));

    let svg = as_user(admin, "status -A --output svg");
    assert!(
        svg.out.starts_with("<svg") && svg.out.contains("15 of 16 threads"),
        "{svg:?}"
    );
    assert_eq!(svg.out.matches("<title>cpu ").count(), 8);

    a_silent_agent(&plane);
    what_explain_says(admin);
    pods_outside_of_deployments(&plane);

    assert_refused(
        &as_user(admin, "status fruad"),
        1,
        &["\"fruad\"", "status -A"],
    );
    assert_refused(
        &as_user(admin, "status -n other fraud"),
        1,
        &["namespace \"other\""],
    );
    threads_that_cannot_be_had(&plane);
    a_node_whose_agent_gives_masks_back(&plane);
    as_plugin_of_kubectl(&plane);
    only_what_the_user_may_read(&plane);
}

/// Findings with their remedies, without findings that merely follow from others.
fn what_explain_says(admin: &Path) {
    let why = as_user(admin, "explain fraud");
    assert_eq!(why.code, 0, "{why:?}");
    for part in [
        "pod fraud-a: 15 of 16 threads are on their planned cpu",
        "unset OMP_PROC_BIND",
        "pinned threads are not isolated",
        "Reconciling is True (QuotaExceeded): no\n  -> raise the ResourceQuota",
        "pod fraud-b: Unschedulable: 0/1 nodes: Insufficient cpu\n  -> free resources on a node",
        "model fraud: fraud-b: checksum differs",
        "Placed is False (ThreadsNotPlaced): 15 of 16 threads",
    ] {
        assert!(why.out.contains(part), "{part:?} is not in\n{}", why.out);
    }
    // State that is unknown because a pod does not run is not a finding and has no remedy.
    for noise in ["SLOMet", "give it more pods", "PodsNotReady"] {
        assert!(!why.out.contains(noise), "{noise:?} is in\n{}", why.out);
    }
    assert!(
        !why.out.contains("Ready is False"),
        "a consequence is no finding: {}",
        why.out
    );
}

/// Pods that opted in by annotation, one with an invalid annotation, and one that did not opt in.
fn pods_outside_of_deployments(plane: &ControlPlane) {
    let admin = plane.kubeconfig();
    let running = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    for (name, text) in [
        ("web-1", Some("{\"workers\": 2}")),
        ("web-2", Some("{\"worker\": 2}")),
        ("web-3", None),
    ] {
        let mut pod = pod(name, Some("node-1"), &running);
        pod["metadata"]["labels"] = json!({"app": "web"});
        if let Some(text) = text {
            pod["metadata"]["annotations"] = json!({"albacore.dev/place": text});
        }
        put_with_status(plane, &pod);
    }
    let entry = json!([{"op": "add", "path": "/status/pods/-", "value": {
        "pod": "default/web-1", "workers": 2, "workersVerified": 2, "planned": 4, "verified": 4,
        "cpuset": "0-3", "isolation": "SharedPool",
        "annotation": {"container": "app", "workers": 2, "threads": 2, "threadsFrom": "ProcessTree"}}}]);
    let words = [
        "patch",
        "npl",
        "node-1",
        "--subresource=status",
        "--type=json",
        "-p",
    ];
    let output = plane
        .kubectl(&[&words[..], &[&entry.to_string()]].concat())
        .unwrap();
    assert!(output.status.success(), "{output:?}");

    for line in ["status pod/web-1", "status"] {
        let shown = as_user(admin, line);
        for part in [
            "default/web-1  2 x 2 scatter, container app (threads counted)",
            "└─ web-1  Running (ready)  node-1",
            "workers 2/2  threads 4/4 verified  cpus 0-3  isolation shared pool",
        ] {
            assert!(
                shown.out.contains(part),
                "{part:?} is not in\n{}",
                shown.out
            );
        }
    }
    let json = as_user(admin, "status pod/web-1 --output json");
    let json: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json["pods"][0]["requested"]["counted"], json!(["threads"]));
    assert_eq!(json["pods"][0]["placement"]["threads_verified"], 4);
    assert_eq!(json["deployments"], json!([]));

    what_is_said_of_pods(admin);
}

/// Explanations of these pods.
fn what_is_said_of_pods(admin: &Path) {
    let says = |line: &str, parts: &[&str]| {
        let said = as_user(admin, line);
        assert_eq!(said.code, 0, "{said:?}");
        for part in parts {
            assert!(said.out.contains(part), "{part:?} is not in\n{}", said.out);
        }
    };
    says("explain pod/web-1", &["pod/web-1 has no problems"]);
    says(
        "explain pod/web-2",
        &[
            "worker is not a field; did you mean \"workers\"",
            "-> correct",
        ],
    );
    for line in ["status pod/web-2", "status", "status -A"] {
        says(line, &["default/web-2", "worker is not a field"]);
    }
    let all = as_user(admin, "status");
    assert!(!all.out.contains("web-3"), "has not opted in: {all:?}");
    says(
        "explain pod/web-3",
        &["has not opted in", "-> annotate the template"],
    );
    let missing = as_user(admin, "status pod/web-9");
    assert_refused(
        &missing,
        1,
        &["no pod \"web-9\"", "namespace \"default\"", "-n"],
    );
}

/// An agent whose last verification is long ago, and one whose clock is ahead; afterwards, the
/// state is as before.
fn a_silent_agent(plane: &ControlPlane) {
    let admin = plane.kubeconfig();
    let verified_at = |time: &Value| {
        let patch = json!({"status": {"lastVerificationTime": time}}).to_string();
        let words = ["patch", "npl", "node-1", "--subresource=status"];
        let words = [&words[..], &["--type=merge", "-p", &patch]].concat();
        let output = plane.kubectl(&words).unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    verified_at(&json!("2001-01-01T00:00:00Z"));
    let shown = as_user(admin, "status fraud");
    for part in [
        "threads pinned ?\n",
        "workers ?/4  threads ?/16 verified",
        "the agent of its node has verified nothing since 2001-01-01T00:00:00Z",
    ] {
        assert!(
            shown.out.contains(part),
            "{part:?} is not in\n{}",
            shown.out
        );
    }
    let json = as_user(admin, "status --output json");
    let json: Value = serde_json::from_str(&json.out).unwrap();
    let placement = &json["deployments"][0]["pods"][0]["placement"];
    assert_eq!(placement["threads_verified"], Value::Null);
    assert_eq!(placement["last_verification"], "2001-01-01T00:00:00Z");
    let why = as_user(admin, "explain fraud");
    assert!(
        why.out.contains("-> check that it runs: kubectl"),
        "{why:?}"
    );
    assert!(!why.out.contains("of 16 threads are on"), "{why:?}");

    verified_at(&json!("2999-01-01T00:00:00Z"));
    let shown = as_user(admin, "status fraud");
    assert!(shown.out.contains("threads pinned 15/16"), "{shown:?}");
    verified_at(&Value::Null);
}

/// If no agent can be queried, the rest is shown with the reason. The output of a real agent is
/// tested on a real node.
fn threads_that_cannot_be_had(plane: &ControlPlane) {
    let admin = plane.kubeconfig();
    let shown = as_user(admin, "status fraud --threads");
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(shown.out.starts_with("default/fraud"), "{shown:?}");
    for part in [
        "threads of pod default/fraud-a: no agent runs on its node node-1",
        "threads of pod default/fraud-b: it has no node yet",
    ] {
        assert!(
            shown.out.contains(part),
            "{part:?} is not in\n{}",
            shown.out
        );
    }
    let mut agent = pod("agent-1", Some("node-1"), &json!({"phase": "Running"}));
    agent["metadata"]["labels"] = json!({"app.kubernetes.io/part-of": "albacore",
        "app.kubernetes.io/component": "agent"});
    agent["spec"]["containers"][0]["name"] = "agent".into();
    put_with_status(plane, &agent);
    let shown = as_user(admin, "status fraud --threads");
    let says = "threads of pod default/fraud-a: run /albacore-agent in pod default/agent-1";
    assert!(shown.out.contains(says), "{shown:?}");
    let user = plane.kubeconfig_of("viewer", None).unwrap();
    let bind = [
        "create",
        "clusterrolebinding",
        "viewer",
        "--clusterrole=albacore-test-viewer",
    ];
    put(
        plane,
        &["create"],
        &json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "albacore-test-viewer"},
        "rules": [{"apiGroups": ["albacore.dev", ""], "verbs": ["get", "list"],
            "resources": ["inferencedeployments", "nodeplacements", "pods"]}]}),
    );
    let bound = plane
        .kubectl(&[&bind[..], &["--user=viewer"]].concat())
        .unwrap();
    assert!(bound.status.success(), "{bound:?}");
    let shown = as_user(&user, "status fraud --threads");
    for part in [
        "cannot",
        "the right to pods/exec in namespace default is required",
    ] {
        assert!(
            shown.out.contains(part),
            "{part:?} is not in\n{}",
            shown.out
        );
    }
    let refused = as_user(&user, "restore --node node-1");
    assert_refused(&refused, 1, &["annotate nodes", "viewer", "cannot patch"]);
}

/// `restore --node` against an agent that is emulated by the test.
fn a_node_whose_agent_gives_masks_back(plane: &ControlPlane) {
    let admin = plane.kubeconfig();
    let missing = as_user(admin, "restore --node node-9");
    assert_refused(&missing, 1, &["there is no node \"node-9\""]);
    put(
        plane,
        &["create"],
        &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}}),
    );
    let report = |status: &str, reason: &str, verified: i32| {
        let message = "the node's annotation albacore.dev/enforcement is None: masks were restored";
        let object = json!({
            "apiVersion": "albacore.dev/v1alpha1", "kind": "NodePlacement",
            "metadata": {"name": "node-1"},
            "status": {"planned": 16, "verified": verified,
                "conditions": [condition("Enforcing", status, reason, message)]},
        });
        let apply = [
            "apply",
            "--server-side",
            "--subresource=status",
            "--force-conflicts",
        ];
        put(plane, &apply, &object);
    };
    report("True", "Enforcing", 15);
    std::thread::scope(|scope| {
        let restoring = scope.spawn(|| as_user(admin, "restore --node node-1"));
        let switch = "jsonpath={.metadata.annotations.albacore\\.dev/enforcement}";
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let is_asked = || {
            plane
                .kubectl(&["get", "node", "node-1", "-o", switch])
                .unwrap()
                .stdout
                == b"None"
        };
        while !is_asked() {
            assert!(
                std::time::Instant::now() < deadline,
                "the annotation is not set"
            );
        }
        report("False", "KillSwitch", 0);
        let done = restoring.join().unwrap();
        assert_eq!(done.code, 0, "{done:?}");
        for part in [
            "waiting for its agent",
            "masks were restored",
            "enforcement-",
        ] {
            assert!(done.out.contains(part), "{part:?} is not in\n{}", done.out);
        }
    });
}

/// kubectl finds the same binary under its plugin name, and the plugin finds the cluster like
/// kubectl.
fn as_plugin_of_kubectl(plane: &ControlPlane) {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-albacore");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_albacore"), plugin).unwrap();
    let output = Command::new(programs().unwrap().join("kubectl"))
        .args(["albacore", "status"])
        .env("PATH", folder.path())
        .env("KUBECONFIG", plane.kubeconfig())
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(out.starts_with("default/fraud  in progress"), "{output:?}");
}

fn only_what_the_user_may_read(plane: &ControlPlane) {
    let user = plane.kubeconfig_of("reader", None).unwrap();
    let refused = as_user(&user, "status");
    assert_refused(
        &refused,
        1,
        &["list inferencedeployments", "reader", "cannot list"],
    );
    put(
        plane,
        &["create"],
        &json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "r", "namespace": "default"},
            "rules": [{"apiGroups": ["albacore.dev"], "resources": ["inferencedeployments"],
                "verbs": ["get", "list"]}],
        }),
    );
    put(
        plane,
        &["create"],
        &json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "r", "namespace": "default"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"kind": "User", "name": "reader"}],
        }),
    );
    let shown = as_user(&user, "status");
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(shown.out.starts_with("default/fraud"), "{shown:?}");
    let unread: Vec<&str> = shown
        .out
        .lines()
        .filter(|l| l.starts_with("not shown: "))
        .collect();
    assert_eq!(
        unread.len(),
        2,
        "pods and node placements are forbidden: {shown:?}"
    );
}

#[test]
fn a_cluster_without_albacore_and_a_missing_kubeconfig_are_reported() {
    let plane = ControlPlane::start(&Options::default()).unwrap();
    let refused = as_user(plane.kubeconfig(), "status");
    assert_refused(&refused, 1, &["Albacore is not installed"]);
    let refused = as_user(Path::new("/nowhere/config"), "status");
    assert_refused(&refused, 1, &["/nowhere/config"]);
}
