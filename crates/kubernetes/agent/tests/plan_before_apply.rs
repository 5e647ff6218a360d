//! `albacore plan` and `albacore diff` predict, from a node's report, what its agent then does.
#![allow(clippy::unwrap_used, clippy::panic)] // tests fail by panicking

mod rig;

use std::path::PathBuf;
use std::process::Command;

use albacore_plan::parse_mapping_text;
use albacore_testbed::product_of;
use albacore_topology::parse_topology_text;
use rig::{NODE, Pod, Rig, wait};
use serde_json::{Value, json};

/// The command line tool, run as an administrator of the rig's cluster.
struct Cli<'a> {
    program: PathBuf,
    rig: &'a Rig,
}

impl Cli<'_> {
    /// Returns the exit code, standard output and standard error.
    fn run(&self, words: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(&self.program);
        command
            .args(words)
            .arg("--kubeconfig")
            .arg(self.rig.plane.kubeconfig());
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code().unwrap(),
            text(output.stdout),
            text(output.stderr),
        )
    }

    fn json(&self, code: i32, words: &[&str]) -> Value {
        let (ended, out, err) = self.run(&[words, &["-o", "json"]].concat());
        assert_eq!(ended, code, "{words:?}: {err}{out}");
        serde_json::from_str(&out).unwrap()
    }

    /// A manifest of a deployment like that of [`Rig::deploy`].
    fn file(&self, name: &str, workers: u16, threads: u16, more: &Value) -> String {
        let mut object = json!({"apiVersion": "albacore.dev/v1beta1",
            "kind": "InferenceDeployment", "metadata": {"name": name, "namespace": "default"},
            "spec": {"workers": workers, "threads": threads,
                "models": [{"name": "m", "uri": "pvc://models/m.ubj", "slo": {"latency": "25ms"}}]}});
        for (field, value) in more.as_object().into_iter().flatten() {
            object["spec"][field] = value.clone();
        }
        let path = self.rig.folder.path().join(format!("{name}.yaml"));
        std::fs::write(&path, object.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

/// The CPUs of a pod's threads in the node's report, ordered by worker.
fn reported(rig: &Rig, pod: &Pod) -> Vec<u64> {
    let entry = rig.entry(pod);
    let text = entry["mapping"]["cpus"].as_str().unwrap_or_default();
    let mapping = parse_mapping_text(text).unwrap();
    mapping.cpus.iter().map(|cpu| cpu.0.into()).collect()
}

fn cpus(assignments: &Value) -> Vec<u64> {
    let all = assignments.as_array().unwrap().iter();
    all.map(|one| one["cpu"].as_u64().unwrap()).collect()
}

#[test]
fn the_agent_applies_the_plan_computed_from_its_report() {
    let rig = Rig::start();
    let cli = Cli {
        program: product_of("albacore-cli", "albacore").unwrap(),
        rig: &rig,
    };
    rig.deploy("one", 1, 3, &json!({}));
    let one = rig.pod("one-1", "one", &["1", "3", "named"]);
    let agent = rig.agent(&[]);
    rig.wait_for_verified(&one, 3);
    let status = rig.status();
    let topology = parse_topology_text(status["cpuTopology"].as_str().unwrap()).unwrap();
    assert_eq!(status["topology"], topology.hash_hex());

    let two = new_pod(&cli, &one);
    let two = roll_out(&cli, &one, two);
    edits(&cli, &one, &two);
    refusals(&cli);
    assert!(agent.stop().success());
}

/// A new pod is placed as predicted.
fn new_pod(cli: &Cli<'_>, one: &Pod) -> Pod {
    let rig = cli.rig;
    let file = cli.file("two", 2, 1, &json!({"mode": "Compact"}));
    let report = cli.json(0, &["plan", "-f", &file, "--node", NODE]);
    let node = &report["deployments"][0]["nodes"][0];
    assert_eq!(
        (&node["node"], &node["why"]),
        (&json!(NODE), &Value::Null),
        "{report:#}"
    );
    let now = &node["now"][0];
    assert_eq!(
        (&now["pod"], &now["is_confirmed"]),
        (&json!("default/one-1"), &json!(true))
    );
    assert_eq!(now["is_of_deployment"], json!(false));
    assert_eq!(cpus(&now["assignments"]), reported(rig, one));
    let plan = &node["plan"];
    assert_eq!(plan["together_with"], json!(["default/one-1"]));
    let certificate = &plan["certificate"];
    assert!(certificate["bound"].as_i64().unwrap() >= certificate["objective"].as_i64().unwrap());

    let mut expected = reported(rig, one);
    for moved in plan["moves"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|p| p["moves"].as_array().unwrap())
    {
        let rank = moved["rank"].as_u64().unwrap() as usize;
        expected[rank] = moved["to"].as_u64().unwrap();
    }
    rig.deploy("two", 2, 1, &json!({"mode": "Compact"}));
    let two = rig.pod("two-1", "two", &["2", "1", "named"]);
    rig.wait_for_verified(&two, 2);
    assert_eq!(
        reported(rig, &two),
        cpus(&plan["assignments"]),
        "{report:#}"
    );
    rig.wait_for_verified(one, 3);
    assert_eq!(reported(rig, one), expected, "{report:#}");
    let orders = [one, &two].map(|pod| rig.entry(pod)["mapping"]["order"].clone());
    assert_eq!(orders, [json!(0), json!(1)]);
    two
}

/// The CPUs of a pod after the predicted difference.
fn after(diff: &Value, pod: &str, before: &[u64], threads: usize) -> Vec<u64> {
    let pods = diff["nodes"][0]["pods"].as_array().unwrap();
    let diff = pods.iter().find(|entry| entry["pod"] == pod).unwrap();
    assert_eq!(diff["is_confirmed"], true, "{diff:#}");
    let at = |one: &Value, threads: usize| {
        let number = |field: &str| one[field].as_u64().unwrap() as usize;
        number("worker") * threads + number("rank")
    };
    let workers = 2;
    let mut cpus = vec![None; workers * threads];
    let old = before.len() / workers;
    for (index, cpu) in before
        .iter()
        .enumerate()
        .filter(|(index, _)| index % old < threads)
    {
        cpus[index / old * threads + index % old] = Some(*cpu);
    }
    for (list, field) in [("moves", "to"), ("added", "cpu")] {
        for one in diff[list].as_array().unwrap() {
            cpus[at(one, threads)] = Some(one[field].as_u64().unwrap());
        }
    }
    cpus.into_iter().map(|cpu| cpu.unwrap()).collect()
}

/// More threads: a new pod starts before the old one ends, as in a rolling update.
fn roll_out(cli: &Cli<'_>, one: &Pod, two: Pod) -> Pod {
    let rig = cli.rig;
    let more = json!({"mode": "Compact"});
    let file = cli.file("two", 2, 2, &more);
    let report = cli.json(1, &["diff", "-f", &file, "--node", NODE]);
    assert_eq!(report["restarting_fields"], json!(["spec.threads"]));
    let expected = after(&report, "default/two-1", &reported(rig, &two), 2);
    rig.deploy("two", 2, 2, &more);
    let new = rig.pod("two-2", "two", &["2", "2", "named"]);
    rig.wait_for_verified(&new, 4);
    rig.kubectl(&["delete", "pod", "two-1", "--grace-period=0", "--force"]);
    drop(two);
    wait("the old pod is gone", || {
        rig.status()["pods"].as_array().unwrap().len() == 2
    });
    rig.wait_for_verified(&new, 4);
    rig.wait_for_verified(one, 3);
    assert_eq!(reported(rig, &new), expected, "{report:#}");
    new
}

/// An edit has the predicted effect.
fn edits(cli: &Cli<'_>, one: &Pod, two: &Pod) {
    let rig = cli.rig;
    let file = cli.file("two", 2, 2, &json!({"mode": "Compact"}));
    let report = cli.json(0, &["diff", "-f", &file]);
    assert_eq!(
        (&report["changes"], &report["restarting_fields"]),
        (&json!(false), &json!([]))
    );
    let pods = report["nodes"][0]["pods"].as_array().unwrap();
    assert_eq!(pods.len(), 2);
    assert!(
        pods.iter().all(|pod| pod["is_confirmed"] == true),
        "{report:#}"
    );

    // Masks that are given back, and the only remaining pod.
    let none = json!({"mode": "Compact", "placement": {"policy": "None"}});
    let file = cli.file("two", 2, 2, &none);
    let report = cli.json(1, &["diff", "-f", &file]);
    let pods = report["nodes"][0]["pods"].as_array().unwrap();
    let of = |name: &str| pods.iter().find(|pod| pod["pod"] == name).unwrap();
    assert_eq!(
        of("default/two-2")["removed"].as_array().unwrap().len(),
        4,
        "{report:#}"
    );
    let mut expected = reported(rig, one);
    for moved in of("default/one-1")["moves"].as_array().unwrap() {
        expected[moved["rank"].as_u64().unwrap() as usize] = moved["to"].as_u64().unwrap();
    }
    rig.deploy("two", 2, 2, &none);
    two.wait_until_free("0-1");
    wait("the report has no plan of it", || {
        rig.entry(two)["mapping"].is_null()
    });
    rig.wait_for_verified(one, 3);
    assert_eq!(reported(rig, one), expected, "{report:#}");
}

fn refusals(cli: &Cli<'_>) {
    let file = cli.file("three", 1, 1, &json!({}));
    let (code, out, err) = cli.run(&["plan", "-f", &file, "--node", "node-9"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(
        err.contains("no node \"node-9\"") && err.contains(NODE),
        "{err}"
    );
    let (code, _, err) = cli.run(&["diff", "-f", &file]);
    assert_eq!(code, 2, "{err}");
    assert!(
        err.contains("\"three\" in namespace \"default\" to compare with"),
        "{err}"
    );
}
