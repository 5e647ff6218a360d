//! Security of the chart's pods: only the agent has exceptions, and exactly those listed here.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::rendered::{EVERYTHING, of_kind, render, variants};

/// Exceptions of a pod from PodSecurity "restricted" and from this project's own rules, each in a
/// few words.
fn exceptions(pod: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for field in ["hostPID", "hostNetwork", "hostIPC"] {
        if pod[field] == true {
            found.insert(field.to_owned());
        }
    }
    if pod["enableServiceLinks"] != false {
        found.insert("service links".to_owned());
    }
    for volume in pod["volumes"].as_array().into_iter().flatten() {
        if let Some(path) = volume["hostPath"]["path"].as_str() {
            let is_written =
                |mount: &&Value| mount["name"] == volume["name"] && mount["readOnly"] != true;
            let mounts = containers(pod).flat_map(|c| c["volumeMounts"].as_array().unwrap());
            let access = if mounts.filter(is_written).count() > 0 {
                "written"
            } else {
                "read"
            };
            found.insert(format!("hostPath {path} {access}"));
        }
    }
    found.extend(containers(pod).flat_map(|container| container_exceptions(pod, container)));
    found
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    pod["containers"].as_array().unwrap().iter()
}

fn container_exceptions(pod: &Value, container: &Value) -> Vec<String> {
    let security = &container["securityContext"];
    let name = container["name"].as_str().unwrap();
    let mut found = Vec::new();
    let mut check = |holds: bool, what: &str| {
        if !holds {
            found.push(format!("{name}: {what}"));
        }
    };
    check(security["allowPrivilegeEscalation"] == false, "escalation");
    check(security["privileged"] != true, "privileged");
    check(security["readOnlyRootFilesystem"] == true, "writable root");
    check(
        security["runAsNonRoot"] == true && security["runAsUser"] == 65532,
        "root",
    );
    check(
        security["capabilities"]["drop"] == json!(["ALL"]),
        "capabilities kept",
    );
    check(
        security["seccompProfile"]["type"] == "RuntimeDefault",
        "no seccomp profile",
    );
    check(
        container["resources"]["requests"]["cpu"].is_string(),
        "no cpu request",
    );
    check(
        container["resources"]["limits"]["memory"].is_string(),
        "no memory limit",
    );
    let tag = container["image"]
        .as_str()
        .unwrap()
        .rsplit(':')
        .next()
        .unwrap();
    check(
        !tag.contains('/') && tag != "latest",
        "image without a version",
    );
    check(container["livenessProbe"].is_object(), "no liveness probe");
    check(
        container["startupProbe"].is_object()
            && container["startupProbe"] != container["livenessProbe"],
        "no startup probe of its own",
    );
    check(
        container["resources"]["requests"]["ephemeral-storage"].is_string(),
        "no ephemeral storage request",
    );
    check(
        container["readinessProbe"].is_object(),
        "no readiness probe",
    );
    for capability in security["capabilities"]["add"]
        .as_array()
        .into_iter()
        .flatten()
    {
        check(false, capability.as_str().unwrap());
    }
    let mounts = container["volumeMounts"].as_array().into_iter().flatten();
    let token = mounts.clone().any(|mount| mount["name"] == "token");
    check(
        !token && pod["automountServiceAccountToken"] == false,
        "has a token",
    );
    found
}

fn pod_of<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let found = of_kind(objects, kind);
    assert_eq!(found.len(), 1, "one {kind}");
    &found[0]["spec"]["template"]["spec"]
}

fn mode_of_token(pod: &Value) -> &Value {
    let volumes = pod["volumes"].as_array().unwrap();
    let token = volumes.iter().find(|volume| volume["name"] == "token");
    &token.unwrap()["projected"]["defaultMode"]
}

fn names(of: &[&str]) -> BTreeSet<String> {
    of.iter().map(ToString::to_string).collect()
}

#[test]
fn the_controller_has_no_exception_but_its_token() {
    for (name, values) in variants() {
        let found = exceptions(pod_of(&render(&values), "Deployment"));
        assert_eq!(found, names(&["controller: has a token"]), "{name}");
    }
}

#[test]
fn the_agent_has_exactly_the_four_exceptions_that_it_names() {
    let rendered = render(&EVERYTHING);
    let pod = pod_of(&rendered, "DaemonSet");
    assert_eq!(mode_of_token(pod), 0o400);
    let found = exceptions(pod);
    let wanted = [
        "hostPID",
        "hostPath /sys/fs/cgroup read",
        "agent: SYS_NICE",
        "agent: root",
        "agent: has a token",
    ];
    assert_eq!(found, names(&wanted));
}

#[test]
fn an_agent_that_observes_has_no_capability_and_no_host_pid() {
    let observe = [&EVERYTHING[..], &["--set", "agent.enforcement=Observe"]].concat();
    let rendered = render(&observe);
    let pod = pod_of(&rendered, "DaemonSet");
    assert_eq!(mode_of_token(pod), 0o444);
    let found = exceptions(pod);
    let wanted = [
        "hostPath /proc read",
        "hostPath /sys/fs/cgroup read",
        "agent: has a token",
    ];
    assert_eq!(found, names(&wanted));
}

#[test]
fn exceptions_are_detected() {
    let mut pod = pod_of(&render(&EVERYTHING), "DaemonSet").clone();
    pod["hostNetwork"] = json!(true);
    pod["containers"][1]["securityContext"]["capabilities"]["add"] = json!(["SYS_ADMIN"]);
    pod["containers"][0]["volumeMounts"][0]["readOnly"] = json!(false);
    let found = exceptions(&pod);
    for wanted in [
        "hostNetwork",
        "params: SYS_ADMIN",
        "hostPath /sys/fs/cgroup written",
    ] {
        assert!(found.contains(wanted), "{wanted} in {found:?}");
    }
}

#[test]
fn pods_reach_the_params_of_their_own_node_and_no_other() {
    let objects = render(&EVERYTHING);
    let is_params = |service: &&&Value| service["metadata"]["name"] == "albacore-params";
    let services = of_kind(&objects, "Service");
    let service = services.iter().find(is_params).unwrap();
    assert_eq!(service["spec"]["internalTrafficPolicy"], "Local");
}
