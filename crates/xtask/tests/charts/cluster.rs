//! A real API server accepts all rendered objects without warnings, and helm installs, upgrades and
//! uninstalls the chart.

use albacore_testbed::{ControlPlane, Options};
use albacore_xtask::manifests::helm;
use serde_json::{Value, json};

use crate::plane::{apply, file, file_of, kubectl, namespace, plane, run, wait};
use crate::rendered::{EVERYTHING, render, variants};
use crate::{chart, root};

/// API groups that are installed by other projects.
const FOREIGN: [&str; 11] = [
    "argoproj.io",
    "gateway.envoyproxy.io",
    "gateway.networking.k8s.io",
    "gateway.networking.x-k8s.io",
    "helm.toolkit.fluxcd.io",
    "keda.sh",
    "kustomize.config.k8s.io",
    "kustomize.toolkit.fluxcd.io",
    "networking.istio.io",
    "serving.kserve.io",
    "source.toolkit.fluxcd.io",
];

fn group(object: &Value) -> &str {
    let version = object["apiVersion"].as_str().unwrap();
    version.split_once('/').map_or("", |(group, _)| group)
}

/// Minimal kinds of the Prometheus operator: they exist and store what is applied.
pub(crate) fn serve_prometheus_kinds() {
    let definition = |kind: &str| {
        let plural = format!("{}s", kind.to_lowercase());
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.monitoring.coreos.com")},
            "spec": {
                "group": "monitoring.coreos.com",
                "names": {"kind": kind, "plural": plural},
                "scope": "Namespaced",
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    }},
                }],
            },
        })
    };
    let kinds = ["PodMonitor", "PrometheusRule", "ServiceMonitor"];
    let file = file_of(&kinds.map(definition));
    apply(&file);
    let is_served = || {
        ["podmonitors", "prometheusrules", "servicemonitors"]
            .iter()
            .all(|kind| run("kubectl", &["get", kind, "-A"]).is_ok())
    };
    wait("the kinds of the Prometheus operator", is_served);
}

/// Asserts by a dry run that the API server accepts the objects without warnings.
pub(crate) fn dry_run(name: &str, objects: &[Value]) {
    let file = file_of(objects);
    let arguments = [
        "apply",
        "--dry-run=server",
        "--server-side",
        "--force-conflicts",
        "--validate=strict",
        "-f",
        file.path().to_str().unwrap(),
    ];
    let output = plane().kubectl(&arguments).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {said}");
    // Objects that another test applied client-side are not the fault of these objects.
    let is_warning = |line: &&str| line.contains("Warning") && !line.contains("failed to migrate");
    assert_eq!(said.lines().find(is_warning), None, "{name}");
}

#[test]
fn the_api_server_takes_everything_that_is_rendered() {
    serve_prometheus_kinds();
    for name in ["albacore-system", "albacore-agent", "models", "more"] {
        namespace(name);
    }
    // The pod of a hook needs existing ServiceAccounts: the test of the release runs it.
    let is_hook = |object: &Value| object["metadata"]["annotations"]["helm.sh/hook"].is_string();
    for (name, values) in variants() {
        let mut objects = render(&values);
        objects.retain(|object| !is_hook(object));
        dry_run(name, &objects);
    }
}

#[test]
fn the_api_server_takes_the_manifests_and_the_examples() {
    serve_prometheus_kinds();
    for name in ["albacore-system", "argocd", "flux-system"] {
        namespace(name);
    }
    let mut folders = vec![root().join("manifests")];
    let mut taken = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("resource_customizations") {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "yaml") {
                let text = std::fs::read_to_string(&path).unwrap();
                let objects = helm::objects(&text).unwrap();
                let (foreign, ours): (Vec<Value>, Vec<Value>) = objects
                    .into_iter()
                    .partition(|object| FOREIGN.contains(&group(object)));
                taken += ours.len();
                assert!(ours.len() + foreign.len() > 0, "{}", path.display());
                if !ours.is_empty() {
                    dry_run(&path.display().to_string(), &ours);
                }
            }
        }
    }
    assert!(taken > 15, "{taken} objects");
}

#[test]
fn kustomize_makes_the_plain_install() {
    let built = kubectl(&["kustomize", root().join("manifests").to_str().unwrap()]);
    let text = |name| std::fs::read_to_string(root().join("manifests").join(name)).unwrap();
    let plain = format!("{}\n---\n{}", text("crds.yaml"), text("install.yaml"));
    let sorted = |text: &str| {
        let mut objects: Vec<String> = helm::objects(text)
            .unwrap()
            .iter_mut()
            .map(|object| {
                object.sort_all_objects();
                object.to_string()
            })
            .collect();
        objects.sort();
        objects
    };
    assert_eq!(sorted(&built), sorted(&plain));
}

const RELEASE_NAMESPACE: &str = "helm-test";

fn helm_release(arguments: &[&str]) -> String {
    let arguments = [arguments, &["--namespace", RELEASE_NAMESPACE]].concat();
    run("helm", &arguments).unwrap_or_else(|error| panic!("helm {arguments:?}: {error}"))
}

fn get(path: &[&str]) -> Result<Value, String> {
    let arguments = [&["get", "-n", RELEASE_NAMESPACE, "-o", "json"], path].concat();
    run("kubectl", &arguments).map(|text| serde_json::from_str(&text).unwrap())
}

/// The server of `fraud` runs another image than the chart's: the restart is announced before the
/// upgrade.
fn an_upgrade_is_announced_before_it_is_made(upgrade: &[&str]) {
    let running = json!({"status": {"serverImage": "r.io/albacore-server:old"}}).to_string();
    let patch = [
        "patch",
        "-n",
        "default",
        "infd",
        "fraud",
        "--subresource=status",
    ];
    kubectl(&[&patch[..], &["--type=merge", "-p", &running]].concat());
    let dry = helm_release(&[upgrade, &["--dry-run=server"]].concat());
    let row = "default/fraud (r.io/albacore-server:old)";
    assert!(dry.contains("1 deployment runs another server"), "{dry}");
    assert!(dry.contains(row), "{dry}");
}

/// Without a kubelet the check does not run; the test verifies that its pod is admitted and that
/// helm waits for it.
fn the_installation_is_checked(name: &str) {
    let finish = std::thread::spawn(|| {
        wait("the pod of helm test", || {
            get(&["pod", "inference-albacore-check"]).is_ok()
        });
        let done = json!({"status": {"phase": "Succeeded"}}).to_string();
        let pod = [
            "patch",
            "-n",
            RELEASE_NAMESPACE,
            "pod",
            "inference-albacore-check",
        ];
        kubectl(
            &[
                &pod[..],
                &["--subresource=status", "--type=merge", "-p", &done],
            ]
            .concat(),
        );
    });
    let tested = helm_release(&["test", name]);
    assert!(tested.contains("Succeeded"), "{tested}");
    finish.join().unwrap();
}

#[test]
fn helm_installs_upgrades_and_removes_the_operator_and_keeps_objects_of_users() {
    serve_prometheus_kinds();
    let labeled = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {RELEASE_NAMESPACE}\n  \
         labels: {{pod-security.kubernetes.io/enforce: restricted}}\n"
    );
    let labeled = file(&labeled);
    apply(&labeled);
    let chart = chart();
    let chart = chart.to_str().unwrap();
    // The definitions were applied by kubectl: helm adopts them on request.
    let name = "inference";
    let agent = ["--set", "agent.namespace.name=helm-test-agent"];
    let without = ["--take-ownership", "--set", "agent.enabled=false"];
    let notes = helm_release(&[&["install", name, chart], &without[..]].concat());
    assert!(
        notes.contains("rollout status deployment/inference-albacore-controller"),
        "{notes}"
    );
    wait("a pod that PodSecurity restricted lets in", || {
        get(&["pods"]).is_ok_and(|pods| pods["items"].as_array().is_some_and(|p| p.len() == 1))
    });
    let deployment = root().join("manifests/examples/autoscaling/deployment.yaml");
    kubectl(&["apply", "-n", "default", "-f", deployment.to_str().unwrap()]);

    an_upgrade_is_announced_before_it_is_made(&[&["upgrade", name, chart], &without[1..]].concat());
    the_installation_is_checked(name);
    helm_release(&[&["upgrade", name, chart], &EVERYTHING[..], &agent].concat());
    let controller = get(&["deployment", "inference-albacore-controller"]).unwrap();
    assert_eq!(controller["spec"]["replicas"], 2);
    let agents = [
        "-n",
        "helm-test-agent",
        "daemonset",
        "inference-albacore-agent",
    ];
    get(&agents).unwrap();
    helm_release(&["rollback", name, "1"]);
    assert!(
        get(&agents).is_err(),
        "the agent is gone with the values that asked for it"
    );

    helm_release(&["uninstall", name, "--wait"]);
    for kind in [
        "deployment",
        "role",
        "service",
        "networkpolicy",
        "poddisruptionbudget",
    ] {
        let left = get(&[kind]).unwrap();
        assert_eq!(left["items"], json!([]), "{kind}");
    }
    let roles = kubectl(&["get", "clusterroles,clusterrolebindings", "-o", "name"]);
    assert!(!roles.contains("inference-albacore"), "{roles}");
    kubectl(&["get", "-n", "default", "inferencedeployment", "fraud"]);
    kubectl(&["get", "crd", "nodeplacements.albacore.dev"]);
    kubectl(&["delete", "-n", "default", "inferencedeployment", "fraud"]);
}

/// The commands of docs/operate/install.md for existing objects. Uses its own control plane,
/// because it removes namespaces and accounts that other tests use.
#[test]
fn helm_takes_over_what_a_former_release_or_kubectl_left() {
    let plane = ControlPlane::start(&Options::default()).unwrap();
    let chart = chart();
    let chart = chart.to_str().unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let output = plane.run(program, arguments).unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
    };
    let apply = |name: &str| {
        let path = root().join("manifests").join(name);
        let path = path.to_str().unwrap();
        run("kubectl", &["apply", "--server-side", "-f", path]).unwrap();
    };
    let helm = |arguments: &[&str]| {
        let common = ["--namespace", "helm-adopts", "--create-namespace"];
        let more = ["--set", "agent.enabled=false"];
        run("helm", &[arguments, &common, &more].concat())
    };
    let uninstall = |name: &str, namespace: &str| {
        run("helm", &["uninstall", name, "--namespace", namespace]).unwrap();
    };
    // A first install finds neither the definitions nor objects of their kinds.
    helm(&["install", "zeroth", chart]).unwrap();
    uninstall("zeroth", "helm-adopts");
    // The definitions exist, applied by kubectl or by a release with another name.
    let definitions = root().join("manifests/crds.yaml");
    let definitions = definitions.to_str().unwrap();
    run("kubectl", &["delete", "-f", definitions]).unwrap();
    apply("crds.yaml");
    wait("the definitions are served", || {
        run("kubectl", &["get", "infd", "-A"]).is_ok()
    });
    let refused = helm(&["install", "first", chart]).unwrap_err();
    assert!(refused.contains("invalid ownership metadata"), "{refused}");
    helm(&["install", "first", chart, "--take-ownership"]).unwrap();
    uninstall("first", "helm-adopts");
    let refused = helm(&["install", "second", chart]).unwrap_err();
    assert!(refused.contains("invalid ownership metadata"), "{refused}");
    helm(&["install", "second", chart, "--take-ownership"]).unwrap();
    uninstall("second", "helm-adopts");
    // Without the definitions, nothing has to be adopted.
    helm(&["install", "third", chart, "--set", "crds.install=false"]).unwrap();
    uninstall("third", "helm-adopts");

    // On top of the plain install: the release `albacore` in its namespace has the same names.
    apply("install.yaml");
    let install = [
        "install",
        "albacore",
        chart,
        "--namespace",
        "albacore-system",
    ];
    let refused = run("helm", &install).unwrap_err();
    assert!(refused.contains("invalid ownership metadata"), "{refused}");
    run("helm", &[&install[..], &["--take-ownership"]].concat()).unwrap();
    let manager = "jsonpath={.metadata.labels.app\\.kubernetes\\.io/managed-by}";
    let arguments = [
        "get",
        "-n",
        "albacore-system",
        "deployment",
        "albacore-controller",
    ];
    let by = run("kubectl", &[&arguments[..], &["-o", manager]].concat()).unwrap();
    assert_eq!(by, "Helm");
}

#[test]
fn the_plain_install_is_removed_without_the_definitions() {
    let text = |name| std::fs::read_to_string(root().join("manifests").join(name)).unwrap();
    for name in ["install.yaml", "observe.yaml"] {
        let objects = helm::objects(&text(name)).unwrap();
        let is_definition = |object: &Value| object["kind"] == "CustomResourceDefinition";
        assert!(!objects.iter().any(is_definition), "{name}");
        assert!(
            !objects.iter().any(|o| o["kind"] == "Pod"),
            "{name}: a hook of Helm's"
        );
        // It also contains no object whose deletion deletes others, except its own namespaces.
        let namespaces: Vec<&Value> = objects
            .iter()
            .filter(|o| o["kind"] == "Namespace")
            .collect();
        assert_eq!(namespaces.len(), 2, "{name}");
    }
    let definitions = helm::objects(&text("crds.yaml")).unwrap();
    assert_eq!(definitions.len(), 2);
}

#[test]
fn the_api_server_refuses_what_the_schema_of_the_values_lets_pass() {
    namespace("albacore-system");
    let affinity = r#"controller.affinity={"nodeAffinity": {"mistyped": 1}}"#;
    let rendered = render(&["--set-json", affinity, "--set", "crds.install=false"]);
    let file = file_of(&rendered);
    let arguments = [
        "apply",
        "--dry-run=server",
        "-f",
        file.path().to_str().unwrap(),
    ];
    let said = run("kubectl", &arguments).unwrap_err();
    assert!(said.contains("mistyped"), "{said}");
}
