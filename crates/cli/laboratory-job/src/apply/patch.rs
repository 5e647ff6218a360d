//! The patch of a deployment's spec, and its reverse.

use albacore_api::InferenceDeploymentSpec;
use albacore_cluster::DynamicObject;
use serde_json::{Map, Value};

/// Fields of the spec that a search chooses.
const TUNED: [&str; 7] = [
    "batching",
    "front",
    "mode",
    "placement",
    "replicas",
    "threads",
    "workers",
];

/// Two merge patches of the spec (RFC 7396).
#[derive(PartialEq, Debug)]
pub(super) struct Patches {
    pub(super) forward: Value,
    pub(super) backward: Value,
}

impl Patches {
    /// Returns `None` if the two are equal.
    ///
    /// # Errors
    /// The name of a field that differs but is not chosen by a search.
    pub(super) fn between(
        current: &InferenceDeploymentSpec,
        chosen: &InferenceDeploymentSpec,
    ) -> Result<Option<Self>, String> {
        let value = |spec: &InferenceDeploymentSpec| serde_json::to_value(spec).unwrap_or_default();
        let (current, chosen) = (value(current), value(chosen));
        let (Some(forward), Some(backward)) = (patch(&current, &chosen), patch(&chosen, &current))
        else {
            return Ok(None);
        };
        let fields = forward.as_object().into_iter().flat_map(Map::keys);
        match fields.clone().find(|of| !TUNED.contains(&of.as_str())) {
            Some(field) => Err(format!("spec.{field}")),
            None => Ok(Some(Self { forward, backward })),
        }
    }
}

/// The merge patch that turns `from` into `to`; `None` if they are equal.
fn patch(from: &Value, to: &Value) -> Option<Value> {
    let (Value::Object(current), Value::Object(new)) = (from, to) else {
        return (from != to).then(|| to.clone());
    };
    let mut changes = Map::new();
    for field in current.keys().filter(|field| !new.contains_key(*field)) {
        changes.insert(field.clone(), Value::Null);
    }
    for (field, new) in new {
        let change = match current.get(field) {
            Some(current) => patch(current, new),
            None => Some(new.clone()),
        };
        changes.extend(change.map(|change| (field.clone(), change)));
    }
    (!changes.is_empty()).then_some(Value::Object(changes))
}

/// Whether the object is unedited since `expected`. The number of replicas is ignored, because an
/// autoscaler may change it.
pub(super) fn is_unedited(now: &DynamicObject, expected: &DynamicObject) -> bool {
    let spec = |of: &DynamicObject| {
        let mut spec = of.data["spec"].clone();
        if let Some(fields) = spec.as_object_mut() {
            fields.remove("replicas");
        }
        spec
    };
    now.metadata.uid == expected.metadata.uid && spec(now) == spec(expected)
}
