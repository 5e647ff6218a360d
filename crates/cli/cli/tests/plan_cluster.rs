//! `albacore plan` for a cluster and `albacore diff` against a real API server, with reports in the
//! format of agents. Tests of the agent verify that the agent does what is printed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail loudly")]

mod command;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use albacore_testbed::{ControlPlane, Options};
use command::{CommandOutput, albacore, assert_refused};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// 16 CPUs: 8 cores of 2 CPUs, two L3 caches.
const TOPOLOGY: &str = "cpus=0-15 core=0-7x2 l3=0-1*4x2 numa=0*16";

/// Age of the report of the silent node's agent, in seconds.
const SILENT_AGE: i64 = 75;

/// A control plane with objects.
struct Filled {
    plane: ControlPlane,
    folder: tempfile::TempDir,
}

impl Filled {
    fn put(&self, arguments: &[&str], object: &Value) {
        let path = self.folder.path().join("object.json");
        std::fs::write(&path, object.to_string()).unwrap();
        let file = ["-f", path.to_str().unwrap()];
        let output = self.plane.kubectl(&[arguments, &file].concat()).unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {stderr}");
    }

    /// Creates an object, then its status.
    fn create(&self, object: &Value) {
        self.put(&["apply", "--server-side"], object);
        if object["status"].is_object() {
            let status = [
                "apply",
                "--server-side",
                "--force-conflicts",
                "--subresource=status",
            ];
            self.put(&status, object);
        }
    }

    /// Writes the report of a node whose agent read masks back `age` seconds ago.
    fn report(&self, node: &str, age: i64, more: &Value) {
        let now = Timestamp::from_second(Timestamp::now().as_second() - age).unwrap();
        let mut status = json!({"planned": 0, "verified": 0, "lastVerificationTime": now,
            "cpuTopology": TOPOLOGY, "pods": []});
        for (field, value) in more.as_object().unwrap() {
            status[field] = value.clone();
        }
        if status["cpuTopology"].is_null() {
            status.as_object_mut().unwrap().remove("cpuTopology");
        }
        self.create(
            &json!({"apiVersion": "albacore.dev/v1alpha1", "kind": "NodePlacement",
            "metadata": {"name": node}, "status": status}),
        );
    }

    fn file(&self, name: &str, spec: &Value) -> PathBuf {
        let path = self.folder.path().join(format!("{name}.yaml"));
        std::fs::write(&path, deployment(name, spec).to_string()).unwrap();
        path
    }

    /// Runs `albacore` as the user of this kubeconfig.
    fn run_as(&self, kubeconfig: &Path, line: &str, file: &Path) -> CommandOutput {
        let words = line.split_whitespace().map(str::to_owned);
        let more = [
            "-f",
            file.to_str().unwrap(),
            "--kubeconfig",
            kubeconfig.to_str().unwrap(),
        ];
        albacore(&words.chain(more.map(str::to_owned)).collect::<Vec<_>>())
    }

    fn run(&self, line: &str, file: &Path) -> CommandOutput {
        self.run_as(self.plane.kubeconfig(), line, file)
    }
}

fn deployment(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "albacore.dev/v1beta1", "kind": "InferenceDeployment",
        "metadata": {"name": name}, "spec": spec})
}

fn spec(more: &Value) -> Value {
    let mut spec = json!({"workers": 2, "threads": 3,
        "models": [{"name": "m", "uri": "pvc://models/m.ubj"}]});
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    spec
}

/// A pod's entry in a report; the hash matches the mapping.
fn entry(pod: &str, mapping: &str, plan: &str) -> Value {
    json!({"pod": pod, "workers": 2, "workersVerified": 2, "planned": 6, "verified": 6,
        "cpuset": "0-15", "isolation": "None", "plan": plan,
        "mapping": {"cpus": mapping, "mode": "Scatter", "order": 0}})
}

fn filled() -> Filled {
    let mut plane = ControlPlane::start(&Options::default()).unwrap();
    let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../crds");
    plane.serve_crds(&crds).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let filled = Filled { plane, folder };
    filled.create(&json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "default", "namespace": "default"}}));
    let node = |name: &str, more: Value| {
        let allocatable = json!({"cpu": "15500m", "memory": "8Gi", "pods": "110"});
        filled.create(
            &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": more, "status": {"allocatable": allocatable, "capacity": allocatable}}),
        );
    };
    node("cordoned", json!({"unschedulable": true}));
    node("empty", json!({}));
    node("bare", json!({}));
    filled.report("empty", 0, &json!({}));
    filled.report("cordoned", 0, &json!({}));
    let busy = json!({"pods": [entry("default/fraud-a", "2x3:0-4/2,1-5/2", "00000000")]});
    filled.report("busy", 0, &busy);
    filled.report("silent", SILENT_AGE, &json!({}));
    filled.report("old", 0, &json!({"cpuTopology": null}));
    filled.create(&deployment("fraud", &spec(&json!({}))));
    filled.create(&json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "fraud-a", "labels": {"albacore.dev/deployment": "fraud"}},
        "spec": {"nodeName": "busy", "containers": [{"name": "server", "image": "x"}],
            "automountServiceAccountToken": false}}));
    filled
}

fn assert_output(ran: &CommandOutput, code: i32, parts: &[&str]) {
    assert_eq!(ran.code, code, "{ran:?}");
    for part in parts {
        assert!(
            ran.out.contains(part),
            "{part:?} is not in\n{}\n{}",
            ran.out,
            ran.err
        );
    }
}

#[test]
fn every_node_has_its_plan_or_the_reason_why_there_is_none() {
    let begun = Instant::now();
    let filled = filled();
    let file = filled.file("fraud", &spec(&json!({})));
    let shown = filled.run("plan --cluster", &file);
    assert_output(
        &shown,
        0,
        &[
            "default/fraud: 2 workers x 3 threads, scatter",
            "node bare: it has no NodePlacement: no agent of Albacore runs there",
            "node busy: a new pod on cpus 0-15\n  worker 0   cpus ",
            "  with       default/fraud-a\n",
            "now        default/fraud-a, of this deployment: not confirmed by the agent's plan hash\n",
            "worker 1   cpus 1* 3 5",
            "node cordoned: it is unschedulable (kubectl cordon)",
            "node empty: a new pod on cpus 0-15\n  worker 0   cpus ",
            "optimal    yes",
            "assumed    no pod in the report shows which cpus the kubelet shares between pods",
            "node old: its agent publishes no topology: it is of an older version",
        ],
    );
    let (_, age) = shown
        .out
        .split_once("node silent: unknown: its agent reported last ")
        .unwrap();
    let age: i64 = age.split(' ').next().unwrap().parse().unwrap();
    // The reported time has a resolution of one second.
    let oldest = SILENT_AGE + 1 + i64::try_from(begun.elapsed().as_secs()).unwrap();
    assert!((SILENT_AGE..=oldest).contains(&age), "{age} s");
    // The same with a local machine, and under the name that kubectl looks for.
    let json = filled.run("plan --node empty -o json", &file);
    let json: Value = serde_json::from_str(&json.out).unwrap();
    let nodes = json["deployments"][0]["nodes"].as_array().unwrap();
    assert_eq!((nodes.len(), &json["unread"]), (1, &json!([])));
    let local = [
        "plan",
        "--topology",
        "l3:2 core:4 pu:2",
        "--workers",
        "2",
        "--threads",
        "3",
    ];
    let local = albacore(&[&local[..], &["--mode", "scatter", "--output", "json"]].concat());
    let local: Value = serde_json::from_str(&local.out).unwrap();
    let certificate = &nodes[0]["plan"]["certificate"];
    assert_eq!(
        certificate["objective"], local["objective"],
        "cpus have other numbers"
    );
    as_plugin_of_kubectl(&filled, &file);
    with_fewer_rights(&filled, &file);
    resources_that_do_not_fit(&filled);
    refusals(&filled, &file);
}

fn as_plugin_of_kubectl(filled: &Filled, file: &Path) {
    let plugin = filled.folder.path().join("kubectl-albacore");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_albacore"), &plugin).unwrap();
    let file = file.to_str().unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new(&plugin);
        command
            .args(words)
            .env("KUBECONFIG", filled.plane.kubeconfig());
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert!(run(&["plan", "-f", file]).contains("node empty: a new pod"));
    let here = run(&["plan", "-f", file, "--topology", "l3:2 core:4 pu:2"]);
    assert!(
        here.contains("machine") && !here.contains("node empty"),
        "{here}"
    );
}

fn with_fewer_rights(filled: &Filled, file: &Path) {
    let plane = &filled.plane;
    let nobody = plane.kubeconfig_of("nobody", None).unwrap();
    let refused = filled.run_as(&nobody, "plan --cluster", file);
    assert_refused(
        &refused,
        1,
        &["nodeplacements", "get and list", "plan-before-apply.md"],
    );
    let refused = filled.run_as(&nobody, "diff", file);
    assert_refused(&refused, 2, &["inferencedeployments", "nobody"]);
    filled.create(
        &json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "reader"}, "rules": [{"apiGroups": ["albacore.dev"],
            "verbs": ["get", "list"], "resources": ["nodeplacements"]}]}),
    );
    filled.create(&json!({"apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding", "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}]}));
    let reader = plane.kubeconfig_of("reader", None).unwrap();
    let shown = filled.run_as(&reader, "plan --cluster", file);
    // Without access to nodes and pods it is unknown which nodes are unschedulable and to which
    // deployment a pod belongs.
    let parts = [
        "node cordoned: a new pod",
        "not read: ",
        "nodes",
        "pods",
        "now        default/fraud-a: ",
    ];
    assert_output(&shown, 0, &parts);
}

fn resources_that_do_not_fit(filled: &Filled) {
    let with = |cpu: &str| {
        let resources = json!({"limits": {"cpu": cpu, "memory": "1Gi"}});
        let file = filled.file("large", &spec(&json!({"resources": resources})));
        filled.run("plan --node empty", &file)
    };
    let parts = ["node empty: insufficient cpus: the pod requests 16, 15.5 are allocatable"];
    assert_output(&with("16"), 0, &parts);
    let parts = [
        "2 workers x 2 threads",
        "the cpu limit lets 2 of 3 threads of each worker run at once",
        "the pod asks for 4 whole cpus and is Guaranteed",
    ];
    assert_output(&with("4"), 0, &parts);
}

fn refusals(filled: &Filled, file: &Path) {
    let run = |line: &str| filled.run(line, file);
    let missing = run("plan --node node-9");
    assert_refused(
        &missing,
        1,
        &["--node node-9", "there are bare, busy, cordoned"],
    );
    assert_refused(&run("diff --node node-9"), 2, &["--node node-9", "busy"]);
    assert_refused(&run("plan --cluster --workers 2"), 64, &["--workers"]);
    assert_refused(
        &run("plan --node busy --topology core:2"),
        64,
        &["--topology", "--node"],
    );
    assert_refused(
        &run("plan --cluster -o svg"),
        64,
        &["--output svg", "text or json"],
    );
    assert_refused(&run("diff -o svg"), 64, &["--output svg"]);
    let path = file.display();
    let cpus = albacore(&["plan", "--cluster", "-f", &format!("{path}@0-3")]);
    assert_refused(&cpus, 64, &["@0-3", "leave @0-3 out"]);
    let none = filled.folder.path().join("none.yaml");
    assert_refused(
        &filled.run("diff", &none),
        64,
        &["none.yaml", "cannot be read"],
    );
    std::fs::write(&none, "kind: Pod\napiVersion: v1\n").unwrap();
    assert_refused(
        &filled.run("plan --cluster", &none),
        64,
        &["none.yaml:", "InferenceDeployment"],
    );
    let unknown = filled.file("unknown", &spec(&json!({"workers2": 2})));
    assert_refused(
        &filled.run("diff", &unknown),
        64,
        &["spec.workers2", "workers"],
    );
    let other = filled.file("other", &spec(&json!({})));
    assert_refused(
        &filled.run("diff", &other),
        2,
        &["\"other\"", "to compare with"],
    );
    assert_refused(
        &filled.run("diff -n elsewhere", file),
        2,
        &["namespace \"elsewhere\""],
    );
    let nowhere = filled.folder.path().join("nowhere");
    let lost = filled.run_as(&nowhere, "plan --cluster", file);
    assert_refused(&lost, 1, &["nowhere"]);
}

#[test]
fn an_edit_is_shown_before_it_is_applied() {
    let filled = filled();
    let diff = |more: &Value, line: &str| filled.run(line, &filled.file("fraud", &spec(more)));
    let same = diff(&json!({}), "diff");
    assert_output(
        &same,
        0,
        &[
            "default/fraud: nothing would move",
            "pod        default/fraud-a",
        ],
    );
    assert!(!same.out.contains("node empty"), "{}", same.out);
    // Moves whose gain is lower than their cost are not made.
    let kept = diff(&json!({"mode": "Compact"}), "diff");
    assert_output(
        &kept,
        0,
        &[
            "nothing would move",
            "objective  550 -> -450 cycles of at most ",
        ],
    );
    let far = json!({"placement": {"distances": {"numa": 5000}}});
    let parts = [
        "threads would move, come or go",
        "objective  550 -> ",
        "moves ",
        " cpu 1->",
    ];
    assert_output(&diff(&far, "diff"), 1, &parts);
    let restarted = diff(&json!({"threads": 2}), "diff -o json");
    let report: Value = serde_json::from_str(&restarted.out).unwrap();
    assert_eq!((restarted.code, &report["changes"]), (1, &json!(true)));
    assert_eq!(report["restarting_fields"], json!(["spec.threads"]));
    let pod = &report["nodes"][0]["pods"][0];
    assert_eq!(
        (
            pod["removed"].as_array().unwrap().len(),
            &pod["is_confirmed"]
        ),
        (2, &json!(false))
    );
    let main = diff(&json!({"placement": {"mainThread": "WorkerSet"}}), "diff");
    assert_output(
        &main,
        1,
        &["spec.placement.mainThread differs", "nothing moves"],
    );
    let more = diff(&json!({"replicas": 3}), "diff");
    assert_output(&more, 0, &["spec.replicas differs"]);

    // The state of a node with a silent agent is unknown.
    filled.report("busy", 90, &json!({}));
    let unknown = diff(&json!({"mode": "Compact"}), "diff");
    assert_eq!(unknown.code, 2, "{unknown:?}");
    assert!(unknown.out.contains("node busy: unknown") && unknown.err.contains("busy"));
    let elsewhere = diff(&json!({"mode": "Compact"}), "diff --node empty");
    assert_output(&elsewhere, 0, &["no pod of it runs on these nodes"]);
}
