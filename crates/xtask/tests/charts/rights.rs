//! Permissions of the chart's accounts, as reported by the API server for each of them: exactly
//! those listed here. No secrets, no exec or attach to pods, no wildcards.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::plane::{apply, file, file_of, kubectl, kubectl_as, namespace, plane};
use crate::rendered::{EVERYTHING, render};

const CHILDREN: &[&str] = &["create", "delete", "get", "list", "patch", "watch"];
const WATCH: &[&str] = &["list", "watch"];
const READ: &[&str] = &["get", "list", "watch"];

type Right = (&'static str, &'static str, &'static [&'static str]);

const CONTROLLER: [Right; 12] = [
    ("albacore.dev", "inferencedeployments", WATCH),
    ("albacore.dev", "inferencedeployments/status", &["patch"]),
    (
        "albacore.dev",
        "inferencedeployments/finalizers",
        &["update"],
    ),
    ("", "configmaps", CHILDREN),
    ("", "services", CHILDREN),
    ("", "serviceaccounts", CHILDREN),
    ("apps", "deployments", CHILDREN),
    ("policy", "poddisruptionbudgets", CHILDREN),
    ("networking.k8s.io", "networkpolicies", CHILDREN),
    ("monitoring.coreos.com", "servicemonitors", CHILDREN),
    ("", "pods", &["list", "watch", "patch"]),
    ("events.k8s.io", "events", &["create", "patch", "list"]),
];

const OF_THE_CLUSTER: [Right; 2] = [
    ("albacore.dev", "nodeplacements", WATCH),
    ("", "namespaces", WATCH),
];

const LEASE: [Right; 2] = [
    ("coordination.k8s.io", "leases", &["create"]),
    (
        "coordination.k8s.io",
        "leases albacore-controller",
        &["get", "update"],
    ),
];

const AGENT: [Right; 6] = [
    ("", "pods", WATCH),
    ("", "nodes", WATCH),
    ("albacore.dev", "inferencedeployments", WATCH),
    (
        "albacore.dev",
        "nodeplacements",
        &["list", "watch", "create", "patch"],
    ),
    (
        "albacore.dev",
        "nodeplacements/status",
        &["create", "patch"],
    ),
    ("events.k8s.io", "events", &["create", "patch"]),
];

/// Every single permission as "group resource verb".
fn spread<'a>(rights: impl IntoIterator<Item = &'a Right>) -> BTreeSet<String> {
    let one = |(group, resource, verbs): &Right| {
        let words = verbs
            .iter()
            .map(|verb| format!("{group} {resource} {verb}"));
        words.collect::<Vec<_>>()
    };
    rights.into_iter().flat_map(one).collect()
}

/// The permissions of the owner of `config` in `namespace` according to the API server, beyond
/// those of every account.
fn rights(config: &Path, namespace: &str) -> BTreeSet<String> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    });
    let file = file_of(&[review]);
    let path = file.path().to_str().unwrap();
    // For validation, kubectl would list the definitions of resources, which no account here may
    // do.
    let arguments = ["create", "--validate=false", "-o", "json", "-f", path];
    let review: Value = serde_json::from_str(&kubectl_as(config, &arguments).unwrap()).unwrap();
    let list = |rule: &Value, field: &str| -> Vec<String> {
        let items = rule[field].as_array().into_iter().flatten();
        items
            .map(|item| item.as_str().unwrap().to_owned())
            .collect()
    };
    let mut found = BTreeSet::new();
    for rule in review["status"]["resourceRules"].as_array().unwrap() {
        let names = list(rule, "resourceNames").join(" ");
        for group in list(rule, "apiGroups") {
            for resource in list(rule, "resources") {
                for verb in list(rule, "verbs") {
                    let resource = format!("{resource} {names}");
                    found.insert(format!("{group} {} {verb}", resource.trim_end()));
                }
            }
        }
    }
    found
}

/// Applies the accounts and roles of the chart with these values.
pub(crate) fn set_up(values: &[&str]) {
    for name in ["albacore-system", "albacore-agent", "rights-1", "rights-2"] {
        namespace(name);
    }
    let of_rights = |object: &Value| {
        let kind = object["kind"].as_str().unwrap();
        kind == "ServiceAccount" || kind.contains("Role")
    };
    let objects: Vec<Value> = render(values).into_iter().filter(of_rights).collect();
    let roles = file_of(&objects);
    apply(&roles);
    let nobody =
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: nobody, namespace: rights-1}\n";
    let file = file(nobody);
    apply(&file);
}

fn account(namespace: &str, name: &str) -> std::path::PathBuf {
    plane()
        .kubeconfig_of_account(namespace, name, None)
        .unwrap()
}

fn beyond_everybody(config: &Path, namespace: &str) -> BTreeSet<String> {
    let everybody = rights(&account("rights-1", "nobody"), namespace);
    rights(config, namespace)
        .difference(&everybody)
        .cloned()
        .collect()
}

#[test]
fn the_accounts_have_the_rights_that_are_listed_and_no_other() {
    set_up(&EVERYTHING);
    let controller = account("albacore-system", "albacore-controller");
    let everywhere = || CONTROLLER.iter().chain(&OF_THE_CLUSTER);
    assert_eq!(
        beyond_everybody(&controller, "rights-1"),
        spread(everywhere())
    );
    let at_home = spread(everywhere().chain(&LEASE));
    assert_eq!(beyond_everybody(&controller, "albacore-system"), at_home);
    let agent = account("albacore-agent", "albacore-agent");
    assert_eq!(beyond_everybody(&agent, "rights-1"), spread(&AGENT));
    for right in at_home.iter().chain(&spread(&AGENT)) {
        let is_too_much = [
            "*",
            "secrets",
            "exec",
            "attach",
            "portforward",
            "ephemeral",
            "impersonate",
        ];
        assert!(
            !is_too_much.iter().any(|word| right.contains(word)),
            "{right}"
        );
    }
}

#[test]
fn a_controller_of_some_namespaces_has_no_rights_in_others() {
    let namespaced = [
        "--set",
        "controller.watchNamespaces={rights-2}",
        "--set",
        "fullnameOverride=walled",
    ];
    set_up(&namespaced);
    let controller = account("albacore-system", "walled-controller");
    let outside = spread(&OF_THE_CLUSTER);
    assert_eq!(beyond_everybody(&controller, "rights-1"), outside);
    let inside = spread(CONTROLLER.iter().chain(&OF_THE_CLUSTER));
    assert_eq!(beyond_everybody(&controller, "rights-2"), inside);
}

#[test]
fn users_of_a_namespace_may_do_with_deployments_what_they_may_do_with_everything() {
    set_up(&EVERYTHING);
    let aggregated = |role: &str| kubectl(&["get", "clusterrole", role, "-o", "json"]);
    crate::plane::wait("aggregation", || {
        aggregated("view").contains("inferencedeployments")
            && aggregated("edit").contains("inferencedeployments")
    });
    let role: Value = serde_json::from_str(&aggregated("view")).unwrap();
    let of_ours = |rule: &&Value| rule["apiGroups"] == json!(["albacore.dev"]);
    let rules = role["rules"].as_array().unwrap().iter().filter(of_ours);
    for rule in rules {
        assert_eq!(rule["verbs"], json!(READ), "viewers write nothing");
    }
}
