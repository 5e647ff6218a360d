//! Deployments with malformed content: wrong types, random texts, huge annotations. The schema of
//! the API server is relaxed first, because it would reject most of them.

use serde_json::{Map, Value, json};

use crate::rig::{Rig, deployment, wait};

/// A small deterministic random generator.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

fn strange_text(dice: &mut Dice) -> String {
    let texts = [
        "",
        " ",
        "\u{0}",
        "\u{202e}abc",
        "ünïcödé-名前",
        "NaN",
        "1e309",
        "null",
        "-0",
        "../../etc/passwd",
        "${jndi:x}",
        "'; DROP TABLE",
        "a\nb\tc",
        "\u{1f41f}\u{1f41f}",
        "file:///",
        "pvc://",
        "999999999999999999999",
    ];
    texts[dice.roll(texts.len())].repeat(1 + dice.roll(3))
}

fn strange_value(dice: &mut Dice, depth: usize) -> Value {
    match dice.roll(if depth > 3 { 7 } else { 9 }) {
        0 => Value::Null,
        1 => json!(dice.roll(2) == 0),
        2 => json!(-1),
        3 => json!(u64::MAX),
        4 => json!(1.5e300),
        5 | 6 => strange_text(dice).into(),
        7 => (0..dice.roll(4))
            .map(|_| strange_value(dice, depth + 1))
            .collect(),
        _ => {
            let fields =
                (0..dice.roll(4)).map(|_| (strange_text(dice), strange_value(dice, depth + 1)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
    }
}

/// Replaces some values anywhere below `value`.
fn damage(value: &mut Value, dice: &mut Dice) {
    if dice.roll(8) == 0 {
        *value = strange_value(dice, 0);
        return;
    }
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(|value| damage(value, dice));
            if dice.roll(6) == 0 {
                fields.insert(format!("x{}", strange_text(dice)), strange_value(dice, 0));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|value| damage(value, dice)),
        _ => {}
    }
}

fn whole_spec() -> Value {
    json!({
        "mode": "Scatter", "placement": {"policy": "Tuna", "enforcement": "Enforce"},
        "batching": {"policy": "Timeout", "maxDelay": "2ms", "maxRows": 64}, "queue": {"maxRows": 100},
        "autoscaling": {"minReplicas": 1, "maxReplicas": 3},
        "resources": {"limits": {"cpu": "2"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [{"name": "server", "env": [{"name": "A", "value": "1"}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}},
    })
}

fn fuzzed(number: usize) -> Value {
    let mut dice = Dice(number as u64);
    let mut object = deployment(&format!("fuzzed-{number}"), &whole_spec());
    damage(&mut object["spec"], &mut dice);
    if !object["spec"].is_object() {
        object["spec"] = json!({"workers": object["spec"]});
    }
    if dice.roll(20) == 0 {
        object["metadata"]["annotations"] = json!({"huge": "a€".repeat(40_000)});
    }
    if dice.roll(10) == 0 {
        object["metadata"]["name"] = format!("0.{number}.strange.name").into();
    }
    object
}

/// The definition of deployments with a schema that preserves unknown fields.
fn loose_crd() -> Value {
    let version = |name: &str| {
        let keep = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({"name": name, "served": true, "storage": name == "v1alpha1",
            "subresources": {"status": {}}, "schema": {"openAPIV3Schema": keep}})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "inferencedeployments.albacore.dev"},
        "spec": {"group": "albacore.dev", "scope": "Namespaced",
            "names": {"kind": "InferenceDeployment", "plural": "inferencedeployments",
                "singular": "inferencedeployment", "shortNames": ["infd"],
                "listKind": "InferenceDeploymentList"},
            "versions": [version("v1beta1"), version("v1alpha1")]},
    })
}

/// Stores `count` fuzzed objects together with a healthy one. The healthy one must be built and
/// follow a change, and the controller must keep running.
pub(crate) fn run(count: usize) {
    let rig = Rig::start(false);
    rig.apply(&[loose_crd()]);
    // The healthy one has to set the fields for which the relaxed schema has no defaults.
    let healthy = |rows: u32| deployment("healthy", &json!({"batching": {"maxRows": rows}}));
    let objects: Vec<Value> = (0..count).map(fuzzed).collect();
    wait("the loosened kind is served", || {
        rig.try_apply(&objects[..1], "ignore").is_ok()
    });
    let (first, second) = objects.split_at(count / 2);
    rig.try_apply(first, "ignore").unwrap();
    let mut controller = rig.controller(&[]);
    rig.apply(&[healthy(32)]);
    rig.try_apply(second, "ignore").unwrap();
    let has = |rows: &str| {
        let map = rig.get("configmap", "healthy").unwrap_or_default();
        map["data"]["settings.yaml"]
            .as_str()
            .is_some_and(|text| text.contains(rows))
    };
    wait("the healthy one is built", || has("max_rows: 32"));
    rig.apply(&[healthy(33)]);
    wait("the healthy one follows", || has("max_rows: 33"));
    wait("every object was looked at", || {
        let metrics = controller.http("/metrics");
        metrics.contains("albacore_queue_waiting{name=\"deployments\"}") && {
            let watched = |name: &str| {
                let line = metrics
                    .lines()
                    .find(|l| l.starts_with(&format!("albacore_{name}{{name=\"deployments\"}}")));
                line.and_then(|l| l.rsplit(' ').next())
                    .and_then(|n| n.parse::<usize>().ok())
                    .unwrap_or(0)
            };
            watched("watched_objects") + watched("watched_malformed_objects") == count + 1
        }
    });
    assert!(!controller.has_exited());
    let log = controller.log();
    assert!(!log.contains("panicked"), "{log}");
    assert!(log.contains("is malformed"), "some objects are malformed");
    assert!(controller.http("/readyz").starts_with("HTTP/1.1 200"));
    let resident = controller.resident_mib();
    println!("{count} fuzzed objects: the controller goes on, {resident} MiB resident");
}
