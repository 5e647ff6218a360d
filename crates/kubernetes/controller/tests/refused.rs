//! Tests of children that a real API server rejects: conditions and events contain the reason and
//! the remedy, and the children are written once the cause is fixed.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod rig;

use albacore_testbed::Options;
use serde_json::{Value, json};

use rig::{CHILDREN, CONTROLLER, Rig, deployment, wait};

fn is_built(rig: &Rig, name: &str) -> bool {
    rig.list(CHILDREN, &format!("albacore.dev/deployment={name}"))
        .len()
        == 7
}

fn message(rig: &Rig, name: &str, condition: &str) -> String {
    let status = rig.get("infd", name).unwrap()["status"].clone();
    let conditions = status["conditions"].as_array().unwrap().clone();
    let found = conditions.into_iter().find(|c| c["type"] == condition);
    found.unwrap()["message"].as_str().unwrap().to_owned()
}

fn has_event(rig: &Rig, namespace: &str, name: &str, reason: &str) -> bool {
    let fields = format!("reason={reason},involvedObject.name={name}");
    let arguments = [
        "get",
        "events",
        "-n",
        namespace,
        "--field-selector",
        &fields,
        "-o",
        "name",
    ];
    !rig.kubectl(&arguments).is_empty()
}

#[test]
fn a_quota_and_a_policy_are_named_and_their_end_is_noticed() {
    let rig = Rig::start(true);
    let _controller = rig.controller(&[]);
    rig.kubectl(&["create", "quota", "none", "--hard=services=0"]);
    rig.apply(&[deployment("a", &json!({}))]);
    rig.wait_for("a", "Stalled", "True/QuotaExceeded");
    rig.wait_for("a", "Ready", "False/QuotaExceeded");
    let said = message(&rig, "a", "Stalled");
    assert!(said.contains("exceeded quota: none"), "{said}");
    assert!(
        said.contains("; raise the ResourceQuota in the message"),
        "{said}"
    );
    wait("an event tells it", || {
        has_event(&rig, "default", "a", "QuotaExceeded")
    });
    rig.kubectl(&["delete", "quota", "none"]);
    rig.wait_for("a", "Stalled", "");
    wait("it is built", || is_built(&rig, "a"));

    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "no-b"},
        "spec": {"failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"], "resources": ["deployments"]}]},
            "validations": [{"expression": "object.metadata.name != 'b'",
                "message": "b is no name"}]}});
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "no-b"},
        "spec": {"policyName": "no-b", "validationActions": ["Deny"]}});
    rig.apply(&[policy, binding]);
    wait("the policy is in force", || {
        let create = ["create", "deployment", "b", "--image=b", "--dry-run=server"];
        rig.try_kubectl(&create).is_err()
    });
    rig.apply(&[deployment("b", &json!({}))]);
    rig.wait_for("b", "Stalled", "True/AdmissionDenied");
    let said = message(&rig, "b", "Stalled");
    assert!(said.contains("b is no name"), "{said}");
    wait("an event tells it", || {
        has_event(&rig, "default", "b", "AdmissionDenied")
    });
    rig.kubectl(&["delete", "validatingadmissionpolicybinding", "no-b"]);
    rig.wait_for("b", "Stalled", "");
    wait("it is built", || is_built(&rig, "b"));

    // A quota that allows no pods: the Deployment exists and cannot create any.
    rig.kubectl(&["create", "quota", "no-pods", "--hard=pods=0"]);
    rig.apply(&[deployment("c", &json!({}))]);
    rig.wait_for("c", "Ready", "False/PodsRefused");
    let said = message(&rig, "c", "Ready");
    assert!(said.contains("exceeded quota: no-pods"), "{said}");
}

/// The permissions of a controller that may not write Services and, with `without_status`, may not
/// write the status.
fn role(without_status: bool) -> Value {
    let all = ["*"];
    let mut rules = vec![
        json!({"apiGroups": ["apps", "policy", "networking.k8s.io", "coordination.k8s.io",
            "events.k8s.io", "monitoring.coreos.com"], "resources": all, "verbs": all}),
        json!({"apiGroups": [""], "resources": ["configmaps", "serviceaccounts", "pods", "namespaces"],
            "verbs": all}),
        json!({"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list", "watch"]}),
        json!({"apiGroups": ["albacore.dev"],
            "resources": ["inferencedeployments", "nodeplacements"], "verbs": all}),
    ];
    if !without_status {
        rules.push(json!({"apiGroups": ["albacore.dev"],
            "resources": ["inferencedeployments/status"], "verbs": all}));
    }
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "limited"}, "rules": rules})
}

#[test]
fn missing_rights_and_a_namespace_that_ends_are_named() {
    let rig = Rig::start(false);
    rig.apply(&[role(false)]);
    rig.kubectl(&[
        "create",
        "clusterrolebinding",
        "limited",
        "--clusterrole=limited",
        "--user=limited",
    ]);
    // No namespace controller empties the namespace here, so it keeps terminating.
    rig.kubectl(&["create", "namespace", "doomed"]);
    let mut doomed = deployment("late", &json!({}));
    doomed["metadata"]["namespace"] = "doomed".into();
    rig.apply(&[doomed, deployment("c", &json!({}))]);
    rig.kubectl(&["delete", "namespace", "doomed", "--wait=false"]);
    let limited = rig.plane.kubeconfig_of("limited", None).unwrap();
    let _controller = rig.launch_as(&limited, &[]).wait_until_ready();

    rig.wait_for("c", "Stalled", "True/MissingPermission");
    let said = message(&rig, "c", "Stalled");
    assert!(
        said.contains("cannot patch resource \"services\""),
        "{said}"
    );
    assert!(
        said.contains("; grant the controller the permission in the message"),
        "{said}"
    );
    wait("the namespace is named", || {
        let read = ["get", "infd", "late", "-n", "doomed", "-o", "json"];
        rig.kubectl(&read).contains("\"NamespaceTerminating\"")
    });

    // Without permission to write the status, the event is the only report.
    rig.apply(&[role(true)]);
    wait("the right is gone", || {
        let can = [
            "auth",
            "can-i",
            "patch",
            "infd",
            "--subresource=status",
            "--as=limited",
        ];
        rig.try_kubectl(&can).is_err()
    });
    rig.apply(&[deployment("d", &json!({}))]);
    wait("an event tells it", || {
        has_event(&rig, "default", "d", "StatusRefused")
    });
    // After permissions are granted, it is built without a change of the deployment.
    rig.kubectl(&[
        "create",
        "clusterrolebinding",
        "all",
        "--clusterrole=cluster-admin",
        "--user=limited",
    ]);
    wait("it is built", || is_built(&rig, "c") && is_built(&rig, "d"));
    rig.wait_for("c", "Stalled", "");
}

#[test]
fn a_kind_that_is_installed_later_is_waited_for_and_watched() {
    let plugins = "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement";
    let rig = Rig::with(Options {
        api_server: vec![plugins.to_owned()],
        ..Options::default()
    });
    // The admission plugin discovers the kinds now, and then caches them for up to 30 s.
    let owner = json!({"apiVersion": "v1", "kind": "Secret", "name": "x", "uid": "x",
        "blockOwnerDeletion": true});
    rig.apply(&[json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "first", "namespace": "default", "ownerReferences": [owner]}})]);
    let crds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../crds");
    let rig = rig.serve(&crds);
    let _controller = rig.controller(&[]);
    rig.apply(&[deployment("one", &json!({}))]);
    wait("it is built", || is_built(&rig, "one"));
    let log = rig.plane.audit_log().unwrap();
    let refused = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|r| r["user"]["username"] == CONTROLLER && r["responseStatus"]["code"] == 403);
    if refused.count() > 0 {
        wait("an event tells it", || {
            has_event(&rig, "default", "one", "KindNotServed")
        });
    }
    rig.wait_for("one", "Stalled", "");
}
