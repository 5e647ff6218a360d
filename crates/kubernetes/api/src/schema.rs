//! The CustomResourceDefinition: what the derive makes of the types, made fit for the API server.
//!
//! What is added: the CEL of every [`crate::rules`] entry; what each value of an enumeration means
//! (the derive drops it); the form of quantities; the two forms of `iterations`; bounds on the
//! containers of the template, without which the API server could not bound the cost of the rules.
//! What is taken away: `nullable` (the API server then drops a null field and fills in its default,
//! as it does for its own kinds), descriptions inside the pod template (they alone would exceed
//! what `kubectl apply` can store in an annotation), and the demand that an overlay list
//! containers.

use kube::CustomResourceExt;
use schemars::schema_for;
use serde_json::{Map, Value, json};

use crate::deployment::{
    BatchingPolicy, Enforcement, InferenceDeployment, MainThread, Mode, Output, PlacementPolicy,
};
use crate::iterations;
use crate::node_placement::{self, DriftCause, Isolation};
use crate::quantity;
use crate::rules::RULES;

/// Most containers of a template, and longest name of one: the API server needs bounds to price the
/// rules that look at them. A name is a DNS label.
const CONTAINERS_MAX: u64 = 64;
const CONTAINER_NAME_CHARS_MAX: u64 = 63;

/// The CustomResourceDefinition of [`InferenceDeployment`], as it is written to `crds/`.
pub fn inference_deployment_crd() -> Value {
    // infallible: a CustomResourceDefinition has text keys only and so is JSON.
    #[allow(clippy::expect_used)]
    let mut crd = serde_json::to_value(InferenceDeployment::crd()).expect("a CRD is JSON");
    let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    mark_quantities(schema);
    make_fit(schema);
    describe_values(&mut schema["properties"]["spec"]);
    let model = &mut at(schema, "spec.models")["items"];
    model["properties"]["iterations"]["oneOf"] = iterations::alternatives();
    let outputs = &mut model["properties"]["outputs"]["items"];
    describe(outputs, &schema_for!(Output).to_value());
    let template = &mut schema["properties"]["spec"]["properties"]["template"];
    for part in ["metadata", "spec"] {
        drop_descriptions(&mut template["properties"][part]);
    }
    loosen_pod(&mut template["properties"]["spec"]);
    for rule in &RULES {
        let Some(cel) = rule.cel else { continue };
        let mut validation = Map::new();
        validation.insert("rule".into(), cel.into());
        validation.insert("message".into(), rule.message.into());
        if let Some(field) = rule.field {
            validation.insert("fieldPath".into(), field.into());
        }
        let rules = &mut at(schema, rule.at)["x-kubernetes-validations"];
        if rules.is_null() {
            *rules = json!([]);
        }
        if let Some(rules) = rules.as_array_mut() {
            rules.push(validation.into());
        }
    }
    crd
}

/// The CustomResourceDefinition of [`crate::NodePlacement`], as it is written to `crds/`.
pub fn node_placement_crd() -> Value {
    let mut crd = node_placement::definition();
    let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    make_fit(schema);
    let pod = &mut schema["properties"]["status"]["properties"]["pods"]["items"];
    for (path, values) in [
        ("isolation", schema_for!(Isolation)),
        ("drift.cause", schema_for!(DriftCause)),
    ] {
        describe(at(pod, path), &values.to_value());
    }
    crd
}

/// What every schema needs.
fn make_fit(schema: &mut Value) {
    each(schema, &mut |map| {
        map.remove("nullable");
        name_known_format(map);
        join_lines(map);
    });
}

/// The schema inside the CRD, for objects read from a file.
pub(crate) fn openapi_schema() -> Value {
    inference_deployment_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take()
}

/// The schema node of a field path such as `spec.batching`.
fn at<'a>(schema: &'a mut Value, path: &str) -> &'a mut Value {
    path.split('.')
        .filter(|part| !part.is_empty())
        .fold(schema, |s, p| &mut s["properties"][p])
}

fn loosen_pod(pod: &mut Value) {
    if let Some(required) = pod["required"].as_array_mut() {
        required.retain(|name| name != "containers");
        if required.is_empty() {
            pod.as_object_mut().map(|pod| pod.remove("required"));
        }
    }
    let containers = &mut pod["properties"]["containers"];
    containers["maxItems"] = CONTAINERS_MAX.into();
    containers["items"]["properties"]["name"]["maxLength"] = CONTAINER_NAME_CHARS_MAX.into();
}

/// Calls `change` on every schema below `schema`, itself first.
fn each(schema: &mut Value, change: &mut impl FnMut(&mut Map<String, Value>)) {
    let Some(map) = schema.as_object_mut() else {
        return;
    };
    change(map);
    for name in ["items", "additionalProperties"] {
        if let Some(below) = map.get_mut(name) {
            each(below, change);
        }
    }
    for (_, below) in map
        .get_mut("properties")
        .and_then(Value::as_object_mut)
        .into_iter()
        .flatten()
    {
        each(below, change);
    }
}

fn mark_quantities(schema: &mut Value) {
    each(schema, &mut |map| {
        let is_quantity = map
            .get("description")
            .and_then(Value::as_str)
            .is_some_and(|d| d.starts_with("Quantity is a fixed-point"));
        if is_quantity {
            map.insert("pattern".into(), quantity::PATTERN.into());
            let text = "A number with or without a unit: 500m, 2, 1.5Gi.";
            map.insert("description".into(), text.into());
        }
    });
}

/// Kubernetes knows no unsigned formats and warns of them; the bounds of the fields fit into int32.
fn name_known_format(map: &mut Map<String, Value>) {
    let is_unsigned = map
        .get("format")
        .and_then(Value::as_str)
        .is_some_and(|f| f.starts_with("uint"));
    if is_unsigned {
        map.insert("format".into(), "int32".into());
    }
}

/// Lines of one paragraph become one line: `kubectl explain` wraps by itself.
fn join_lines(map: &mut Map<String, Value>) {
    if let Some(Value::String(text)) = map.get_mut("description") {
        *text = text
            .replace("\n\n", "\u{0}")
            .replace('\n', " ")
            .replace('\u{0}', "\n\n");
    }
}

fn describe_values(spec: &mut Value) {
    for (path, values) in [
        ("mode", schema_for!(Mode)),
        ("placement.policy", schema_for!(PlacementPolicy)),
        ("placement.enforcement", schema_for!(Enforcement)),
        ("placement.mainThread", schema_for!(MainThread)),
        ("batching.policy", schema_for!(BatchingPolicy)),
    ] {
        describe(at(spec, path), &values.to_value());
    }
}

/// Adds what each of the enumeration's `values` means to the field's description.
fn describe(field: &mut Value, values: &Value) {
    let described = values["oneOf"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|value| {
            let (name, text) = (value["const"].as_str()?, value["description"].as_str()?);
            Some(format!("\n\n{name}: {}", text.replace('\n', " ")))
        });
    let described: String = described.collect();
    if let Value::String(text) = &mut field["description"] {
        text.push_str(&described);
    }
}

fn drop_descriptions(schema: &mut Value) {
    each(schema, &mut |map| {
        map.remove("description");
    });
}
