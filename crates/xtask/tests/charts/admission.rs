//! An agent may only write the NodePlacement of its own node: tested with the tokens of its pods,
//! which contain the pod's node, and with users who impersonate agents.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::plane::{apply, file, file_of, kubectl, kubectl_as, namespace, plane, run, wait};
use crate::rendered::{EVERYTHING, render};
use crate::root;

const AGENTS: &str = "albacore-agent";

/// Applies the objects of the chart that the agent needs, once for all tests of this program.
pub(crate) fn set_up() {
    namespace(AGENTS);
    let is_needed = |object: &Value| {
        object["metadata"]["name"]
            .as_str()
            .is_some_and(|name| name.starts_with("albacore-agent"))
            && ["ServiceAccount", "ClusterRole", "ClusterRoleBinding"]
                .iter()
                .chain(&[
                    "ValidatingAdmissionPolicy",
                    "ValidatingAdmissionPolicyBinding",
                ])
                .any(|kind| object["kind"] == *kind)
    };
    let objects: Vec<Value> = render(&EVERYTHING).into_iter().filter(is_needed).collect();
    assert_eq!(objects.len(), 5);
    let file = file_of(&objects);
    apply(&file);
}

/// Creates a pod of the agent on this node, and a kubeconfig with its token.
pub(crate) fn agent_on(node: &str) -> PathBuf {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("agent-{node}"), "namespace": AGENTS},
        "spec": {
            "nodeName": node, "serviceAccountName": AGENTS,
            "containers": [{"name": "agent", "image": "none"}],
        },
    });
    let node_object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
    let file = file_of(&[node_object, pod]);
    apply(&file);
    let pod = format!("agent-{node}");
    let plane = plane();
    plane
        .kubeconfig_of_account(AGENTS, AGENTS, Some(&pod))
        .unwrap()
}

fn report(node: &str) -> tempfile::NamedTempFile {
    file(&format!(
        "apiVersion: albacore.dev/v1alpha1\nkind: NodePlacement\nmetadata: {{name: {node}}}\n\
         status: {{planned: 4, verified: 4}}\n"
    ))
}

/// Writes the object and then the status of `node`.
fn write(config: &std::path::Path, node: &str) -> Result<(), String> {
    let file = report(node);
    let apply = |more: &[&str]| {
        let path = file.path().to_str().unwrap();
        let arguments = [
            "apply",
            "--server-side",
            "--field-manager=albacore-agent",
            "-f",
            path,
        ];
        kubectl_as(config, &[&arguments, more].concat()).map(drop)
    };
    apply(&[])?;
    apply(&["--subresource=status"])
}

#[test]
fn an_agent_writes_the_object_of_its_own_node_alone() {
    set_up();
    let agent = agent_on("node-a");
    // An admission policy takes effect a moment after its creation.
    wait("the admission policy", || write(&agent, "node-b").is_err());
    let said = write(&agent, "node-b").unwrap_err();
    let refusal = "the agent of node node-a may not write the NodePlacement of node-b";
    assert!(said.contains(refusal), "{said}");
    write(&agent, "node-a").unwrap();
    let planned = [
        "get",
        "nodeplacement",
        "node-a",
        "-o",
        "jsonpath={.status.planned}",
    ];
    assert_eq!(kubectl(&planned), "4");
    // Existing objects are protected as well as new ones.
    let other = agent_on("node-b");
    write(&other, "node-b").unwrap();
    for (config, node) in [(&agent, "node-b"), (&other, "node-a")] {
        let file = report(node);
        let path = file.path().to_str().unwrap();
        for part in [&[][..], &["--subresource=status"]] {
            let patch = ["apply", "--server-side", "--force-conflicts", "-f", path];
            let said = kubectl_as(config, &[&patch, part].concat()).unwrap_err();
            assert!(said.contains("may not write"), "{node}: {said}");
        }
    }
    assert!(
        kubectl_as(&agent, &["delete", "nodeplacement", "node-a"]).is_err(),
        "no such right"
    );
}

#[test]
fn a_token_that_names_no_node_writes_nothing() {
    set_up();
    let config = plane().kubeconfig_of_account(AGENTS, AGENTS, None).unwrap();
    wait("the admission policy", || write(&config, "node-c").is_err());
    let said = write(&config, "node-c").unwrap_err();
    assert!(said.contains("this token names no node"), "{said}");
}

#[test]
fn a_user_who_claims_to_be_an_agent_is_judged_by_the_node_that_the_claim_names() {
    set_up();
    let claim = |node: &str| {
        let admin = std::fs::read_to_string(plane().kubeconfig()).unwrap();
        let user = "user: {";
        let claims = format!(
            "user: {{as: \"system:serviceaccount:{AGENTS}:{AGENTS}\", \
             as-user-extra: {{\"authentication.kubernetes.io/node-name\": [{node}]}}, "
        );
        assert!(admin.contains(user), "{admin}");
        // The first "user: {" is in the list of users; in contexts, the user is a string.
        file(&admin.replacen(user, &claims, 1))
    };
    let one = claim("node-d");
    wait("the admission policy", || {
        write(one.path(), "node-e").is_err()
    });
    assert!(
        write(one.path(), "node-e")
            .unwrap_err()
            .contains("may not write")
    );
    write(one.path(), "node-d").unwrap();
    let two = claim("node-d, node-e");
    assert!(
        write(two.path(), "node-e")
            .unwrap_err()
            .contains("this token names no node")
    );
}

#[test]
fn administrators_may_write_every_node() {
    set_up();
    let file = report("node-f");
    let path = file.path().to_str().unwrap();
    run("kubectl", &["apply", "--server-side", "-f", path]).unwrap();
    kubectl(&["delete", "nodeplacement", "node-f"]);
}

/// A pod in the namespace, with or without the annotation.
fn opting_in(namespace: &str, name: &str, is_annotated: bool) -> tempfile::NamedTempFile {
    let annotations = match is_annotated {
        true => json!({"albacore.dev/place": "{}"}),
        false => json!({}),
    };
    file_of(&[json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {"automountServiceAccountToken": false,
            "containers": [{"name": "web", "image": "none"}]},
    })])
}

#[test]
fn only_pods_of_labeled_namespaces_may_opt_in_under_the_example_policy() {
    let admin = plane().kubeconfig();
    let create = |file: &tempfile::NamedTempFile| {
        let path = file.path().to_str().unwrap();
        kubectl_as(admin, &["apply", "-f", path])
    };
    for name in ["opt-in", "no-opt-in"] {
        namespace(name);
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": name}});
        apply(&file_of(&[account]));
    }
    kubectl(&["label", "namespace", "opt-in", "albacore.dev/place=allowed"]);
    create(&opting_in("no-opt-in", "before", true)).unwrap();
    let policy = root().join("manifests/examples/admission/place-annotation.yaml");
    kubectl(&["apply", "-f", policy.to_str().unwrap()]);
    wait("the policy", || {
        let refused = create(&opting_in("no-opt-in", "probe", true)).is_err();
        let probe = [
            "delete",
            "pod",
            "probe",
            "-n",
            "no-opt-in",
            "--ignore-not-found",
            "--now",
        ];
        kubectl(&probe);
        refused
    });
    let said = create(&opting_in("no-opt-in", "web", true)).unwrap_err();
    assert!(
        said.contains("label the namespace with albacore.dev/place=allowed"),
        "{said}"
    );
    create(&opting_in("no-opt-in", "web", false)).unwrap();
    let annotate = |pod: &str, text: &str| {
        let annotation = format!("albacore.dev/place={text}");
        kubectl_as(
            admin,
            &[
                "annotate",
                "pod",
                pod,
                "-n",
                "no-opt-in",
                "--overwrite",
                &annotation,
            ],
        )
    };
    assert!(annotate("web", "{}").is_err(), "later, too");
    assert!(annotate("before", r#"{"workers": 2}"#).is_err());
    kubectl(&["label", "pod", "before", "-n", "no-opt-in", "changed=yes"]);
    create(&opting_in("opt-in", "web", true)).unwrap();
    kubectl(&["delete", "-f", policy.to_str().unwrap()]);
}
