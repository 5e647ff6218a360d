//! Tests of the versions of the definition: an object reads the same in each, and survives an
//! upgrade from the previous release and a rollback to it. A real API server converts.
// Functions outside of `#[test]` functions are test code, too.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use albacore_api::{inference_deployment_crd, read_deployment};
use albacore_testbed::{ControlPlane, Options};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

mod sample;
use sample::{sample, sample_of_auto};

const VERSIONS: [&str; 2] = ["v1alpha1", "v1beta1"];

/// Number of objects that are written in each version.
const OBJECTS: usize = 60;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// The definition of release 0.1.0.
fn released() -> PathBuf {
    root().join("tests/data/releases/0.1.0/inferencedeployments.albacore.dev.yaml")
}

#[track_caller]
fn kubectl(plane: &ControlPlane, words: &[&str]) -> String {
    let output = plane.kubectl(words).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "kubectl {words:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs `kubectl` with `words` and these objects as its file.
#[track_caller]
fn send(plane: &ControlPlane, words: &[&str], objects: &[Value]) -> String {
    let file = tempfile::NamedTempFile::with_suffix(".json").unwrap();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    std::fs::write(file.path(), list.to_string()).unwrap();
    kubectl(
        plane,
        &[words, &["-f", file.path().to_str().unwrap()]].concat(),
    )
}

/// All deployments as the API server returns them in a version.
fn listed(plane: &ControlPlane, version: &str) -> Vec<Value> {
    let kind = format!("inferencedeployments.{version}.albacore.dev");
    let list: Value = serde_json::from_str(&kubectl(plane, &["get", &kind, "-o", "json"])).unwrap();
    let items = list["items"].as_array().unwrap().clone();
    let version = format!("albacore.dev/{version}");
    assert!(items.iter().all(|item| item["apiVersion"] == *version));
    items
}

/// The spec and the generation, which counts changes of the spec, of each object by name.
fn written(objects: &[Value]) -> BTreeMap<String, (Value, Value)> {
    let entry = |object: &Value| {
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str().unwrap().to_owned();
        (
            name,
            (object["spec"].clone(), metadata["generation"].clone()),
        )
    };
    objects.iter().map(entry).collect()
}

/// Removes a random subset of the fields below `value`.
fn thin_out(value: &mut Value, keep: &mut impl FnMut() -> bool) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, _| keep());
            fields.values_mut().for_each(|value| thin_out(value, keep));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| thin_out(value, keep)),
        _ => {}
    }
}

/// Random valid specs: parts of samples that have every field, with a random percentile with three
/// decimals.
fn specs(count: usize) -> Vec<Value> {
    let mut runner = TestRunner::deterministic();
    let mut draw = {
        let strategy = 0.0..1.0_f64;
        move || strategy.new_tree(&mut runner).unwrap().current()
    };
    let mut specs = Vec::new();
    // bound: most fields are optional, and the generator draws the same numbers in each run.
    while specs.len() < count {
        let is_auto = draw() < 0.5;
        let mut object = if is_auto { sample_of_auto() } else { sample() };
        thin_out(&mut object["spec"], &mut || draw() < 0.93);
        if let Some(percentile) = object.pointer_mut("/spec/models/0/slo/percentile") {
            *percentile = json!((50_000.0 + 49_000.0 * draw()).round() / 1000.0);
        }
        if read_deployment(&object.to_string(), "f").is_ok() {
            specs.push(object["spec"].take());
        }
    }
    specs
}

fn objects(version: &str, specs: &[Value]) -> Vec<Value> {
    let object = |(number, spec): (usize, &Value)| {
        json!({"apiVersion": format!("albacore.dev/{version}"), "kind": "InferenceDeployment",
            "metadata": {"name": format!("{version}-{number}")}, "spec": spec})
    };
    specs.iter().enumerate().map(object).collect()
}

#[test]
fn versions_differ_in_nothing_but_their_marks() {
    let mut crd = inference_deployment_crd();
    assert_eq!(crd["spec"]["conversion"], json!({"strategy": "None"}));
    let marks = |version: &mut Value| {
        ["name", "storage", "deprecated", "deprecationWarning"].map(|mark| version[mark].take())
    };
    let versions = crd["spec"]["versions"].as_array_mut().unwrap();
    let [name, storage, deprecated, _] = marks(&mut versions[0]);
    assert_eq!(
        [name, storage, deprecated],
        [json!("v1beta1"), json!(false), Value::Null]
    );
    let [name, storage, deprecated, warning] = marks(&mut versions[1]);
    assert_eq!(
        [name, storage, deprecated],
        [json!("v1alpha1"), json!(true), json!(true)]
    );
    assert!(warning.as_str().unwrap().contains("v1beta1"), "{warning}");
    assert_eq!(versions.len(), VERSIONS.len());
    assert_eq!(versions[0], versions[1]);
}

#[test]
fn an_object_of_one_version_reads_and_writes_the_same_in_the_other() {
    let mut plane = ControlPlane::start(&Options::default()).unwrap();
    plane.serve_crds(&root().join("crds")).unwrap();
    let specs = specs(OBJECTS);
    for version in VERSIONS {
        send(
            &plane,
            &["create", "--validate=strict"],
            &objects(version, &specs),
        );
    }
    let before = written(&listed(&plane, "v1beta1"));
    assert_eq!(before.len(), VERSIONS.len() * OBJECTS);
    for (number, spec) in specs.iter().enumerate() {
        let [old, new] = VERSIONS.map(|version| &before[&format!("{version}-{number}")].0);
        assert_eq!(old, new, "{spec}");
        let models = spec["models"].as_array().map_or(0, Vec::len);
        let kept = old["models"].as_array().map_or(0, Vec::len);
        assert_eq!(kept, models, "{spec}");
    }
    for version in VERSIONS {
        let shown = listed(&plane, version);
        assert_eq!(written(&shown), before, "read in {version}");
        send(&plane, &["replace"], &shown);
        assert_eq!(
            written(&listed(&plane, "v1beta1")),
            before,
            "written in {version}"
        );
    }
    let warned = plane.kubectl(&["get", "inferencedeployments.v1alpha1.albacore.dev"]);
    let warning = String::from_utf8(warned.unwrap().stderr).unwrap();
    assert!(
        warning.contains("is deprecated: write albacore.dev/v1beta1"),
        "{warning}"
    );
}

#[test]
fn objects_outlive_an_upgrade_from_0_1_0_and_a_rollback() {
    let mut plane = ControlPlane::start(&Options::default()).unwrap();
    plane.serve_crds(&released()).unwrap();
    let specs = [
        json!({"workers": 2, "threads": 2, "models": [{"name": "m", "uri": "pvc://models/m.ubj",
            "slo": {"latency": "25ms", "percentile": 99.5}}],
            "batching": {"policy": "Timeout", "maxDelay": "2ms", "maxRows": 64},
            "queue": {"maxRows": 4096}, "autoscaling": {"minReplicas": 1, "maxReplicas": 5}}),
        json!({"workers": 4, "mode": "Compact", "placement": {"policy": "RoundRobin",
            "enforcement": "Observe", "mainThread": "WorkerSet"},
            "template": {"spec": {"containers": [{"name": "server", "image": "s:1"}]}}}),
    ];
    let mut sent = objects("v1alpha1", &specs);
    let apply = [
        "apply",
        "--server-side",
        "--validate=strict",
        "--field-manager=gitops",
    ];
    send(&plane, &apply, &sent);
    let before = written(&listed(&plane, "v1alpha1"));

    plane.serve_crds(&root().join("crds")).unwrap();
    assert_eq!(written(&listed(&plane, "v1beta1")).len(), before.len());
    send(&plane, &apply, &sent);
    for version in VERSIONS {
        let generations = |objects: &BTreeMap<String, (Value, Value)>| -> Vec<Value> {
            objects
                .values()
                .map(|(_, generation)| generation.clone())
                .collect()
        };
        let found = written(&listed(&plane, version));
        assert_eq!(
            generations(&found),
            generations(&before),
            "read in {version}"
        );
    }
    for object in &mut sent {
        object["apiVersion"] = "albacore.dev/v1beta1".into();
        object["spec"]["threads"] = 3.into();
    }
    send(&plane, &apply, &sent);

    plane.serve_crds(&released()).unwrap();
    let after = written(&listed(&plane, "v1alpha1"));
    assert_eq!(after.len(), before.len());
    let is_changed = |(spec, _): &(Value, Value)| spec["threads"] == 3;
    assert!(after.values().all(is_changed), "{after:?}");
    // Rejected now, because the API server cannot read the managed fields of a version that is not
    // served. With the newer definitions it can again.
    plane.serve_crds(&root().join("crds")).unwrap();
    send(&plane, &apply, &objects("v1alpha1", &specs));
    let restored = written(&listed(&plane, "v1alpha1"));
    assert!(!restored.values().any(is_changed), "{restored:?}");
}
