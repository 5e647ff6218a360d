//! The rendered chart: definitions of resources, labels, permissions in roles.

use std::collections::BTreeSet;

use albacore_api::InferenceDeployment;
use albacore_xtask::crds;
use albacore_xtask::images::{IMAGES, Source};
use albacore_xtask::manifests::{self, helm};
use serde_json::{Value, json};

use crate::root;

/// Values that enable all features.
pub(crate) const EVERYTHING: [&str; 10] = [
    "--set",
    "agent.enabled=true",
    "--set",
    "monitoring.serviceMonitor.enabled=true",
    "--set",
    "monitoring.prometheusRule.enabled=true",
    "--set",
    "monitoring.dashboard.enabled=true",
    "--set",
    "controller.replicas=2",
];

/// Sets of values that render different objects.
pub(crate) fn variants() -> [(&'static str, Vec<&'static str>); 4] {
    let observe = [&EVERYTHING[..], &["--set", "agent.enforcement=Observe"]].concat();
    let namespaced = [
        &EVERYTHING[..],
        &["--set", "controller.watchNamespaces={models,more}"],
        &["--set", "networkPolicy.apiServer.cidrs={10.0.0.1/32}"],
    ];
    [
        ("defaults", Vec::new()),
        ("everything", EVERYTHING.to_vec()),
        ("observe", observe),
        ("walled", namespaced.concat()),
    ]
}

pub(crate) fn render(values: &[&str]) -> Vec<Value> {
    helm::template(root(), "albacore-system", values).unwrap()
}

pub(crate) fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|o| o["kind"] == kind).collect()
}

#[test]
fn manifests_are_regenerated() {
    manifests::check(root()).unwrap();
}

#[test]
fn the_chart_passes_helms_own_lint() {
    for (name, values) in variants() {
        let chart = crate::chart();
        let mut arguments = vec!["lint", "--strict", chart.to_str().unwrap()];
        arguments.extend(values);
        helm::run(&arguments).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn the_chart_carries_the_definitions_and_helm_keeps_them() {
    let rendered = render(&[]);
    let mut found = of_kind(&rendered, "CustomResourceDefinition");
    found.sort_by_key(|object| object["metadata"]["name"].to_string());
    let committed = |(path, _): &(std::path::PathBuf, String)| path.starts_with("crds");
    let generated: Vec<_> = crds::generate().into_iter().filter(committed).collect();
    assert_eq!(found.len(), generated.len());
    for (object, (path, text)) in found.into_iter().zip(generated) {
        let wanted: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(object["spec"], wanted["spec"], "{}", path.display());
        assert_eq!(object["metadata"]["name"], wanted["metadata"]["name"]);
        let keep = json!({"helm.sh/resource-policy": "keep"});
        assert_eq!(object["metadata"]["annotations"], keep);
    }
}

/// Artifact Hub displays data from annotations, which do not affect rendering.
#[test]
fn the_annotations_for_artifact_hub_name_what_the_chart_installs() {
    let chart = std::fs::read_to_string(crate::chart().join("Chart.yaml")).unwrap();
    let chart: Value = serde_saphyr::from_str(&chart).unwrap();
    let list = |name: &str| -> Vec<Value> {
        let text = chart["annotations"][format!("artifacthub.io/{name}")].as_str();
        serde_saphyr::from_str(text.unwrap()).unwrap()
    };
    let rendered = render(&[]);
    let definitions = of_kind(&rendered, "CustomResourceDefinition");
    let kinds = |list: Vec<Value>, version: &str| -> BTreeSet<(String, String)> {
        let pair = |value: &Value| (value["kind"].to_string(), value[version].to_string());
        list.iter().map(pair).collect()
    };
    let wanted = definitions.iter().map(|object| {
        let spec = &object["spec"];
        let (kind, version) = (&spec["names"]["kind"], &spec["versions"][0]["name"]);
        (kind.to_string(), version.to_string())
    });
    assert_eq!(kinds(list("crds"), "version"), wanted.collect());
    let text = serde_json::to_string(&rendered).unwrap();
    for image in list("images") {
        let reference = image["image"].as_str().unwrap();
        assert!(text.contains(reference), "{reference} is not installed");
    }
    assert_eq!(list("images").len(), 4);
    for example in list("crdsExamples") {
        let deployment: Result<InferenceDeployment, _> = serde_json::from_value(example);
        deployment.unwrap();
    }
}

#[test]
fn every_object_carries_the_recommended_labels() {
    for (name, values) in variants() {
        for object in render(&values) {
            let labels = &object["metadata"]["labels"];
            for label in [
                "name",
                "instance",
                "version",
                "component",
                "part-of",
                "managed-by",
            ] {
                let label = format!("app.kubernetes.io/{label}");
                assert!(labels[&label].is_string(), "{name}: {label}: {object}");
            }
        }
    }
}

#[test]
fn services_disruption_budgets_and_policies_select_the_pods_they_are_for() {
    for (name, values) in variants() {
        let objects = render(&values);
        let pods: Vec<&Value> = objects
            .iter()
            .filter(|object| object["spec"]["template"].is_object())
            .collect();
        for object in &objects {
            let spec = &object["spec"];
            let selector = match object["kind"].as_str().unwrap() {
                "Service" => &spec["selector"],
                "PodDisruptionBudget" => &spec["selector"]["matchLabels"],
                "NetworkPolicy" => &spec["podSelector"]["matchLabels"],
                _ => continue,
            };
            let is_selected = |pod: &&&Value| {
                let labels = &pod["spec"]["template"]["metadata"]["labels"];
                pod["metadata"]["namespace"] == object["metadata"]["namespace"]
                    && selector
                        .as_object()
                        .unwrap()
                        .iter()
                        .all(|(k, v)| labels[k] == *v)
            };
            assert_eq!(
                pods.iter().filter(is_selected).count(),
                1,
                "{name}: {object}"
            );
        }
    }
}

#[test]
fn the_agents_pod_reaches_the_api_server_and_is_reached_on_the_ports_of_params() {
    let observe = render(&[
        "--set",
        "agent.enabled=true",
        "--set",
        "agent.enforcement=Observe",
    ]);
    let restricted = [
        "--set",
        "agent.enabled=true",
        "--set",
        "networkPolicy.apiServer.cidrs={10.0.0.1/32}",
    ];
    let anywhere = json!({"ports": [
        {"protocol": "TCP", "port": 443}, {"protocol": "TCP", "port": 6443}]});
    let mut there = anywhere.clone();
    there["to"] = json!([{"ipBlock": {"cidr": "10.0.0.1/32"}}]);
    for (objects, egress) in [(observe, anywhere), (render(&restricted), there)] {
        let daemon_set = of_kind(&objects, "DaemonSet")[0];
        let policies = of_kind(&objects, "NetworkPolicy");
        let is_agents =
            |p: &&&Value| p["metadata"]["namespace"] == daemon_set["metadata"]["namespace"];
        let policies: Vec<_> = policies.iter().filter(is_agents).collect();
        let [policy] = policies[..] else {
            panic!("{policies:?}")
        };
        let spec = &policy["spec"];
        assert_eq!(spec["policyTypes"], json!(["Ingress", "Egress"]));
        assert_eq!(spec["egress"], json!([egress]), "the API server alone");
        let entries = spec["ingress"].as_array().unwrap().iter();
        let ports: Vec<&Value> = entries.map(|entry| &entry["ports"]).collect();
        let port = |name: &str| json!([{"protocol": "TCP", "port": name}]);
        assert_eq!(ports, [&port("params"), &port("metrics")]);
        let of_params = &spec["ingress"][0]["from"];
        let pods_of_ours = json!([{"namespaceSelector": {}, "podSelector": {"matchExpressions": [
            {"key": "albacore.dev/deployment", "operator": "Exists"}]}}]);
        assert_eq!(of_params, &pods_of_ours);
        // Both names are ports of albacore-params; the agent in the same pod has none, and the pod
        // does not use the host network.
        let pod = &daemon_set["spec"]["template"]["spec"];
        assert!(pod["hostNetwork"].is_null(), "{pod}");
        let containers = pod["containers"].as_array().unwrap();
        for container in containers {
            let ports = container["ports"].as_array().cloned().unwrap_or_default();
            let names: Vec<&str> = ports.iter().filter_map(|p| p["name"].as_str()).collect();
            let wanted: &[&str] = match container["name"].as_str().unwrap() {
                "params" => &["params", "metrics"],
                _ => &[],
            };
            assert_eq!(names, wanted);
        }
        // albacore-params reads one pipe and writes the other; it cannot create, remove or rename
        // files next to them.
        let mounts = &containers[1]["volumeMounts"];
        let only = json!([{"name": "feed", "mountPath": "/run/albacore", "readOnly": true}]);
        assert_eq!(mounts, &only);
    }
}

#[test]
fn the_agent_and_its_release_do_not_share_a_namespace_by_mistake() {
    let chart = crate::chart();
    let values = ["--set", "agent.enabled=true"];
    let arguments = helm::template_arguments(chart.to_str().unwrap(), "albacore-agent", &values);
    let error = helm::run(&arguments).unwrap_err().to_string();
    assert!(error.contains("agent.namespace.create=false"), "{error}");
}

#[test]
fn the_images_are_those_that_make_images_builds() {
    let source = Source::read(root()).unwrap();
    let rendered = render(&[]);
    let pod = &of_kind(&rendered, "Deployment")[0]["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let image_of = |name: &str| {
        let image = IMAGES.iter().find(|image| image.name == name);
        image.unwrap()
    };
    let controller = image_of("albacore-controller");
    assert_eq!(container["image"], controller.reference(&source));
    assert_eq!(container["ports"][0]["containerPort"], controller.ports[0]);
    let security = &container["securityContext"];
    let user = format!("{}:{}", security["runAsUser"], security["runAsGroup"]);
    assert_eq!(user, controller.user);
    let server = image_of("albacore-server").reference(&source);
    assert_eq!(container["args"][0], format!("--server-image={server}"));
}
