//! The CustomResourceDefinitions: generated from the types by the derive macro, and adapted for the
//! API server.
//!
//! Added: the CEL of every [`crate::rules`] entry; descriptions of the values of enumerations (the
//! derive macro omits them); the pattern of quantities; the two forms of `iterations`; bounds on
//! the containers of the template, without which the API server could not bound the cost of the
//! rules. Removed: `nullable` (the API server then drops a null field and applies its default, as
//! for its own kinds), descriptions inside the pod template (they alone would exceed what `kubectl
//! apply` can store in an annotation), and the requirement that an overlay lists containers.

use kube::CustomResourceExt;
use schemars::schema_for;
use serde_json::{Map, Value, json};

use crate::deployment::{
    BatchingPolicy, BatchingPreference, EnforcementPolicy, InferenceDeployment, LoadReportPolicy,
    MainThreadPolicy, PlacementMode, PlacementPolicy, TrialArm,
};
use crate::iterations;
use crate::missing_columns::MissingColumns;
use crate::node_placement::{self, DriftCause, Isolation};
use crate::output::OutputSpec;
use crate::quantity;
use crate::rules::RULES;
use crate::status::ServerLimit;
use crate::versions;

/// Maximum containers of a template, and maximum length of their names: the API server needs bounds
/// to estimate the cost of the rules about them. A name is a DNS label.
const CONTAINERS_MAX: u64 = 64;
const CONTAINER_NAME_CHARS_MAX: u64 = 63;

/// The CustomResourceDefinition of [`InferenceDeployment`], as written to `crds/`.
pub fn inference_deployment_crd() -> Value {
    let mut crd = serde_json::json!(InferenceDeployment::crd());
    let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    mark_quantities(schema);
    adapt(schema);
    describe_values(&mut schema["properties"]["spec"]);
    let limit = node_at(schema, "status.utilization.limit");
    describe(limit, &schema_for!(ServerLimit).to_value());
    let model = &mut node_at(schema, "spec.models")["items"];
    model["properties"]["iterations"]["oneOf"] = iterations::alternatives();
    let outputs = &mut model["properties"]["outputs"]["items"];
    describe(outputs, &schema_for!(OutputSpec).to_value());
    for (path, values) in [
        ("missing", schema_for!(MissingColumns)),
        ("batching.policy", schema_for!(BatchingPolicy)),
        ("batching.prefer", schema_for!(BatchingPreference)),
    ] {
        describe(node_at(model, path), &values.to_value());
    }
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
        let rules = &mut node_at(schema, rule.at)["x-kubernetes-validations"];
        if rules.is_null() {
            *rules = json!([]);
        }
        if let Some(rules) = rules.as_array_mut() {
            rules.push(validation.into());
        }
    }
    versions::serve_preferred(&mut crd);
    crd
}

/// The CustomResourceDefinition of [`crate::NodePlacement`], as written to `crds/`.
pub fn node_placement_crd() -> Value {
    let mut crd = node_placement::definition();
    let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    adapt(schema);
    let pod = &mut schema["properties"]["status"]["properties"]["pods"]["items"];
    for (path, values) in [
        ("isolation", schema_for!(Isolation)),
        ("drift.cause", schema_for!(DriftCause)),
    ] {
        describe(node_at(pod, path), &values.to_value());
    }
    crd
}

/// Changes that every schema needs.
fn adapt(schema: &mut Value) {
    for_each_schema(schema, &mut |map| {
        map.remove("nullable");
        name_known_format(map);
        join_lines(map);
    });
}

/// The schema in the CRD, for objects read from a file.
pub(crate) fn openapi_schema() -> Value {
    inference_deployment_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take()
}

/// The schema node of a field path such as `spec.batching`.
fn node_at<'a>(schema: &'a mut Value, path: &str) -> &'a mut Value {
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

/// Calls `change` for `schema` and then for every schema below it.
fn for_each_schema(schema: &mut Value, change: &mut impl FnMut(&mut Map<String, Value>)) {
    let Some(map) = schema.as_object_mut() else {
        return;
    };
    change(map);
    for name in ["items", "additionalProperties"] {
        if let Some(below) = map.get_mut(name) {
            for_each_schema(below, change);
        }
    }
    for (_, below) in map
        .get_mut("properties")
        .and_then(Value::as_object_mut)
        .into_iter()
        .flatten()
    {
        for_each_schema(below, change);
    }
}

fn mark_quantities(schema: &mut Value) {
    for_each_schema(schema, &mut |map| {
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

/// Kubernetes does not support unsigned formats and warns about them; the bounds of the fields fit
/// into int32.
fn name_known_format(map: &mut Map<String, Value>) {
    let is_unsigned = map
        .get("format")
        .and_then(Value::as_str)
        .is_some_and(|f| f.starts_with("uint"));
    if is_unsigned {
        map.insert("format".into(), "int32".into());
    }
}

/// Joins the lines of a paragraph, because `kubectl explain` wraps them itself.
fn join_lines(map: &mut Map<String, Value>) {
    if let Some(Value::String(text)) = map.get_mut("description") {
        *text = text
            .replace("\n\n", "\u{0}")
            .replace('\n', " ")
            .replace('\u{0}', "\n\n");
    }
}

fn describe_values(spec: &mut Value) {
    let arms = &mut node_at(spec, "placement.trial.arms")["items"];
    describe(arms, &schema_for!(TrialArm).to_value());
    for (path, values) in [
        ("mode", schema_for!(PlacementMode)),
        ("placement.policy", schema_for!(PlacementPolicy)),
        ("placement.enforcement", schema_for!(EnforcementPolicy)),
        ("placement.mainThread", schema_for!(MainThreadPolicy)),
        ("batching.policy", schema_for!(BatchingPolicy)),
        ("batching.prefer", schema_for!(BatchingPreference)),
        ("front.loadReports", schema_for!(LoadReportPolicy)),
    ] {
        describe(node_at(spec, path), &values.to_value());
    }
}

/// Appends the meaning of each of the enumeration's `values` to the field's description.
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
    for_each_schema(schema, &mut |map| {
        map.remove("description");
    });
}
