//! Tests that no field is accepted and then ignored: walks the schema and checks that each field
//! changes the built children or a decision, or is rejected by name.
#![allow(clippy::unwrap_used, clippy::panic)] // tests fail by panicking

use std::collections::BTreeSet;

use albacore_api::{InferenceDeployment, inference_deployment_crd, policy_of, read_deployment};
use albacore_controller::{BuildContext, BuiltInOptions, build, validate};
use serde_json::{Map, Value, json};

fn object(spec: &Value) -> Value {
    json!({"apiVersion": "albacore.dev/v1beta1", "kind": "InferenceDeployment",
        "metadata": {"name": "fraud", "namespace": "bank", "uid": "u"}, "spec": spec})
}

fn schema() -> Value {
    let crd = inference_deployment_crd();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone()
}

/// A spec with every field that Albacore defines.
fn sample() -> Value {
    json!({
        "replicas": 2, "workers": 2, "threads": 2, "mode": "Scatter",
        "placement": {"policy": "Tuna", "enforcement": "Enforce", "mainThread": "Pinned",
            "distances": {"l1": 5, "l2": 11, "l3": 60, "numa": 110, "package": 130,
                "machine": 300},
            "trial": {"window": "10s", "windows": 8, "arms": ["Scatter", "None"]}},
        "models": [{"name": "m", "uri": "pvc://models/m.ubj",
            "iterations": {"begin": 1, "end": 20}, "outputs": ["margin"], "threads": 1,
            "weight": 300, "missing": "Nan",
            "classes": ["legit", "fraud"],
            "categories": {"color": ["blue", "red"]},
            "batching": {"policy": "Timeout", "maxRows": 64, "maxDelay": "1ms"},
            "slo": {"latency": "25ms", "percentile": 99.0,
                "contribs": "80ms", "interactions": "1s"}}],
        "batching": {"policy": "Timeout", "maxRows": 512, "maxDelay": "2ms"},
        "queue": {"maxRows": 4096},
        "front": {"threads": 3, "loadReports": "Always", "envoyHealthHeader": true},
        "autoscaling": {"minReplicas": 1, "maxReplicas": 5},
    })
}

/// The sample with policy Auto, which has fields that Timeout does not accept.
fn sample_of_auto() -> Value {
    let mut sample = sample();
    let auto = json!({"policy": "Auto", "maxRows": 512, "prefer": "IdleWorkers", "window": "5ms"});
    sample["models"][0]["batching"] = auto.clone();
    sample["batching"] = auto;
    sample
}

/// The outputs that depend on a spec: children, the agent's policy, the inputs of scaling.
fn effect(deployment: &InferenceDeployment) -> Result<Value, String> {
    let valid = validate(deployment).map_err(|v| {
        v.iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    })?;
    let spec = &deployment.spec;
    let build_context = BuildContext {
        built_in: BuiltInOptions {
            image: "server:1".to_owned(),
            params_url: Some("http://params:8082".to_owned()),
        },
        has_service_monitors: true,
        replicas: spec.replicas,
        selects_traffic: false,
    };
    let children = build(&valid, &build_context);
    let children: Vec<Value> = children.into_iter().map(|c| c.body).collect();
    let policy = format!("{:?}", policy_of(spec));
    let scaling = format!("{:?}", spec.autoscaling);
    // The effect of a trial is tested in the agent.
    let trial = format!("{:?}", spec.placement.trial);
    Ok(json!({"children": children, "policy": policy, "scaling": scaling, "trial": trial}))
}

fn effect_of(spec: &Value) -> Result<Value, String> {
    let deployment = read_deployment(&object(spec).to_string(), "f.yaml");
    effect(&deployment.map_err(|error| error.to_string())?)
}

fn other(pointer: &str, value: &Value) -> Value {
    let field = pointer.rsplit('/').next().unwrap();
    match (field, value) {
        _ if pointer.contains("/outputs/") => json!("leaf"),
        _ if pointer.contains("/arms/") => json!("Compact"),
        ("mode", _) => json!("Compact"),
        ("enforcement", _) => json!("Observe"),
        ("mainThread", _) => json!("WorkerSet"),
        ("missing", _) => json!("Refuse"),
        ("policy", Value::String(old)) if old == "Tuna" => json!("RoundRobin"),
        ("policy", _) => json!("Eager"),
        ("uri", _) => json!("pvc://models/other.ubj"),
        ("latency" | "contribs" | "interactions", _) => json!("30ms"),
        ("maxDelay", _) => json!("3ms"),
        ("prefer", _) => json!("ShortWaits"),
        ("window", _) => json!("20s"),
        ("loadReports", _) => json!("Never"),
        ("percentile", _) => json!(95.5),
        (_, Value::Bool(is_set)) => json!(!is_set),
        (_, Value::Number(number)) => json!(number.as_i64().unwrap() + 1),
        (_, text) => json!(format!("{}2", text.as_str().unwrap())),
    }
}

fn leaves(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields
                .iter()
                .for_each(|(name, value)| leaves(value, &format!("{at}/{name}"), found));
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(i, v)| leaves(v, &format!("{at}/{i}"), found));
        }
        _ => found.push(at.to_owned()),
    }
}

#[test]
fn the_sample_has_every_field_of_the_schema() {
    fn visit(schema: &Value, found: &Value, at: &str) {
        for (name, below) in schema["properties"].as_object().into_iter().flatten() {
            if at.is_empty() && ["template", "resources"].contains(&name.as_str()) {
                continue;
            }
            assert!(!found[name].is_null(), "the sample lacks {at}/{name}");
            visit(below, &found[name], &format!("{at}/{name}"));
            visit(&below["items"], &found[name][0], &format!("{at}/{name}/0"));
        }
    }
    let mut both = sample();
    for at in ["/batching", "/models/0/batching"] {
        let auto = sample_of_auto().pointer(at).unwrap().clone();
        let batching = both.pointer_mut(at).unwrap();
        for field in ["prefer", "window"] {
            batching[field] = auto[field].clone();
        }
    }
    visit(&schema(), &both, "");
    assert!(effect_of(&sample()).is_ok());
    assert!(effect_of(&sample_of_auto()).is_ok());
}

#[test]
fn each_field_of_ours_changes_something_or_is_refused_by_name() {
    for sample in [sample(), sample_of_auto()] {
        assert_each_field_counts(&sample);
    }
    let before = effect_of(&sample()).unwrap();
    let mut spec = sample();
    spec["resources"] = json!({"limits": {"cpu": "4"}});
    assert_ne!(
        effect_of(&spec).unwrap(),
        before,
        "resources are accepted and ignored"
    );
}

fn assert_each_field_counts(sample: &Value) {
    let before = effect_of(sample).unwrap();
    let mut found = Vec::new();
    leaves(sample, "", &mut found);
    for pointer in found {
        let mut spec = sample.clone();
        let value = spec.pointer_mut(&pointer).unwrap();
        *value = other(&pointer, value);
        match effect_of(&spec) {
            Ok(after) => assert_ne!(after, before, "{pointer} is accepted and ignored"),
            Err(said) => {
                // Policy Eager rejects a delay or a preference.
                let field = ["maxDelay", "prefer"]
                    .into_iter()
                    .find(|f| said.contains(f));
                assert!(field.is_some(), "{pointer}: {said}");
            }
        }
    }
}

/// A minimal value that matches `schema`, with its required fields.
fn minimal(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("object") if schema["properties"].is_object() => {
            let required = schema["required"].as_array().into_iter().flatten();
            let fields = required.map(|name| {
                let name = name.as_str().unwrap();
                (name.to_owned(), minimal(&schema["properties"][name]))
            });
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Some("object") => json!({"key": minimal(&schema["additionalProperties"])}),
        Some("array") => json!([minimal(&schema["items"])]),
        Some("integer") => json!(7),
        Some("number") => json!(7.5),
        Some("boolean") => json!(true),
        _ if schema["x-kubernetes-int-or-string"] == true => json!(7),
        _ if schema["format"] == "date-time" => json!("2026-11-21T00:00:00Z"),
        _ => json!("text"),
    }
}

/// All ways to set one field below `schema`: its path and the smallest object that sets it.
fn settings(schema: &Value, at: &str, depth: usize) -> Vec<(String, Value)> {
    // Deeper fields belong to copies of schemas that were visited above.
    if depth > 6 {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (name, below) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{at}/{name}");
        let whole = |inner: Value| {
            let mut value = minimal(schema);
            value[name] = inner;
            value
        };
        match below["type"].as_str() {
            Some("object") if below["properties"].is_object() => {
                for (path, inner) in settings(below, &path, depth + 1) {
                    found.push((path, whole(inner)));
                }
            }
            Some("array") if below["items"]["properties"].is_object() => {
                for (path, inner) in settings(&below["items"], &path, depth + 1) {
                    found.push((path, whole(json!([inner]))));
                }
            }
            _ => found.push((path, whole(minimal(below)))),
        }
    }
    found
}

/// The values at `path` in `value`, through all entries of lists.
fn at<'a>(value: &'a Value, path: &[&str]) -> Vec<&'a Value> {
    match (value, path) {
        (value, []) => vec![value],
        (Value::Array(items), path) => items.iter().flat_map(|item| at(item, path)).collect(),
        (value, [first, rest @ ..]) => value.get(first).map_or(Vec::new(), |v| at(v, rest)),
    }
}

#[test]
fn each_field_of_the_template_reaches_the_pods_or_is_refused_by_name() {
    let schema = schema()["properties"]["template"].clone();
    let mut refused = BTreeSet::new();
    let mut taken = 0;
    for (path, mut template) in settings(&schema, "", 0) {
        // The validation of the serving container is the strictest.
        if let Some(containers) = template["spec"]["containers"].as_array_mut() {
            containers[0]["name"] = "server".into();
        }
        let mut spec = sample();
        spec["template"] = template.clone();
        let mut whole: InferenceDeployment = serde_json::from_value(object(&spec)).unwrap();
        // Deserialization drops unknown fields; nothing may be dropped here.
        let kept = serde_json::to_value(&whole.spec.template).unwrap();
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let wanted: Vec<Value> = at(&template, &parts).into_iter().cloned().collect();
        assert_eq!(
            at(&kept, &parts).len(),
            wanted.len(),
            "{path} is not in the type"
        );
        // Commands are allowed for a user's own server only.
        let is_command = ["/spec/containers/command", "/spec/containers/args"];
        if is_command.contains(&path.as_str()) {
            whole.spec.models.clear();
            whole.spec.autoscaling = None;
            whole.spec.batching = albacore_api::Batching::default();
            whole.spec.queue = albacore_api::Queue::default();
            whole.spec.front = None;
        }
        match effect(&whole) {
            Err(said) => {
                let is_named = parts.iter().skip(1).any(|part| said.contains(part));
                assert!(is_named, "{path}: {said}");
                refused.insert(path);
            }
            Ok(effect) => {
                let children = effect["children"].as_array().unwrap();
                let pods = children.iter().find(|c| c["kind"] == "Deployment").unwrap();
                let pods = at(&pods["spec"]["template"], &parts);
                for value in wanted {
                    assert!(
                        pods.iter().any(|found| contains(found, &value)),
                        "{path} is ignored"
                    );
                }
                taken += 1;
            }
        }
    }
    assert!(taken > 500, "the walk finds {taken} fields only");
    assert!(
        refused.iter().all(|path| path.starts_with("/metadata/")),
        "{refused:?}"
    );
}

fn contains(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted
            .iter()
            .all(|(k, v)| found.get(k).is_some_and(|f| contains(f, v))),
        // A quantity may be written as a number.
        (Value::String(found), Value::Number(wanted)) => *found == wanted.to_string(),
        (found, wanted) => found == wanted,
    }
}
